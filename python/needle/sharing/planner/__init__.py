"""The planner: which index each task gets next. No input, no output, no clock, no threads.

planner.py holds ``Planner``, which the server calls. policy.py defines policies and the table
that they draw from; coupled.py and planned.py are one policy each, registered by name.
"""

from . import coupled, planned
from .planner import Planner
from .policy import Draw, policies

__all__ = ["Draw", "Planner", "coupled", "planned", "policies"]
