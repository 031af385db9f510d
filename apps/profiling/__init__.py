"""Profiles of a training step: the time of layers and kernels, forward and backward.

listen.py measures, cost.py counts the operations and bytes of a kernel call, tables.py writes
tables and traces, limits.py measures the machine. Called by train.py --profile and
profile_layers.py.
"""

from .listen import Call, Profile, Span, profile_step
from .tables import layer_rows, layer_table, write_trace

__all__ = ["Call", "Profile", "Span", "layer_rows", "layer_table", "profile_step", "write_trace"]
