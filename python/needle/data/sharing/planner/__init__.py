"""The planner: which index each task gets next. No input, no output, no clock, no threads.

planner.py holds ``Planner``, which the server calls; members.py the table of indices that tasks
still miss; policy.py the interface of a policy and ``independent``; coupled.py and planned.py one
policy each. A policy registers itself by name.
"""

from . import coupled, planned
from .planner import Planner
from .policy import Draw, policies

__all__ = ["Draw", "Planner", "coupled", "planned", "policies"]
