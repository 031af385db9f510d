"""The planner: which index each task gets next. No input, no output, no clock, no threads.

planner.py holds ``Planner``, which the server calls. policy.py defines the interface of a policy
and the table that it draws from. planned.py is the policy of the server; where no task can copy the
order of another it draws by coupled.py.
"""

from .planner import Planner
from .policy import Draw

__all__ = ["Draw", "Planner"]
