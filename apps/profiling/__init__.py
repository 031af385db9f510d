"""Where a training step's time goes: layers and kernels, forward and backward.

listen.py times, cost.py counts operations and bytes of a kernel call, tables.py writes it down.
Used by apps/train.py --profile and apps/profile_layers.py.
"""

from .listen import Call, Profile, Span, profile_step
from .tables import layer_rows, layer_table, write_trace

__all__ = ["Call", "Profile", "Span", "layer_rows", "layer_table", "profile_step", "write_trace"]
