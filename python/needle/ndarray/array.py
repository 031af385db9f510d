"""NDArray: a strided view on a backend's buffer. Construction, views, indexing, operators.

Views are arithmetic on strides and share the handle. Kernels are called through ``kernels``;
functions over arrays are in ``needle.backend_ndarray``, which methods reach by
``__array_namespace__``. The mixins hold Python's operators and the interchange protocols.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from .. import shapes
from ..backends.base import View
from ..config import MAX_DIMS
from ..dtypes import KIND, DType, as_dtype, bool_, default_float
from ..errors import DeviceError, DTypeError, ShapeError
from ..shapes import Shape, Strides
from . import indexing, kernels
from .device import BackendDevice
from .flat import FlatArray
from .interchange import HostArray
from .methods import ArrayMethods
from .transfer import as_device, host_array, upload

SCALARS = (bool, int, float)
_PLAIN_SCALARS = frozenset(SCALARS)
_new = object.__new__
_no_result = cast("NDArray", NotImplemented)


class NDArray(ArrayMethods):
    """An array on a device: a handle (the device's buffer), shape, strides, offset and dtype.

    ``NDArray(x)`` copies ``x`` (an NDArray, a NumPy array, anything ``numpy.array`` takes) as
    float32 unless ``dtype`` is given; bool stays bool, and an NDArray keeps its dtype and device.
    ``needle.backend_ndarray.asarray`` keeps every dtype. Strides and offset count elements.
    """

    __slots__ = ("__weakref__", "_device", "_view")

    def __init__(self, other: Any, device: Any = None, dtype: Any = None) -> None:
        if isinstance(other, NDArray):
            self._device = other._device if device is None else as_device(device)
            wanted = other.dtype if dtype is None else as_dtype(dtype, "array")
            self._view = copy_view(other, self._device, wanted)
            return
        host = host_array("array", other)
        if dtype is None:
            dtype = bool_ if host.dtype == bool_ else default_float
        self._device = as_device(device)
        self._view = upload(host, self._device, as_dtype(dtype, "array"))

    @staticmethod
    def make(
        shape: Any,
        strides: Strides | None = None,
        device: Any = None,
        handle: Any = None,
        offset: int = 0,
        dtype: Any = "float32",
    ) -> NDArray:
        """An array over ``handle``, or over a new buffer with undefined contents."""
        shape, dtype, place = (
            shapes.as_shape("empty", shape),
            as_dtype(dtype, "empty"),
            as_device(device),
        )
        strides = shapes.compact_strides(shape) if strides is None else tuple(strides)
        if handle is None:
            return wrap(kernels.empty(place.backend, shape, dtype, strides), place)
        return wrap(View(handle, shape, strides, offset, dtype), place)

    def _new(self, shape: Shape, dtype: DType, strides: Strides | None = None) -> NDArray:
        """``make`` on this device, of what is known to be a shape and a dtype."""
        return wrap(kernels.empty(self._device.backend, shape, dtype, strides), self._device)

    # ---- properties --------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """The size of each axis."""
        return self._view.shape

    @property
    def strides(self) -> Strides:
        """Elements (not bytes) to the next place along each axis; may be 0 or negative."""
        return self._view.strides

    @property
    def dtype(self) -> DType:
        """The element type, a NumPy dtype: equal to its name, such as "float32"."""
        return self._view.dtype

    @property
    def device(self) -> BackendDevice:
        """Where the array lives."""
        return self._device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._view.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return shapes.product(self._view.shape)

    @property
    def _handle(self) -> Any:
        return self._view.handle

    @property
    def _shape(self) -> Shape:
        return self._view.shape

    @property
    def _strides(self) -> Strides:
        return self._view.strides

    @property
    def _offset(self) -> int:
        return self._view.offset

    @property
    def T(self) -> NDArray:
        """The transpose of a matrix; ``mT`` for stacks of them, ``permute`` for other orders."""
        if self.ndim != 2:
            raise ShapeError(f"T: the array must have 2 axes, got shape {self.shape}; use mT")
        return self.permute((1, 0))

    @property
    def mT(self) -> NDArray:
        """The last two axes swapped."""
        if self.ndim < 2:
            raise ShapeError(f"mT: the array must have at least 2 axes, got shape {self.shape}")
        return self.permute((*range(self.ndim - 2), -1, -2))

    @property
    def flat(self) -> NDArray | FlatArray:
        """The elements in row-major order, writable through: a 1-D view where strides allow."""
        strides = shapes.view_strides_for_reshape(self.shape, self.strides, (self.size,))
        return FlatArray(self) if strides is None else self._window((self.size,), strides)

    # ---- views -------------------------------------------------------------------------------

    def _window(self, shape: Shape, strides: Strides, offset: int | None = None) -> NDArray:
        """The same memory under another shape."""
        view = self._view
        if len(shape) > MAX_DIMS:
            shapes.check_ndim("view", len(shape))
        offset = view.offset if offset is None else offset
        window = kernels.new_view(View, (view.handle, shape, strides, offset, view.dtype))
        return wrap(window, self._device)

    @staticmethod
    def compact_strides(shape: Any) -> Strides:
        """Row-major strides of a shape."""
        return shapes.compact_strides(tuple(shape))

    def is_compact(self) -> bool:
        """Whether the array is row-major and fills its whole buffer."""
        view = self._view
        return bool(shapes.compact_size(view.shape, view.strides) == view.handle.size)

    def compact(self) -> NDArray:
        """The array itself if it is compact, else a row-major copy."""
        if self.is_compact():
            return self
        return wrap(kernels.compact(self._device.backend, self._view), self._device)

    def reshape(self, *shape: Any, copy: bool | None = None) -> NDArray:
        """The elements in row-major order under a new shape (one -1 allowed).

        A view where strides allow it, else a copy; ``copy`` True forces one, False forbids it.
        """
        target = shape[0] if len(shape) == 1 else shape
        new = shapes.resolve_reshape("reshape", self.shape, target)
        strides = shapes.view_strides_for_reshape(self.shape, self.strides, new)
        if strides is not None and not copy:
            return self._window(new, strides)
        if copy is False:
            raise ShapeError(
                f"reshape: {self.shape} with strides {self.strides} to {new} needs a copy; "
                f"leave copy=False out"
            )
        dense = wrap(kernels.compact(self._device.backend, self._view), self._device)
        return dense._window(new, shapes.compact_strides(new))

    def permute(self, axes: Any) -> NDArray:
        """A view whose axis i is this array's axis ``axes[i]``."""
        view = self._view
        return self._window(*shapes.permuted(view.shape, view.strides, axes))

    def broadcast_to(self, shape: Any) -> NDArray:
        """A view in which axes of size 1, and new leading ones, repeat (stride 0)."""
        target = shapes.as_shape("broadcast_to", shape)
        view = self._view
        strides = shapes.broadcast_strides("broadcast_to", view.shape, view.strides, target)
        return self._window(target, strides)

    def as_strided(self, shape: Any, strides: Any, offset: int | None = None) -> NDArray:
        """The buffer under any shape and strides that stay inside it; ShapeError otherwise."""
        new = shapes.as_shape("as_strided", shape)
        steps = shapes.as_int_tuple("as_strided", "strides", strides)
        if len(new) != len(steps):
            raise ShapeError(f"as_strided: one stride an axis is needed, got {new} and {steps}")
        start = self._offset if offset is None else offset
        reach = [(n - 1) * s for n, s in zip(new, steps, strict=True)]
        low = start + sum(r for r in reach if r < 0)
        high = start + sum(r for r in reach if r > 0)
        if 0 not in new and not 0 <= low <= high < self._handle.size:
            raise ShapeError(
                f"as_strided: the view must stay inside the buffer of {self._handle.size} "
                f"elements, got shape {new} strides {steps} from {start}"
            )
        return self._window(new, steps, start)

    def flip(self, axes: Any = None) -> NDArray:
        """A compact copy with the elements along ``axes`` (None: all) in reverse order."""
        axes = shapes.normalize_axes("flip", axes, self.ndim)
        view = flip_view(self, axes)
        return wrap(kernels.compact(self._device.backend, view._view), self._device)

    def pad(self, axes: Any) -> NDArray:
        """A copy with ``axes[i] = (before, after)`` zeros added along axis i."""
        pairs = [shapes.pair("pad", "axes", item) for item in axes]
        if len(pairs) != self.ndim or any(n < 0 for item in pairs for n in item):
            raise ShapeError(
                f"pad: one (before, after) pair >= 0 an axis is needed, got {axes} for {self.shape}"
            )
        shape = tuple(n + left + right for n, (left, right) in zip(self.shape, pairs, strict=True))
        out = NDArray.make(shape, device=self._device, dtype=self.dtype)
        out.fill(0)
        inner = tuple(slice(left, left + n) for n, (left, _) in zip(self.shape, pairs, strict=True))
        self._device.backend.copy(self._view, out._basic(inner)._view)
        return out

    # ---- copies ------------------------------------------------------------------------------

    def astype(self, dtype: Any, *, copy: bool = True) -> NDArray:
        """The array in another dtype (C conversion); itself if it has it and ``copy`` is False."""
        wanted = as_dtype(dtype, "astype")
        if wanted == self.dtype and not copy:
            return self
        return wrap(kernels.cast(self._device.backend, self._view, wanted), self._device)

    def copy(self) -> NDArray:
        """A copy in the same axis order."""
        return self.astype(self.dtype)

    def to(self, device: Any) -> NDArray:
        """The array on a device (or a device name); itself if it is there."""
        target = as_device(device)
        return self if target == self._device else NDArray(self, device=target)

    def to_device(self, device: Any, /, *, stream: Any = None) -> NDArray:
        """``to`` under the array API standard's name; streams are not offered."""
        if stream is not None:
            raise DeviceError(f"to_device: streams are not offered, got {stream!r}; leave it out")
        return self.to(device)

    def fill(self, value: Any) -> None:
        """Every element becomes ``value``, converted to the array's dtype."""
        self.assign(value)

    # ---- indexing ----------------------------------------------------------------------------

    def process_slice(self, sl: slice, dim: int) -> slice:
        """The slice for axis ``dim`` with start, stop and step filled in."""
        return indexing.process_slice(sl, self._view.shape[dim])

    def _basic(self, items: tuple[Any, ...]) -> NDArray:
        view = self._view
        return self._window(
            *indexing.basic_index(view.shape, view.strides, view.offset, items, self.process_slice)
        )

    def __getitem__(self, key: Any) -> NDArray:
        """NumPy's indexing: ints, slices, newaxis and ellipsis give views, index arrays copies."""
        items = key if type(key) is tuple else (key,)
        if indexing.is_basic(items):
            return self._basic(items)
        taken: NDArray = self._namespace.advanced_indexing.get_items(self, items)
        return taken

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes through any index; ``value`` is cast, and broadcast or (same size) reshaped."""
        items = key if type(key) is tuple else (key,)
        if indexing.is_basic(items):
            self._basic(items).assign(value)
        else:
            self._namespace.advanced_indexing.set_items(self, items, value)

    def assign(self, value: Any) -> None:
        """self[...] = value; safe where both share memory."""
        self._check_writable()
        value = self._source(value)
        if not isinstance(value, NDArray):
            kernels.fill(self._device.backend, self._view, value)
            return
        source = fit_view(value, self.shape)._view
        if kernels.is_identical(source, self._view):
            return
        if overlap(value, self):
            source = kernels.cast(self._device.backend, source, self.dtype)
        self._device.backend.copy(source, self._view)

    def _source(self, value: Any) -> NDArray | bool | int | float:
        """What setitem may be given, as an NDArray on this device or a Python scalar."""
        if isinstance(value, NDArray):
            same_device("setitem", self, value)
            return value
        if type(value) in _PLAIN_SCALARS:
            return value  # type: ignore[no-any-return]
        host = host_array("setitem", value)
        if not host.shape:
            scalar: bool | int | float = host.item()
            return scalar
        return wrap(upload(host, self._device, self.dtype), self._device)

    def _check_writable(self) -> None:
        view = self._view
        if 0 in view.strides and any(
            not s and n > 1 for n, s in zip(view.shape, view.strides, strict=True)
        ):
            raise ShapeError(
                f"setitem: a broadcast view cannot be written to, got shape {self.shape} with "
                f"strides {self.strides}; write to compact()"
            )

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("len: a 0-d array has no length; use item() for its value")
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        if not self.shape:
            raise DTypeError("iter: a 0-d array cannot be iterated; use item() for its value")
        return (self._basic((row,)) for row in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool(self._binary("equal", value).any())

    # ---- operators ---------------------------------------------------------------------------

    def _unary(self, name: str) -> NDArray:
        return wrap(kernels.unary(self._device.backend, name, self._view), self._device)

    def _binary(self, name: str, other: Any, reflected: bool = False) -> NDArray:
        place = self._device
        if type(other) is NDArray or isinstance(other, NDArray):
            if other._device is not place:
                same_device(name, self, other)
            other = other._view
        elif type(other) not in _PLAIN_SCALARS:
            other = self._foreign(name, other)
            if other is NotImplemented:
                return _no_result
        first, second = (other, self._view) if reflected else (self._view, other)
        return wrap(kernels.binary(place.backend, name, first, second), place)

    def _foreign(self, name: str, other: Any) -> Any:
        """An operand that is neither NDArray nor Python scalar as View or scalar."""
        if isinstance(other, np.generic | np.ndarray | bool | int | float):
            operand = self._operand(other)
            if isinstance(operand, complex):
                raise DTypeError(f"{name}: complex numbers are not offered, got {operand}")
            return operand._view if isinstance(operand, NDArray) else operand
        if isinstance(other, list | tuple):
            raise DTypeError(
                f"{name}: operands must be arrays or scalars, got {type(other).__name__}; "
                f"use asarray on it"
            )
        return NotImplemented

    def _inplace(self, name: str, other: Any) -> NDArray:
        result = self._binary(name, other)
        if result is _no_result:
            return result
        if result.shape != self.shape or KIND[result.dtype] > KIND[self.dtype]:
            raise DTypeError(
                f"{name}: in place the result must fit the array, got {result.dtype} "
                f"{result.shape} for {self.dtype} {self.shape}; write a = a op b"
            )
        self.assign(result)
        return self

    def __matmul__(self, other: Any) -> NDArray:
        if not isinstance(other, NDArray):
            if not isinstance(other, np.ndarray):
                return _no_result
            other = self._operand(other)
        same_device("matmul", self, other)
        return wrap(kernels.matmul(self._device.backend, self._view, other._view), self._device)

    def __rmatmul__(self, other: Any) -> NDArray:
        if not isinstance(other, np.ndarray):
            return _no_result
        left: NDArray = self._operand(other)
        return left @ self

    def _reduce(self, name: str, axis: Any, keepdims: bool, out: Any = None) -> NDArray:
        if out is not None:
            raise DTypeError(f"{name}: out= is not offered for needle arrays; assign the result")
        axes = shapes.normalize_axes(name, axis, self.ndim)
        view = kernels.reduce(self._device.backend, name, self._view, axes, keepdims)
        return wrap(view, self._device)


BackendDevice.array_type = NDArray


# ---- what the class and the namespace files share --------------------------------------------


def wrap(view: View, place: BackendDevice) -> NDArray:
    """The NDArray of a view."""
    array = _new(NDArray)
    array._view = view
    array._device = place
    return array


def view_of(array: NDArray) -> View:
    """Return the view (handle, shape, strides, offset, dtype) of an array."""
    return array._view


def same_device(op: str, a: NDArray, b: NDArray) -> None:
    """DeviceError when the arrays sit on different devices."""
    if a._device != b._device:
        raise DeviceError(
            f"{op}: operands must be on one device, got {a._device} and {b._device}; "
            f"make both with the same device=, or move one with .to(device)"
        )


def copy_view(source: NDArray, place: BackendDevice, dtype: DType) -> View:
    """A copy of the array on ``place``, row-major, in ``dtype``."""
    if source._device == place:
        out = kernels.empty(place.backend, source.shape, dtype)
        place.backend.copy(source._view, out)
        return out
    host = source._device.backend.export(source._view)
    return upload(source.numpy() if host is None else host, place, dtype)


def flip_view(array: NDArray, axes: tuple[int, ...]) -> NDArray:
    """A view with the (normalised) axes reversed."""
    strides, offset = list(array.strides), array._offset
    for axis in axes:
        offset += strides[axis] * max(array.shape[axis] - 1, 0)
        strides[axis] = -strides[axis]
    return array._window(array.shape, tuple(strides), offset)


def fit_view(value: NDArray, shape: Shape) -> NDArray:
    """``value`` broadcast to ``shape``, else reshaped to it if the sizes agree."""
    if value.shape == shape:
        return value
    lead = len(shape) - len(value.shape)
    if lead >= 0 and all(n in (1, m) for n, m in zip(value.shape, shape[lead:], strict=True)):
        return value.broadcast_to(shape)
    if value.size == shapes.product(shape):
        return value.reshape(shape)
    raise ShapeError(
        f"setitem: the value must broadcast to the target or have its size, got {value.shape} "
        f"for {shape}; slice or reshape the value"
    )


def overlap(a: NDArray, b: NDArray) -> bool:
    """Whether the arrays may share memory (also under two handles, as after from_dlpack)."""
    if a._handle is b._handle:
        return True
    if _has_its_own_memory(a._handle) and _has_its_own_memory(b._handle):
        return False
    first = a._device.backend.export(a._view)
    second = None if first is None else b._device.backend.export(b._view)
    return second is not None and first is not None and bool(np.may_share_memory(first, second))


def _has_its_own_memory(handle: Any) -> bool:
    """Whether no other handle shows this memory, as far as the handle tells."""
    if isinstance(handle, np.ndarray):
        return bool(handle.flags.owndata)
    return getattr(handle, "borrowed", True) is False


def to_numpy(array: NDArray) -> HostArray:
    """The elements as a NumPy array (a copy)."""
    return array.numpy()


def from_numpy(array: Any, device: Any = None, dtype: Any = None) -> NDArray:
    """A copy of a NumPy array on ``device``: float32 unless ``dtype`` is given, bool stays bool."""
    return NDArray(array, device=device, dtype=dtype)


def device_of(array: NDArray) -> BackendDevice:
    """The device that holds ``array``."""
    return array.device


def is_array(x: Any) -> bool:
    """Whether ``x`` is an NDArray."""
    return isinstance(x, NDArray)
