"""The base layer of needle.data: tickets, pytrees, random numbers, memory, compiled kernels.

ticket.py identifies the samples of a batch, pytree.py flattens samples and batches,
random_source.py keys random numbers by (seed, epoch, index), buffer_pool.py reuses the memory of
large arrays, timing.py measures stages, and native_kernels.py calls the C++ kernels. Every other
package of ``needle.data`` calls this one.
"""
