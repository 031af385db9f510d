"""The planner, which decides which index each task gets next, without I/O, clock or threads.

planner.py holds ``Planner``, which the server calls, and policy.py the table of the indices that
each task has yet to receive. planned.py copies the order of one task to others; when no task can
copy, it calls coupled.py.
"""

from .planner import Planner
from .policy import Draw

__all__ = ["Draw", "Planner"]
