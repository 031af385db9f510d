"""Which index each task gets next: tasks join, leave and pause, policies decide by name.

tasks.py is the face (``Planner``), members.py knows which tasks still miss an index, policy.py is
what a policy is; the other files are one policy each and register themselves.
"""

from . import coupled, independent, planned, tree
from .policy import Draw, policies
from .tasks import Planner

__all__ = ["Draw", "Planner", "coupled", "independent", "planned", "policies", "tree"]
