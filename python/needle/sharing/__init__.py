"""One loader for many training tasks: a server prepares each sample once for all of them.

client/ runs in a training program (``GlobalDataLoader``), serving/ is the server process, and
planner/ decides which task gets which index next. wire/ is used by client and server: addresses,
frames, descriptions. ``__main__.py`` is the command line.
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
