"""Views of an array, as a mixin: other shapes, axis orders and parts of the same memory.

Everything here is arithmetic on shapes and strides (``needle/shapes.py``); a kernel runs only if
``reshape`` needs a copy. ``methods`` and ``array`` build NDArray on this class.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray as NumpyArray

from .. import shapes
from ..backends.base import View
from ..dtypes import DType
from ..errors import IndexingError, ShapeError
from ..shapes import Shape, Strides
from .operators import ArrayOperators

Array = TypeVar("Array", bound="ArrayViews")


class ArrayViews(ArrayOperators):
    """A mixin of properties and views; the array adds ``view``, ``window`` and ``compact_copy``."""

    __slots__ = ()

    view: View
    """The backend's side of the array: handle, shape, strides, offset and dtype."""

    def window(self: Array, shape: Shape, strides: Strides, offset: int | None = None) -> Array:
        """Return a view with another shape, without checking that it stays inside the buffer."""
        raise NotImplementedError

    def compact_copy(self: Array) -> Array:
        """Return a row-major copy."""
        raise NotImplementedError

    # ---- properties --------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """The size of each axis."""
        return self.view.shape

    @property
    def strides(self) -> Strides:
        """The distance between neighbours along each axis, in elements; may be 0 or negative."""
        return self.view.strides

    @property
    def dtype(self) -> DType:
        """The element type: a NumPy dtype, which compares equal to its name, such as "float32"."""
        return self.view.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.view.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return shapes.product(self.view.shape)

    _handle, _shape, _strides, _offset = (
        property(attrgetter(f"view.{name}")) for name in ("handle", "shape", "strides", "offset")
    )
    """The course's names."""

    @property
    def T(self: Array) -> Array:
        """The transpose of a matrix; see ``mT`` for stacks of matrices, and ``permute``."""
        if self.ndim != 2:
            raise ShapeError(f"T: the array must have 2 axes, got shape {self.shape}; use mT")
        return self.permute((1, 0))

    @property
    def mT(self: Array) -> Array:
        """A view of the array with its last two axes swapped."""
        if self.ndim < 2:
            raise ShapeError(f"mT: the array must have at least 2 axes, got shape {self.shape}")
        return self.permute((*range(self.ndim - 2), -1, -2))

    @property
    def flat(self: Array) -> Array | FlatArray:
        """The elements in row-major order, writable: a 1-D view where strides allow it."""
        strides = shapes.view_strides_for_reshape(self.shape, self.strides, (self.size,))
        return FlatArray(self) if strides is None else self.window((self.size,), strides)

    # ---- views -------------------------------------------------------------------------------

    @staticmethod
    def compact_strides(shape: Any) -> Strides:
        """Return the row-major strides of a shape."""
        return shapes.compact_strides(tuple(shape))

    def is_compact(self) -> bool:
        """Return True if the array is row-major and fills its whole buffer."""
        view = self.view
        whole = shapes.product(view.shape) == view.handle.size
        return bool(whole and view.strides == shapes.compact_strides(view.shape))

    def compact(self: Array) -> Array:
        """Return the array itself if it is compact, else a row-major copy."""
        return self if self.is_compact() else self.compact_copy()

    def reshape(self: Array, *shape: Any, copy: bool | None = None) -> Array:
        """Return the elements in row-major order with a new shape, in which one size may be -1.

        The result is a view where strides allow it, else a copy. ``copy=True`` forces a copy,
        ``copy=False`` raises ShapeError where a view is impossible.
        """
        target = shape[0] if len(shape) == 1 else shape
        new = shapes.resolve_reshape("reshape", self.shape, target)
        strides = shapes.view_strides_for_reshape(self.shape, self.strides, new)
        if strides is not None and not copy:
            return self.window(new, strides)
        if copy is False:
            raise ShapeError(
                f"reshape: {self.shape} with strides {self.strides} to {new} needs a copy; "
                f"leave copy=False out"
            )
        return self.compact_copy().window(new, shapes.compact_strides(new))

    def permute(self: Array, axes: Any) -> Array:
        """Return a view whose axis i is this array's axis ``axes[i]``."""
        view = self.view
        return self.window(*shapes.permuted(view.shape, view.strides, axes))

    def broadcast_to(self: Array, shape: Any) -> Array:
        """Return a view in which axes of size 1, and new leading axes, repeat (stride 0)."""
        target = shapes.as_shape("broadcast_to", shape)
        view = self.view
        strides = shapes.broadcast_strides("broadcast_to", view.shape, view.strides, target)
        return self.window(target, strides)

    def as_strided(self: Array, shape: Any, strides: Any, offset: int | None = None) -> Array:
        """View the buffer with any shape and strides; ShapeError if the view leaves the buffer."""
        new = shapes.as_shape("as_strided", shape)
        steps = shapes.as_int_tuple("as_strided", "strides", strides)
        if len(new) != len(steps):
            raise ShapeError(
                f"as_strided: there must be one stride per axis, got {new} and {steps}"
            )
        start = self.view.offset if offset is None else offset
        reach = [(n - 1) * s for n, s in zip(new, steps, strict=True)]
        low = start + sum(r for r in reach if r < 0)
        high = start + sum(r for r in reach if r > 0)
        size = self.view.handle.size
        if 0 not in new and not 0 <= low <= high < size:
            raise ShapeError(
                f"as_strided: the view must stay inside the buffer of {size} "
                f"elements, got shape {new} strides {steps} from {start}"
            )
        return self.window(new, steps, start)

    def reversed_view(self: Array, axes: tuple[int, ...]) -> Array:
        """Return a view with the (normalised) axes in reverse order, by negative strides."""
        shape, strides, offset = self.view.shape, list(self.view.strides), self.view.offset
        for axis in axes:
            offset += strides[axis] * max(shape[axis] - 1, 0)
            strides[axis] = -strides[axis]
        return self.window(shape, tuple(strides), offset)

    def flip(self: Array, axes: Any = None) -> Array:
        """Return a compact copy with the elements along ``axes`` (None: all) in reverse order."""
        return self.reversed_view(shapes.normalize_axes("flip", axes, self.ndim)).compact_copy()


class FlatArray:
    """``a.flat`` of an array that cannot be viewed as 1-D.

    Indexing with an int reads or writes the array; any other index reads a copy.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return int(self._array.size)

    def _index(self, position: int) -> tuple[Any, ...]:
        size = len(self)
        if not -size <= position < size:
            raise IndexingError(f"flat: index {position} is out of range for size {size}")
        return tuple(int(i) for i in np.unravel_index(position % size, self._array.shape))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            return self._array[self._index(int(index))]
        return self._array.reshape((len(self),))[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, int | np.integer):
            self._array[self._index(int(index))] = value
            return
        dense = self._array.reshape((len(self),))
        dense[index] = value
        self._array.assign(dense.reshape(self._array.shape))

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def numpy(self) -> NumpyArray[Any]:
        """Return the elements as a 1-D NumPy array (a read-only copy)."""
        host: NumpyArray[Any] = self._array.numpy()
        return host.reshape(-1)
