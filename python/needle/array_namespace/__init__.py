"""The array namespace of this process, chosen once, at import, by ``NEEDLE_BACKEND``.

``nd`` (the default) is ``needle.ndarray``, ``np`` is NumPy itself. Higher floors write ``from
..array_namespace import array_api as xp``. The functions that differ between the modes (to_numpy,
from_numpy, adopt, device_of, is_array) are here too.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from .. import config
from ..dtypes import float32, float64

BACKEND = config.BACKEND.read()

if BACKEND == "nd":
    _mode: ModuleType = importlib.import_module("..ndarray", __package__)
    array_api: Any = _mode
    NDArray: Any = _mode.NDArray
    Device: Any = _mode.BackendDevice
    cuda: Any = _mode.cuda
    webgpu: Any = _mode.webgpu
    cpu_numpy: Any = _mode.cpu_numpy
elif BACKEND == "np":
    _mode = importlib.import_module(".numpy_mode", __package__)
    array_api = importlib.import_module("numpy")
    NDArray = array_api.ndarray
    Device = _mode.Device
else:
    raise RuntimeError(
        f"NEEDLE_BACKEND: must be 'nd' (needle's arrays) or 'np' (plain NumPy), got {BACKEND!r}; "
        f"unset it for the default"
    )

cpu: Any = _mode.cpu
default_device: Any = _mode.default_device
default_dtype = float32 if BACKEND == "nd" else float64
"""The dtype that ``dtype=None`` means where no values determine one."""
set_default_device: Any = _mode.set_default_device
all_devices: Any = _mode.all_devices
device: Any = _mode.device
to_numpy: Any = _mode.to_numpy
from_numpy: Any = _mode.from_numpy
adopt: Any = _mode.adopt
device_of: Any = _mode.device_of
is_array: Any = _mode.is_array

tensor_type: Any = None
"""The class Tensor, set by ``needle/__init__``; ``data`` makes batches of it."""
tensor_constant: Any = None
"""``Tensor.make_const``, which makes a constant that shares an array's memory."""

__all__ = ["BACKEND", "Device", "NDArray", "all_devices", "array_api", "cpu", "default_device"]
__all__ += ["adopt", "device", "device_of", "from_numpy", "is_array", "set_default_device"]
__all__ += ["to_numpy"]
if BACKEND == "nd":
    __all__ += ["cpu_numpy", "cuda", "webgpu"]
