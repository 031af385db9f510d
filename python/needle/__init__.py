"""needle: a small, fast deep-learning framework that can be read from the ground up.

Tensors, ops, devices and dtypes are here, flat; layers, optimisers and data are the submodules
``nn``, ``optim`` and ``data``. ``ops/public.py`` says which file each op comes from.
"""

import importlib
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import (
    array_namespace,
    autograd,
    backend_selection,
    errors,
    init,
    io,
    nn,
    ops,
    optim,
    testing,
)
from .array_namespace import (
    BACKEND,
    Device,
    NDArray,
    all_devices,
    array_api,
    cpu,
    default_device,
    device,
    set_default_device,
)
from .autograd import Tensor, TensorTuple, enable_grad, no_grad
from .autograd.derivative import grad
from .autograd.draw import draw_graph
from .dtypes import bool_, float32, float64, int32, int64, uint8
from .init import ones, ones_like, seed, zeros, zeros_like
from .nn.layer_table import summary
from .ops.public import *  # noqa: F403  needle.exp, ...
from .torch_names import ModuleFinder, missing_attribute

if TYPE_CHECKING:
    from . import data, distributed

array_namespace.tensor_type = Tensor
array_namespace.tensor_constant = Tensor.make_const

__version__ = "0.2.0"
__all__ = ["BACKEND", "Device", "NDArray", "all_devices", "array_api", "cpu", "default_device"]
__all__ += ["Tensor", "TensorTuple", "device", "draw_graph", "enable_grad", "grad", "no_grad"]
__all__ += ["bool_", "float32", "float64", "int32", "int64", "set_default_device", "uint8"]
__all__ += ["ones", "ones_like", "seed", "summary", "zeros", "zeros_like"]
__all__ += ["autograd", "backend_selection", "data", "errors", "init", "io", "nn", "ops", "optim"]
__all__ += ["testing"]
__all__ += sorted(set(ops.__all__) - {"REGISTRY", "op"})

# Leaf packages, without which everything else works.
if find_spec(".capture", __name__) is not None:
    from .capture import CaptureError, CaptureWarning, capture

    __all__ += ["CaptureError", "CaptureWarning", "capture"]
if find_spec(".distributed", __name__) is not None:
    __all__ += ["distributed"]

if BACKEND == "nd":
    from . import backend_ndarray
    from .array_namespace import cpu_numpy, cuda, webgpu

    __all__ += ["backend_ndarray", "cpu_numpy", "cuda", "webgpu"]

if find_spec(".course_names", __name__) is not None:
    from . import course_names

    course_names.add_to(__name__)

if ModuleFinder not in sys.meta_path:
    sys.meta_path.append(ModuleFinder)


def __getattr__(name: str) -> Any:
    """Import ``needle.data`` and ``needle.distributed`` at first use, as the import is slow."""
    if name in ("data", "distributed"):
        return importlib.import_module(f".{name}", __name__)
    raise missing_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
