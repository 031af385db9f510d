"""Parts that a loader and its server share: addresses, frames, and descriptions of what is sent.

address.py finds servers, protocol.py defines the frames of a connection, descriptions.py turns
data sets and transforms into text and JSON, sample_layout.py does so for samples in shared memory.
serving/ and client/ call all four.
"""
