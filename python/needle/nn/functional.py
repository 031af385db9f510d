"""A placeholder for PyTorch's ``nn.functional``; importing it raises an error that names ours."""

from ..torch_names import NAMES

raise ImportError(f"no module named {__name__!r}; use {NAMES['needle.nn']['functional']}")
