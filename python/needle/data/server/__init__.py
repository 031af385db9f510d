"""One loader for many training tasks: each sample is prepared once for all tasks that can take it.

planner/ says which task gets which index next, cache.py keeps prepared samples in bounded memory;
neither does any input or output.
"""

from .cache import SampleCache
from .planner import Draw, Planner, policies

__all__ = ["Draw", "Planner", "SampleCache", "policies"]
