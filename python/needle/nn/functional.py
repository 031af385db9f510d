"""The place where PyTorch has its functions; importing it is an error that says where ours are."""

from ..torch_names import NAMES

raise ImportError(f"no module named {__name__!r}; use {NAMES['needle.nn']['functional']}")
