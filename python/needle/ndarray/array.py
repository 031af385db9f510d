# Trail 5 of 30: an array is a handle, shape, strides and offset; a view copies nothing.
# Next: python/needle/ndarray/kernels.py
"""NDArray, a strided view of a backend's buffer: construction, copies, indexing, kernels.

Its views, methods, operators and interchange protocols are the base classes in ``views``,
``methods``, ``operators`` and ``interchange``. Kernels are called through ``kernels``. The
functions of the namespace (``elementwise``, ``reduction``, ...) are written on top of this class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from .. import shapes
from ..accelerated import gather, scatter
from ..backends.base import View
from ..backends.writes import note_write
from ..config import MAX_DIMS
from ..dtypes import DType, as_dtype, bool_, default_float, int64, kind_of
from ..errors import DeviceError, DTypeError, ShapeError
from ..shapes import Shape, Strides
from . import indexing, kernels
from .device import BackendDevice, usable_device
from .interchange import (
    ArrayInterchange,
    HostArray,
    host_array,
    may_share_memory,
    upload,
    warn_if_lost,
)
from .methods import ArrayMethods

SCALARS = (bool, int, float)
_PLAIN_SCALARS = frozenset(SCALARS)
_new = object.__new__
_no_result = cast("NDArray", NotImplemented)


class NDArray(ArrayMethods, ArrayInterchange):
    """An array on a device: a handle (the device's buffer), shape, strides, offset and dtype.

    ``NDArray(x)`` copies ``x`` (an NDArray, a NumPy array, anything that ``numpy.array`` takes) as
    float32 unless ``dtype`` is given; bool stays bool, and an NDArray keeps its dtype and device.
    ``needle.ndarray.asarray`` keeps every dtype. Strides and offset count elements.
    """

    __slots__ = ("__weakref__", "_device", "view")

    def __init__(self, other: Any, device: Any = None, dtype: Any = None) -> None:
        if isinstance(other, NDArray):
            self._device = other.device if device is None else usable_device(device)
            wanted = other.dtype if dtype is None else as_dtype(dtype, "array")
            warn_if_lost("array", other, wanted)
            self.view = copy_view(other, self._device, wanted)
            return
        host = host_array("array", other)
        wanted = bool_ if host.dtype == bool_ else default_float
        self._device = usable_device(device)
        wanted = wanted if dtype is None else as_dtype(dtype, "array")
        self.view = upload(host, self._device, wanted, dtype is None, other)

    @staticmethod
    def make(
        shape: Any,
        strides: Strides | None = None,
        device: Any = None,
        handle: Any = None,
        offset: int = 0,
        dtype: Any = "float32",
    ) -> NDArray:
        """Return an array over ``handle``, or over a new buffer with undefined contents."""
        shape, dtype, target = (
            shapes.as_shape("empty", shape),
            default_float if dtype is None else as_dtype(dtype, "empty"),
            usable_device(device),
        )
        strides = shapes.compact_strides(shape) if strides is None else tuple(strides)
        if handle is None:
            return wrap(kernels.empty(target.backend, shape, dtype, strides), target)
        return wrap(View(handle, shape, strides, offset, dtype), target)

    def new_empty(self, shape: Shape, dtype: DType, strides: Strides | None = None) -> NDArray:
        """Return an uninitialised array on this device; the arguments are not checked."""
        return wrap(kernels.empty(self._device.backend, shape, dtype, strides), self._device)

    def window(self, shape: Shape, strides: Strides, offset: int | None = None) -> NDArray:
        """Return a view with another shape, without checking that it stays inside the buffer."""
        view = self.view
        if len(shape) > MAX_DIMS:
            shapes.check_ndim("view", len(shape))
        offset = view.offset if offset is None else offset
        window = kernels.new_view(View, (view.handle, shape, strides, offset, view.dtype))
        return wrap(window, self._device)

    @property
    def device(self) -> BackendDevice:
        """The device that holds the array."""
        return self._device

    # ---- copies ------------------------------------------------------------------------------

    def compact_copy(self) -> NDArray:
        """Return a row-major copy."""
        return wrap(kernels.compact(self._device.backend, self.view), self._device)

    def astype(self, dtype: Any, *, copy: bool = True) -> NDArray:
        """Return the array in another dtype; integers wrap around, as in C and NumPy.

        With ``copy=False``, an array that already has the dtype is returned itself. RuntimeWarning
        if a float, NaN or infinity cannot be represented in an integer dtype; its result is
        undefined.
        """
        wanted = as_dtype(dtype, "astype")
        if wanted == self.dtype and not copy:
            return self
        warn_if_lost("astype", self, wanted)
        return wrap(kernels.cast(self._device.backend, self.view, wanted), self._device)

    def copy(self) -> NDArray:
        """Return a copy with the same axis order in memory."""
        return self.astype(self.dtype)

    def pad(self, axes: Any, value: Any = 0) -> NDArray:
        """Return a copy padded with ``value``, ``axes[i] = (before, after)`` times along axis i."""
        pairs = [shapes.pair("pad", "axes", item) for item in axes]
        if len(pairs) != self.ndim or any(n < 0 for item in pairs for n in item):
            raise ShapeError(
                f"pad: there must be one non-negative (before, after) pair per axis, got {axes} "
                f"for {self.shape}"
            )
        shape = tuple(n + left + right for n, (left, right) in zip(self.shape, pairs, strict=True))
        out = NDArray.make(shape, device=self._device, dtype=self.dtype)
        out.assign(value, new=True)
        inner = tuple(slice(left, left + n) for n, (left, _) in zip(self.shape, pairs, strict=True))
        self._device.backend.copy(self.view, out[inner].view)
        return out

    def to(self, device: Any) -> NDArray:
        """Return the array on a device, given as such or by name; itself if it is already there."""
        target = usable_device(device)
        return self if target == self._device else NDArray(self, device=target)

    def to_device(self, device: Any, /, *, stream: Any = None) -> NDArray:
        """Return ``to(device)``, by the array API standard's name; ``stream`` must be None."""
        if stream is not None:
            raise DeviceError(f"to_device: streams are not supported, got {stream!r}; leave it out")
        return self.to(device)

    # ---- indexing ----------------------------------------------------------------------------

    def process_slice(self, sl: slice, dim: int) -> slice:
        """Return the slice for axis ``dim`` with start, stop and step filled in."""
        return indexing.process_slice(sl, self.view.shape[dim])

    def _basic(self, items: tuple[Any, ...]) -> NDArray:
        view = self.view
        return self.window(
            *indexing.basic_index(view.shape, view.strides, view.offset, items, self.process_slice)
        )

    def __getitem__(self, key: Any) -> NDArray:
        """Index as in NumPy: ints, slices, newaxis and ellipsis give views, index arrays copies."""
        items = key if type(key) is tuple else (key,)
        if indexing.is_basic(items):
            return self._basic(items)
        return _Rows(self, items).take()

    def __setitem__(self, key: Any, value: Any) -> None:
        """Assign a value, cast and broadcast, or reshaped if the indices are basic."""
        items = key if type(key) is tuple else (key,)
        if indexing.is_basic(items):
            self._basic(items).assign(value)
            return
        prepare_write(self)
        source = self._source(value)
        if not _fill_by_mask(self, items, source):
            _Rows(self, items).put(source)

    def assign(self, value: Any, *, new: bool = False) -> None:
        """Set ``self[...] = value``, which may share memory; ``new``: it has no values yet."""
        if not new:
            prepare_write(self)
        value = self._source(value)
        if not isinstance(value, NDArray):
            kernels.fill(self._device.backend, self.view, value)
            return
        source = fit_view(value, self.shape).view
        if kernels.is_identical(source, self.view):
            return
        if may_share_memory(value, self):
            source = kernels.cast(self._device.backend, source, self.dtype)
        self._device.backend.copy(source, self.view)

    def fill(self, value: Any) -> None:
        """Set every element to ``value``, converted to the array's dtype."""
        self.assign(value)

    def _source(self, value: Any) -> NDArray | bool | int | float:
        """Return a value to assign as an NDArray on this device or a Python scalar."""
        if isinstance(value, NDArray):
            same_device("setitem", self, value)
            warn_if_lost("setitem", value, self.dtype)
            return value
        if type(value) in _PLAIN_SCALARS:
            return value  # type: ignore[no-any-return]
        host = host_array("setitem", value)
        if not host.shape:
            scalar: bool | int | float = host.item()
            return scalar
        return wrap(upload(host, self._device, self.dtype, source=value), self._device)

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("len: a 0-d array has no length; use item() for its value")
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        if not self.shape:
            raise DTypeError("iter: a 0-d array cannot be iterated; use item() for its value")
        return (self._basic((row,)) for row in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool(self.binary("equal", value).any())

    # ---- kernels -----------------------------------------------------------------------------

    def unary(self, name: str) -> NDArray:
        """Return ``name(self)``, elementwise; ``name`` is one of ``backends.base.UNARY``."""
        return wrap(kernels.unary(self._device.backend, name, self.view), self._device)

    def binary(self, name: str, other: Any, reflected: bool = False) -> NDArray:
        """Return ``name(self, other)``, elementwise; ``reflected`` exchanges the operands."""
        device = self._device
        if type(other) is NDArray or isinstance(other, NDArray):
            if other._device is not device:  # noqa: SLF001 - the property costs as much as the test
                same_device(name, self, other)
            other = other.view
        elif type(other) not in _PLAIN_SCALARS:
            other = self.foreign_operand(name, other)
            if other is NotImplemented:
                return _no_result
        first, second = (other, self.view) if reflected else (self.view, other)
        return wrap(kernels.binary(device.backend, name, first, second), device)

    def foreign_operand(self, op: str, other: Any) -> Any:
        """Return a NumPy operand, or a number of a subclass, as a View or a Python scalar.

        The result is NotImplemented for an object of any other type; lists, tuples and complex
        numbers raise DTypeError.
        """
        if isinstance(other, np.ndarray) and other.shape:
            return from_host(other, self._device).view
        if isinstance(other, np.generic | np.ndarray):
            other = other.item()
            if isinstance(other, complex):
                raise DTypeError(f"{op}: complex numbers are not supported, got {other}")
            return other
        if isinstance(other, SCALARS):
            return other
        if isinstance(other, list | tuple):
            raise DTypeError(
                f"{op}: operands must be arrays or scalars, got {type(other).__name__}; "
                f"use asarray on it"
            )
        return NotImplemented

    def inplace(self, name: str, other: Any) -> NDArray:
        """Write ``name(self, other)`` into this array; DTypeError if the result does not fit."""
        result = self.binary(name, other)
        if result is _no_result:
            return result
        if result.shape != self.shape or kind_of(result.dtype) > kind_of(self.dtype):
            raise DTypeError(
                f"{name}: in an in-place operation the result must fit the array, got "
                f"{result.dtype} {result.shape} for {self.dtype} {self.shape}; write a = a op b"
            )
        self.assign(result)
        return self

    def __matmul__(self, other: Any) -> NDArray:
        if not isinstance(other, NDArray):
            if not isinstance(other, np.ndarray):
                return _no_result
            other = from_host(other, self._device)
        same_device("matmul", self, other)
        return wrap(kernels.matmul(self._device.backend, self.view, other.view), self._device)

    def __rmatmul__(self, other: Any) -> NDArray:
        if not isinstance(other, np.ndarray):
            return _no_result
        return from_host(other, self._device) @ self

    def reduce(self, name: str, axis: Any = None, keepdims: bool = False) -> NDArray:
        """Return the reduction ``name`` (one of ``backends.base.REDUCE``) over one or more axes."""
        axes = shapes.normalize_axes(name, axis, self.ndim)
        view = kernels.reduce(self._device.backend, name, self.view, axes, keepdims)
        return wrap(view, self._device)


BackendDevice.array_type = NDArray


# ---- functions that the class and higher files share -----------------------------------------


def wrap(view: View, device: BackendDevice) -> NDArray:
    """Return the NDArray of a view."""
    array = _new(NDArray)
    array.view = view
    array._device = device  # noqa: SLF001 - the constructor of this file
    return array


def from_host(host: HostArray, device: BackendDevice) -> NDArray:
    """Return an NDArray on ``device`` with a NumPy array's elements and dtype."""
    host = host_array("asarray", host)
    return wrap(upload(host, device, as_dtype(host.dtype, "asarray")), device)


def as_array(op: str, x: Any) -> NDArray:
    """Return ``x`` if it is an NDArray; DTypeError otherwise."""
    if not isinstance(x, NDArray):
        raise DTypeError(
            f"{op}: the operand must be an NDArray, got {type(x).__name__}; use asarray"
        )
    return x


def same_device(op: str, a: NDArray, b: NDArray) -> None:
    """Raise DeviceError when the arrays are on different devices."""
    if a.device is not b.device and a.device != b.device:
        raise DeviceError(
            f"{op}: operands must be on one device, got {a.device} and {b.device}; "
            f"make both with the same device=, or move one with .to(device)"
        )


def copy_view(source: NDArray, device: BackendDevice, dtype: DType) -> View:
    """Return a copy of the array on ``device``, row-major, in ``dtype``."""
    if source.device == device:
        out = kernels.empty(device.backend, source.shape, dtype)
        device.backend.copy(source.view, out)
        return out
    host = source.device.backend.export(source.view)
    return upload(source.numpy() if host is None else host, device, dtype)


def along(x: NDArray, axis: int, index: Any) -> NDArray:
    """Return ``x`` with an index on one (normalised) axis."""
    return x[(slice(None),) * axis + (index,)]


def only_axis(op: str, x: NDArray, axis: int | None) -> int:
    """Return the axis in [0, ndim), which may be None for a 1-D array only; else ShapeError."""
    if axis is None and as_array(op, x).ndim != 1:
        raise ShapeError(f"{op}: axis may be omitted only for 1-D arrays, got shape {x.shape}")
    return shapes.normalize_axis(op, 0 if axis is None else axis, as_array(op, x).ndim)


def fit_view(value: NDArray, shape: Shape, reshaped: bool = True) -> NDArray:
    """Return ``value`` broadcast to ``shape``, else ``reshaped`` to it if the sizes agree."""
    if value.shape == shape:
        return value
    lead = len(shape) - len(value.shape)
    if lead >= 0 and all(n in (1, m) for n, m in zip(value.shape, shape[lead:], strict=True)):
        return value.broadcast_to(shape)
    if reshaped and value.size == shapes.product(shape):
        return value.reshape(shape)
    raise ShapeError(
        f"setitem: the value must broadcast to the target{' or have its size' * reshaped}, got "
        f"{value.shape} for {shape}; slice or reshape the value"
    )


def prepare_write(array: NDArray) -> None:
    """Record a write; ShapeError for a view in which several elements share a memory location."""
    if kernels.has_repeats(array.view):
        raise ShapeError(
            f"setitem: a broadcast view cannot be written to, got shape {array.shape} with "
            f"strides {array.strides}; write to compact()"
        )
    note_write(array.view.handle)


# ---- indexing with arrays and masks ----------------------------------------------------------


class _Rows:
    """The elements that an index with arrays selects, as rows of one flat leading axis.

    Reading calls ``gather`` and writing ``scatter``, between two permutations of the axes.
    """

    def __init__(self, array: NDArray, items: tuple[Any, ...]) -> None:
        self.array = array
        plan = indexing.index_plan(array.shape, items)
        sliced = array[plan.items]
        self.moved = sliced.permute(plan.axes(sliced.ndim))
        leading = len(plan.indexed)
        self.rest = self.moved.shape[leading:]
        self.flat_shape = (shapes.product(self.moved.shape[:leading]), *self.rest)
        positions = indexing.flat_positions(plan.arrays, self.moved.shape[:leading])
        self.shape = positions.shape + self.rest
        self.order = plan.order(positions.ndim, len(self.rest))
        flat = upload(positions.reshape(-1), array.device, int64, source=items)
        self.index = wrap(flat, array.device)

    def take(self) -> NDArray:
        """Return a copy of the selected elements."""
        taken: NDArray = gather(self.moved.reshape(self.flat_shape), self.index)
        return taken.reshape(self.shape).permute(self.order)

    def put(self, value: NDArray | bool | int | float) -> None:
        """Write to the selected elements; if one is selected several times, the last write wins."""
        rows = self._rows(value)
        moved = self.moved
        strides = shapes.view_strides_for_reshape(moved.shape, moved.strides, self.flat_shape)
        if strides is not None:
            scatter(moved.window(self.flat_shape, strides), self.index, rows)
            return
        dense = moved.reshape(self.flat_shape)
        scatter(dense, self.index, rows)
        moved.assign(dense.reshape(moved.shape))

    def _rows(self, value: NDArray | bool | int | float) -> NDArray:
        """Return the value as one row for each index, in the array's dtype."""
        array, order = self.array, self.order
        if not isinstance(value, NDArray):
            number = value
            value = NDArray.make((), device=array.device, dtype=array.dtype)
            value.assign(number, new=True)
        elif may_share_memory(value, array):
            value = value.copy()
        # NumPy also drops leading axes of size 1
        while value.ndim > len(order) and value.shape[0] == 1:
            value = value.reshape(value.shape[1:])
        placed = fit_view(value, tuple(self.shape[axis] for axis in order), reshaped=False)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        if placed.dtype != array.dtype:
            view = kernels.cast(array.device.backend, placed.view, array.dtype)
            placed = wrap(view, array.device)
        rows = placed.permute(inverse)
        return rows.reshape((self.index.size, *self.rest))


def _fill_by_mask(array: NDArray, items: tuple[Any, ...], value: Any) -> bool:
    """Write a scalar through a mask with the kernel ``where``; return False for other indices."""
    if len(items) != 1 or isinstance(value, NDArray) or indexing.as_mask(items[0]) is None:
        return False
    mask = items[0] if isinstance(items[0], NDArray) else NDArray(items[0], device=array.device)
    if mask.device != array.device or mask.shape != array.shape[: mask.ndim]:
        return False
    if may_share_memory(mask, array):
        mask = mask.copy()  # a[a.T] = ...: the kernel would read what it has written
    wide = mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)).broadcast_to(array.shape)
    kernels.fill_where(array.device.backend, wide.view, value, array.view)
    return True
