"""The pipeline that turns a ticket into a batch, or part of one: fetch, transform, collate.

fetch.py reads samples and collate.py stacks them; pipeline.py calls both and runs the transforms.
Called by the engines in ``workers/`` and by the server in ``sharing/``.
"""
