"""The pipeline that turns a ticket into (part of) a batch: fetch, transform, collate.

fetch.py reads samples, collate.py stacks them, pipeline.py does both and runs the transforms.
Called by the engines in ``workers/`` and by the server in ``sharing/``.
"""
