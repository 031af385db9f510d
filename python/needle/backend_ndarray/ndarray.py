"""The course's place for NDArray and the functions around it; their home is ``needle.ndarray``
and the files beside this one. Imported by programs only."""

from ..ndarray import (
    BackendDevice,
    Device,
    NDArray,
    all_devices,
    cpu,
    cpu_numpy,
    cuda,
    default_device,
    device,
)
from .creation import array, empty, from_dlpack, full
from .elementwise import exp, log, maximum, tanh
from .manipulation import broadcast_to, flip, reshape
from .reduction import sum, summation

__all__ = [
    "BackendDevice",
    "Device",
    "NDArray",
    "all_devices",
    "array",
    "broadcast_to",
    "cpu",
    "cpu_numpy",
    "cuda",
    "default_device",
    "device",
    "empty",
    "exp",
    "flip",
    "from_dlpack",
    "full",
    "log",
    "maximum",
    "reshape",
    "sum",
    "summation",
    "tanh",
]
