"""The client side of the shared loader: batches from a server, or from a local fallback.

global_loader.py checks options and hands ``DataLoader`` the order and engine of server_engine.py.
joining.py finds or starts a server, session.py holds the connection of a task, and assembly.py
makes batches from shared memory.
"""

from .global_loader import GlobalDataLoader

__all__ = ["GlobalDataLoader"]
