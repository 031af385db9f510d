"""One loader for many training tasks: each sample is prepared once for all tasks that can take it.

client/ is what a training program has of it: ``GlobalDataLoader`` (dataloader.py), its connection,
batches put together. serving/ is the server's process: its loop, what tasks of equal samples have
in common (feed.py), which prepared samples stay (cache.py). wire/ is what both sides know: where
servers are, frames, how data sets, index sets, transforms and samples are described in them.
planner/ says which task gets which index next, without input or output.
"""

from .client.global_loader import GlobalDataLoader
from .planner import Draw, Planner, policies
from .serving.sample_cache import SampleCache
from .serving.server import Options, Server

__all__ = ["Draw", "GlobalDataLoader", "Options", "Planner", "SampleCache", "Server", "policies"]
