"""One loader for many training tasks: a server prepares each sample once for all of them.

client/ is the part that runs in a training program (``GlobalDataLoader``), serving/ the server
process, planner/ decides which task gets which index next. wire/ is shared by client and server:
addresses, frames, descriptions. ``__main__.py`` is the command line.
"""

from .client.global_loader import GlobalDataLoader
from .planner import Draw, Planner
from .serving.event_loop import Server
from .serving.feed import ServerOptions
from .serving.sample_cache import SampleCache

__all__ = [
    "Draw",
    "GlobalDataLoader",
    "Planner",
    "SampleCache",
    "Server",
    "ServerOptions",
]
