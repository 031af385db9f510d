"""Convert an array from and to NumPy, DLPack, pickles, strings and scalars, as a mixin.

On devices that use host memory nothing is copied: the backend's ``export`` returns a host array
that shares the memory. ``host_array`` and ``upload`` convert input; the functions of ``creation``
call them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray as NumpyArray

from .. import shapes
from ..backends.base import View
from ..backends.writes import note_shared
from ..dtypes import DType, check_fits, is_floating, is_storage, outside, real_array
from ..errors import DeviceError, DTypeError, PrecisionWarning, ShapeError, warn_caller
from ..host_steps import current, host_step
from . import kernels
from .device import BackendDevice, default_device

HostArray = NumpyArray[Any]


def host_array(op: str, source: Any) -> HostArray:
    """Return anything array-like as an aligned NumPy array of real numbers in native byte order.

    Raises DTypeError or ShapeError.
    """
    try:
        host = real_array(op, source)
    except ValueError as error:
        raise ShapeError(f"{op}: rows must have equal lengths, got {error}") from None
    shapes.check_ndim(op, host.ndim)
    if not host.flags.aligned or not host.dtype.isnative:  # kernels need both
        return host.astype(host.dtype.newbyteorder("="))
    return host


def upload(
    host: HostArray, device: BackendDevice, dtype: DType, default: bool = False, source: Any = None
) -> View:
    """Return a row-major view on the device with the host array's elements, cast to ``dtype``.

    PrecisionWarning if the cast to the ``default`` dtype, float32, rounds integers. DTypeError if
    elements do not fit an integer dtype. source: the object from which the array was made; a
    recording keeps numbers that are literals in a step, and no other data.
    """
    if current.recorder is not None and source is not None and _is_literal(source):
        return _upload(host.tolist(), device, dtype, default)
    return _upload(host, device, dtype, default)


def _is_literal(source: Any) -> bool:
    if isinstance(source, (list, tuple)):
        return all(map(_is_literal, source))
    return type(source) in (int, float, bool, slice, type(None), type(...))


@host_step
def _upload(data: Any, device: BackendDevice, dtype: DType, default: bool) -> View:
    host = np.asarray(data)
    out = kernels.empty(device.backend, host.shape, dtype)
    if host.dtype != dtype:
        check_fits("array", host, dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            cast = host.astype(dtype)
        if default and host.dtype.kind in "iu" and host.dtype.itemsize >= dtype.itemsize:
            warn_if_rounded(host, cast)
        host = cast
    device.backend.upload(host, out)
    return out


def warn_if_rounded(host: HostArray, cast: HostArray) -> None:
    """Give a PrecisionWarning if ``cast``, in float32, has rounded an integer of ``host``."""
    # The sum of squares is the cheapest test: below 2**48, all values are below 2**24 and exact.
    if np.vdot(cast, cast) < 2.0**48:
        return
    with np.errstate(invalid="ignore"):
        rounded = cast.astype(host.dtype) != host
    rounded |= cast >= np.float32(
        np.iinfo(host.dtype).max
    )  # casting such a value back would overflow
    if rounded.any():
        first = int(host[rounded].flat[0])
        warn_caller(
            f"array: float32, the default dtype, cannot hold the integer {first} exactly; pass "
            f"dtype={str(host.dtype)!r} or dtype='float64'",
            PrecisionWarning,
        )


def warn_if_lost(op: str, array: Any, dtype: DType) -> None:
    """Give a RuntimeWarning, as NumPy does, if floats cannot be represented in an integer dtype.

    The check is another pass over the floats. In a captured step nothing is read, and no warning is
    given.
    """
    if dtype.kind not in "iu" or not is_floating(array.dtype) or current.recorder is not None:
        return
    if is_storage(array.dtype):
        array = array.astype("float32")
    if lost := outside(array, dtype):
        warn_caller(
            f"{op}: a float must be representable in {lost}, but it becomes another number; clip "
            "the values, or replace NaN and infinity first",
            RuntimeWarning,
        )


class ArrayInterchange:
    """A mixin with the protocols of Python and of other libraries."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __array_namespace__: ClassVar[Callable[..., ModuleType]]
    __array_ufunc__: ClassVar[Callable[..., Any]]
    __lshift__: ClassVar[Callable[..., Any]]
    __rshift__: ClassVar[Callable[..., Any]]
    __rlshift__: ClassVar[Callable[..., Any]]
    __rrshift__: ClassVar[Callable[..., Any]]
    view: View
    _device: BackendDevice

    def numpy(self) -> HostArray:
        """Return a read-only NumPy copy of the elements; writes to it would not change this array.

        ``numpy.asarray`` shares memory if the device allows it; ``numpy.array`` makes a writable
        copy.
        """
        host = self._device.backend.download(self.view)
        host.flags.writeable = False
        return host

    def shared_memory(self) -> HostArray | None:
        """Return a host array on this memory (read-only where elements repeat), or None."""
        shared = self._device.backend.export(self.view)
        if shared is not None:
            note_shared(self.view.handle)
            if kernels.has_repeats(self.view):
                shared.flags.writeable = False
        return shared

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        shared = None if copy else self.shared_memory()
        if shared is None:
            if copy is False:
                raise ValueError(f"numpy.asarray: {self._device} memory cannot be shared; copy it")
            shared = self._device.backend.download(self.view) if copy else self.numpy()
        if dtype is None or shared.dtype == dtype:
            return shared
        if copy is False:
            raise ValueError(f"numpy.asarray: {shared.dtype} to {dtype} needs a copy")
        return shared.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        shared = self.shared_memory()
        if shared is None:
            raise AttributeError(f"{self._device} memory cannot be shared with NumPy")
        return shared.__array_interface__

    def __dlpack_device__(self) -> tuple[int, int]:
        self._shared_by_dlpack()
        return 1, 0

    def _shared_by_dlpack(self) -> HostArray:
        shared = self.shared_memory()
        if shared is None:
            raise BufferError(f"__dlpack__: {self._device} does not share memory; use .numpy()")
        return shared

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule on the same memory (options as in the array API standard)."""
        return self._shared_by_dlpack().__dlpack__(**options)

    def item(self) -> bool | int | float:
        """Return the value of an array of one element as a Python scalar."""
        values = self.numpy()
        if values.size != 1:
            raise ShapeError(f"item: the array must have one element, got shape {values.shape}")
        scalar: bool | int | float = values.item()
        return scalar

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python scalars."""
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
        if self.view.dtype.kind not in "iu":
            raise DTypeError(f"index: the array must hold integers, got {self.view.dtype}")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __str__(self) -> str:
        return str(self.numpy())

    def __repr__(self) -> str:
        name = type(self).__name__
        text = np.array2string(self.numpy(), separator=", ", prefix=f"{name}(")
        dtype = "" if self.view.dtype == "float32" else f", dtype={self.view.dtype}"
        where = "" if self._device == default_device() else f", device={self._device}"
        shape = f", shape={self.view.shape}" if 0 in self.view.shape else ""
        return f"{name}({text}{shape}{dtype}{where})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), np.array(self.numpy()), self._device)

    def __copy__(self) -> Any:
        return _rebuild(type(self), self, self._device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _rebuild(type(self), self, self._device)


def may_share_memory(a: ArrayInterchange, b: ArrayInterchange) -> bool:
    """Return True if the arrays may share memory, even with two handles (after from_dlpack)."""
    first, second = a.view.handle, b.view.handle
    if first is second:
        return True
    if _owns_memory(first) and _owns_memory(second):
        return False
    ours = a.shared_memory()
    theirs = None if ours is None else b.shared_memory()
    return theirs is not None and ours is not None and bool(np.may_share_memory(ours, theirs))


def _owns_memory(handle: Any) -> bool:
    """Return True if no other handle and no host array shares the memory of ``handle``."""
    return getattr(handle, "shared", True) is False


def _rebuild(kind: Any, source: Any, device: BackendDevice) -> Any:
    """Return an array of type ``kind`` with a copy of ``source``; called by unpickling."""
    if not device.enabled():
        raise DeviceError(f"unpickle: the array's device is missing: {device.why()}")
    dtype = source.dtype
    return kind(source, device=device, dtype=dtype)
