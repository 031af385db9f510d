"""What a loader and its server both know: addresses, frames, and how things are described in them.

address.py says where servers are, protocol.py what frames there are, call.py how a connection
begins; index_sets.py, shared_transforms.py, named_sets.py and records.py describe what is asked for
and what comes.
"""
