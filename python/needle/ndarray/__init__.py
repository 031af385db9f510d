"""NDArray and the devices that hold it; the function namespace is ``needle.backend_ndarray``.

Called by ``accelerated`` and the namespace. The files: ``dtype_rules`` and ``kernels`` (views in,
views out), ``indexing``, ``device``, ``operators`` and ``interchange`` (mixins), ``array``.
"""

from .array import NDArray, device_of, from_numpy, is_array, to_numpy
from .device import (
    BackendDevice,
    Device,
    all_devices,
    cpu,
    cpu_numpy,
    cuda,
    default_device,
    device,
)

__all__ = [
    "BackendDevice",
    "Device",
    "NDArray",
    "all_devices",
    "cpu",
    "cpu_numpy",
    "cuda",
    "default_device",
    "device",
    "device_of",
    "from_numpy",
    "is_array",
    "to_numpy",
]
