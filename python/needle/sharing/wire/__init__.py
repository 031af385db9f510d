"""The parts shared by a loader and its server: addresses, frames, and descriptions.

address.py finds servers, protocol.py defines the frames of a connection, descriptions.py turns data
sets and transforms into text and JSON, and sample_layout.py does so for samples in shared memory.
serving/ and client/ call all four.
"""
