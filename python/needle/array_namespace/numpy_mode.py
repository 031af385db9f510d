"""The device of NumPy mode (``NEEDLE_BACKEND=np``), in which every array is a ``numpy.ndarray``.

Dtypes are NumPy's own unless one is given. Called through ``array_namespace`` only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..dtypes import NAMES, check_fits, float64, numpy_dtype, real_array
from ..errors import unknown_name

Array = NumpyArray[Any]


class Device:
    """Base class of the devices of this mode, which compare, hash and pickle by name."""

    name = "device"
    dtypes = NAMES

    def __repr__(self) -> str:
        return f"{self.name}()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def enabled(self) -> bool:
        """Return True: NumPy is always usable."""
        return True

    def why(self) -> str | None:
        """Return None, since this device can always be used."""
        return None


def _shape_of(shape: tuple[Any, ...]) -> Any:
    """Return ``(2, 3)`` for both f(2, 3) and f((2, 3))."""
    return shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape


class CPUDevice(Device):
    """The host's memory, the one device of this mode."""

    name = "cpu"

    def zeros(self, *shape: Any, dtype: Any = "float32") -> Array:
        """Return an array of zeros."""
        return np.zeros(_shape_of(shape), dtype=numpy_dtype(dtype, "zeros", float64))

    def ones(self, *shape: Any, dtype: Any = "float32") -> Array:
        """Return an array of ones."""
        return np.ones(_shape_of(shape), dtype=numpy_dtype(dtype, "ones", float64))

    def randn(self, *shape: int, dtype: Any = None) -> Array:
        """Return standard normal numbers drawn from the global ``np.random`` stream (float64)."""
        return from_numpy(np.random.randn(*shape), dtype=dtype)

    def rand(self, *shape: int, dtype: Any = None) -> Array:
        """Return uniform numbers in [0, 1) drawn from the global ``np.random`` stream (float64)."""
        return from_numpy(np.random.rand(*shape), dtype=dtype)

    def one_hot(self, n: int, i: Any, dtype: Any = "float32") -> Array:
        """Return an array of shape ``i.shape + (n,)``: 1 in column ``i``, 0 elsewhere."""
        return np.eye(n, dtype=numpy_dtype(dtype, "one_hot", float64))[
            np.asarray(i).astype(np.int64)
        ]

    def empty(self, shape: Any, dtype: Any = "float32") -> Array:
        """Return an array with undefined contents."""
        return np.empty(shape, dtype=numpy_dtype(dtype, "empty", float64))

    def full(self, shape: Any, fill_value: Any, dtype: Any = "float32") -> Array:
        """Return an array of one value."""
        return np.full(shape, fill_value, dtype=numpy_dtype(dtype, "full", float64))


def cpu() -> CPUDevice:
    """Return the one device of this mode."""
    return CPUDevice()


def default_device() -> CPUDevice:
    """Return the device of arrays that are made without ``device=``: ``cpu()``."""
    return cpu()


def set_default_device(where: str | Device | None) -> AbstractContextManager[Device]:
    """Check that ``where`` is the one device of this mode; UnknownNameError for any other.

    The result is a context manager, as it is for needle's own arrays.
    """
    return nullcontext(device(where))


def all_devices() -> list[Device]:
    """Return every device of this mode."""
    return [cpu()]


def device(name: str | Device | None = None) -> Device:
    """Return the device called ``name``; a device is returned as is, None means the default."""
    if isinstance(name, Device):
        return name
    if name is None or name in ("cpu", "cpu()"):
        return cpu()
    raise unknown_name("device", str(name), ["cpu"])


def to_numpy(array: Any) -> Array:
    """Return the elements as a NumPy array (a copy)."""
    return np.array(array)


def from_numpy(array: Any, device: Any = None, dtype: Any = None) -> Array:
    """Return a copy as ndarray; NumPy's dtype is kept if ``dtype`` is None.

    Raises DTypeError for text, objects, complex numbers and integers out of the range of ``dtype``.
    """
    dtype = None if dtype is None else numpy_dtype(dtype, "array")
    check_fits("array", real_array("array", array), dtype)
    made: Array = np.array(array, dtype=dtype)
    return made


def adopt(host: Array, device: Device) -> Array | None:
    """Return the host array itself, which is an array of this mode, or None if it is read-only."""
    return host if host.flags.writeable else None


def device_of(array: Any) -> Device:
    """Return the device that holds ``array``: always ``cpu()``."""
    return cpu()


def is_array(x: Any) -> bool:
    """Return True if ``x`` is a NumPy array other than a masked array."""
    return isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray)
