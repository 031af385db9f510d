"""needle: a small, fast deep-learning framework to read in a weekend.

Everything a program needs is here, flat: tensors, ops, devices, dtypes; layers, optimisers and
data are the submodules ``nn``, ``optim``, ``data``.
"""

from . import ops  # isort: skip
from . import autograd, backend_selection, errors
from .autograd import Tensor, TensorTuple, enable_grad, grad, no_grad
from .backend_selection import Device, all_devices, cpu, default_device, device
from .dtypes import bool_, float32, float64, int32, int64, uint8

globals().update(ops.PUBLIC)  # needle.exp, needle.Exp, ...

__version__ = "0.1.0"
