"""The server process, which prepares each sample once for all tasks that can take it.

event_loop.py holds ``Server`` and connection.py one peer. task.py counts the credits of a task,
feed.py connects draws, workers (readers.py) and memory (sample_cache.py). client/joining.py and
__main__.py start a server.
"""
