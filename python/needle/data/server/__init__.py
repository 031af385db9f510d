"""One loader for many training tasks: each sample is prepared once for all tasks that can take it.

A program uses ``GlobalDataLoader`` (client.py); session.py is its connection, server.py the other
side. planner/ says which task gets which index next, cache.py which prepared samples stay; neither
does any input or output.
"""

from .cache import SampleCache
from .client import GlobalDataLoader
from .planner import Draw, Planner, policies
from .server import Options, Server

__all__ = ["Draw", "GlobalDataLoader", "Options", "Planner", "SampleCache", "Server", "policies"]
