"""NDArray towards the rest of Python: NumPy, DLPack, pickle, copy, text, as a mixin.

On devices in host memory nothing is copied: the backend's ``export`` gives a host array on the
same memory. The way in (``from_dlpack``, ``asarray``) is in ``backend_ndarray/creation.py``.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..backends.base import View
from ..errors import DeviceError, DTypeError, ShapeError
from .device import BackendDevice, default_device

HostArray = NumpyArray[Any]

UFUNC_NAMES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "fmod": None,
    "invert": "bitwise_invert",
    "rint": "round",
}
"""NumPy's ufuncs whose name here is another; None where the same name would mean another thing."""


class ArrayInterchange:
    """Protocols of other libraries, over ``_view`` and ``_device``."""

    __slots__ = ()
    __array_priority__ = 1000.0
    _namespace: ClassVar[ModuleType]
    _view: View
    _device: BackendDevice

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The function namespace of these arrays (Python array API standard)."""
        if api_version not in (None, "2022.12", "2023.12", "2024.12"):
            raise DTypeError(
                f"__array_namespace__: array API versions up to 2024.12 are known, "
                f"got {api_version!r}"
            )
        return self._namespace

    def numpy(self) -> HostArray:
        """A NumPy array with the elements: always a copy (``numpy.asarray(a)`` shares memory)."""
        return self._device.backend.download(self._view)

    def _shared(self) -> HostArray | None:
        """A host array on this memory (read-only where elements repeat), or None."""
        shared = self._device.backend.export(self._view)
        if shared is not None and _repeats(self._view):
            shared.flags.writeable = False
        return shared

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        shared = None if copy else self._shared()
        if shared is None:
            if copy is False:
                raise ValueError(f"numpy.asarray: {self._device} memory cannot be shared; copy it")
            shared = self.numpy()
        if dtype is None or shared.dtype == dtype:
            return shared
        if copy is False:
            raise ValueError(f"numpy.asarray: {shared.dtype} to {dtype} needs a copy")
        return shared.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        shared = self._shared()
        if shared is None:
            raise AttributeError(f"{self._device} memory cannot be shared with NumPy")
        return shared.__array_interface__

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._shared() is None:
            raise BufferError(f"__dlpack__: {self._device} does not share memory; use .numpy()")
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        """A DLPack capsule on the same memory (options as in the array API standard)."""
        shared = self._shared()
        if shared is None:
            raise BufferError(f"__dlpack__: {self._device} does not share memory; use .numpy()")
        return shared.__dlpack__(**options)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's ufuncs go to the function of the same meaning here, or raise TypeError."""
        known = (ArrayInterchange, np.ndarray, np.generic, bool, int, float)
        if not all(isinstance(item, known) for item in inputs):
            return NotImplemented
        name = UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__)
        function = getattr(self._namespace, name or "", None)
        if function is None or method != "__call__" or options:
            extra = "".join(f" with {option}=" for option in options)
            called = ufunc.__name__ + ("" if method == "__call__" else f".{method}") + extra
            raise DTypeError(
                f"numpy.{called}: not offered for needle arrays; pass numpy.asarray(a) instead"
            )
        return function(*(self._operand(item) for item in inputs))

    def _operand(self, item: Any) -> Any:
        """A ufunc's input as this namespace takes it: arrays on our device, Python scalars."""
        if isinstance(item, np.generic) or (isinstance(item, np.ndarray) and not item.shape):
            return item.item()
        if isinstance(item, np.ndarray):
            return self._namespace.asarray(item, device=self._device)
        return item

    def item(self) -> bool | int | float:
        """The value of an array of one element as a Python scalar."""
        values = self.numpy()
        if values.size != 1:
            raise ShapeError(f"item: the array must have one element, got shape {values.shape}")
        scalar: bool | int | float = values.item()
        return scalar

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._view.dtype.kind not in "iu":
            raise DTypeError(f"index: the array must be of integers, got {self._view.dtype}")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __str__(self) -> str:
        return str(self.numpy())

    def __repr__(self) -> str:
        name = type(self).__name__
        text = np.array2string(self.numpy(), separator=", ", prefix=f"{name}(")
        dtype = "" if self._view.dtype == "float32" else f", dtype={self._view.dtype}"
        where = "" if self._device == default_device() else f", device={self._device}"
        shape = f", shape={self._view.shape}" if 0 in self._view.shape else ""
        return f"{name}({text}{shape}{dtype}{where})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.numpy(), self._device)

    def __copy__(self) -> Any:
        return _rebuild(type(self), self, self._device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _rebuild(type(self), self, self._device)


def _repeats(view: View) -> bool:
    """Whether a stride of 0 makes several elements share one place."""
    return any(not s and n > 1 for n, s in zip(view.shape, view.strides, strict=True))


def _rebuild(kind: Any, source: Any, device: BackendDevice) -> Any:
    """An array of type ``kind`` with a copy of ``source``; unpickling calls it."""
    if not device.enabled():
        raise DeviceError(f"unpickle: the array lives on a device that is missing: {device.why()}")
    dtype = source.dtype
    return kind(source, device=device, dtype=dtype)
