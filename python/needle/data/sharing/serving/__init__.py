"""The server's process: it prepares each sample once for all tasks that can take it.

server.py is the loop, connection.py one peer of it, task.py what a task may still get and holds.
feed.py brings draws, readings (readers.py) and memory (cache.py, arena.py, spill.py) together.
"""
