"""The planner, which decides which index each task gets next, without I/O, clock and threads.

planner.py holds ``Planner``, which the server calls. policy.py defines the interface of a policy
and the table that it draws from. planned.py is the policy of the server. Where no task can copy the
order of another, it falls back to coupled.py.
"""

from .planner import Planner
from .policy import Draw

__all__ = ["Draw", "Planner"]
