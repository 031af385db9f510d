"""Profile a training step or inference: the time of each layer and kernel.

listen.py measures, cost.py counts the operations and bytes of a kernel call, tables.py writes
tables and traces, limits.py measures the machine. Called by train.py --profile and
profile_layers.py.
"""

from .listen import Profile, profile_inference, profile_step, shadowed
from .tables import layer_rows, layer_table, write_trace

__all__ = [
    "Profile",
    "layer_rows",
    "layer_table",
    "profile_inference",
    "profile_step",
    "shadowed",
    "write_trace",
]
