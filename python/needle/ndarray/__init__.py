"""The array: NDArray, its devices, and the functions of the Python array API standard 2024.12.

This module has all names that the files of this folder list in ``__all__``, the course's names
included. ``array_namespace.array_api`` is this module unless ``NEEDLE_BACKEND=np``. Complex numbers
and the dtypes int8, int16, uint16, uint32 and uint64 are not offered.
"""

# ruff: noqa: F403

from types import ModuleType as _Module

from ..dtypes import bool_ as bool
from ..dtypes import float32, float64, int32, int64, uint8
from . import protocols  # adds __array_namespace__ and __array_ufunc__ to NDArray
from .array import NDArray
from .creation import *
from .data_types import *
from .data_types import __array_namespace_info__, e, inf, nan, newaxis, pi
from .device import (
    BackendDevice,
    Device,
    all_devices,
    cpu,
    cpu_numpy,
    cuda,
    default_device,
    device,
    set_default_device,
    webgpu,
)
from .elementwise import *
from .linear_algebra import *
from .manipulation import *
from .reduction import *
from .searching import *
from .sorting import *

__array_api_version__ = "2024.12"
__all__ = sorted(
    each for each in globals() if each[0] != "_" and not isinstance(globals()[each], _Module)
)
__all__ += ["__array_namespace_info__"]
