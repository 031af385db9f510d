"""The server process, which prepares each sample once for all tasks that can take it.

event_loop.py holds ``Server``, connection.py the connection of one peer. feed.py tracks the credits
of tasks and connects draws, workers (reading.py) and memory (sample_cache.py). client/joining.py
and __main__.py start a server.
"""
