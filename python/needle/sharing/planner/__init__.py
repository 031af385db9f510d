"""The planner, which decides which index each task gets next, without I/O, clock and threads.

planner.py holds ``Planner``, which the server calls, and policy.py the table of indices that tasks
still miss. planned.py copies the order of a task to others; where no task can copy, it calls
coupled.py.
"""

from .planner import Planner
from .policy import Draw

__all__ = ["Draw", "Planner"]
