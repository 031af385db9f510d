"""Indexing: arithmetic on shapes and strides, and on index arrays in host memory.

Basic items (ints, slices, newaxis, ellipsis) give a view of the same memory. Index arrays and masks
give an ``IndexPlan``, which follows NumPy's rules: index arrays, and ints among them, broadcast
together, and their axes replace the indexed axes if these are adjacent, otherwise come first. A 0-d
bool adds an axis of size 1 (True) or 0 (False). ``array`` calls this file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..dtypes import unmasked
from ..errors import DTypeError, IndexingError, ShapeError
from ..shapes import Shape, Strides

SIMPLE = frozenset({int, slice, type(None), type(Ellipsis)})

HostArray = NumpyArray[Any]


def is_basic(items: Sequence[Any]) -> bool:
    """Return True if no item is an index array, a list or a mask."""
    return SIMPLE.issuperset(map(type, items)) or all(map(is_basic_item, items))


def is_basic_item(item: Any) -> bool:
    """Return True for an int (of any integer type or a 0-d array), slice, None or ellipsis."""
    if type(item) in SIMPLE or isinstance(item, slice | np.integer):
        return True
    if isinstance(item, bool | np.bool_):
        return False
    return (
        getattr(item, "shape", None) == ()
        and hasattr(item, "__index__")
        and getattr(item, "dtype", None) is not None
        and item.dtype.kind in "iu"
    )


def expand_ellipsis(items: Sequence[Any], ndim: int, used: int) -> list[Any]:
    """Return the items with the ellipsis, or missing items at the end, replaced by full slices.

    ``used`` is the number of axes that the items without newaxis and ellipsis consume.
    """
    dots = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("getitem: an index can have one ellipsis (...), got more")
    if used > ndim:
        raise IndexingError(f"getitem: too many indices, got {used} for {ndim} dimensions")
    fill = [slice(None)] * (ndim - used)
    if not dots:
        return [*items, *fill]
    return [*items[: dots[0]], *fill, *items[dots[0] + 1 :]]


def process_slice(part: slice, size: int) -> slice:
    """Return the slice with start, stop and step filled in for an axis of ``size``.

    The stop is None if a negative step includes element 0, so that the result is a valid index.
    """
    try:
        start, stop, step = part.indices(size)
    except ValueError:
        raise ShapeError("getitem: a slice's step must not be 0, got 0; use 1") from None
    except TypeError:
        raise IndexingError(f"getitem: slice bounds must be ints, got {part}") from None
    return slice(start, None if stop < 0 else stop, step)


def basic_index(
    shape: Shape,
    strides: Strides,
    offset: int,
    items: Sequence[Any],
    slicer: Callable[[slice, int], slice],
) -> tuple[Shape, Strides, int]:
    """Return shape, strides and offset of the view that basic items select.

    ``slicer(part, axis)`` fills in the bounds of a slice.
    """
    ### BEGIN YOUR SOLUTION [slice-view]
    used = len(items)
    for item in items:
        if item is None or item is Ellipsis:
            used -= 1
    if used != len(shape) or used != len(items):
        items = expand_ellipsis(items, len(shape), used)
    new_shape: list[int] = []
    new_strides: list[int] = []
    axis = 0
    for item in items:
        if item is None:
            new_shape.append(1)
            new_strides.append(0)
            continue
        if isinstance(item, slice):
            part = slicer(item, axis)
            stop = -1 if part.stop is None else part.stop
            new_shape.append(len(range(part.start, stop, part.step)))
            new_strides.append(strides[axis] * part.step)
            offset += strides[axis] * part.start if new_shape[-1] else 0
        else:
            offset += strides[axis] * check_index(operator.index(item), axis, shape[axis])
        axis += 1
    return tuple(new_shape), tuple(new_strides), offset
    ### END YOUR SOLUTION


def check_index(index: int, axis: int, size: int) -> int:
    """Return ``index`` counted from the front; raise IndexingError if it is out of range."""
    if not -size <= index < size:
        raise IndexingError(
            f"getitem: index {index} is out of range for axis {axis} with size {size}"
        )
    return index + size if index < 0 else index


# ---- index arrays and masks ------------------------------------------------------------------


class IndexPlan(NamedTuple):
    """An index with arrays as four steps: slice, move the indexed axes first, gather, move back."""

    items: tuple[Any, ...]
    """The basic items, with a full slice for every axis that an index array selects from."""
    indexed: tuple[int, ...]
    """The axes of the sliced array that index arrays select from."""
    arrays: list[HostArray]
    """One int64 array for each of them, with values in [0, size)."""
    position: int
    """The position of the index arrays' axes in the result."""

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Return the permutation of the sliced array's axes that moves ``indexed`` first."""
        return (*self.indexed, *(axis for axis in range(ndim) if axis not in self.indexed))

    def order(self, rows_ndim: int, rest_ndim: int) -> tuple[int, ...]:
        """Return the permutation from (the index arrays' axes, the other axes) to the result."""
        axes = list(range(rows_ndim, rows_ndim + rest_ndim))
        return (*axes[: self.position], *range(rows_ndim), *axes[self.position :])


def index_plan(shape: Shape, items: Sequence[Any]) -> IndexPlan:
    """Return the plan for an index that holds arrays, lists or masks.

    Raises IndexingError for an index out of range or a mask of another shape, DTypeError for index
    arrays that are neither integer nor bool.
    """
    used = sum(_axes_used(item) for item in items)
    basic: list[Any] = []
    arrays: list[HostArray] = []
    indexed: list[int] = []
    position = axis = 0
    for item in expand_ellipsis(items, len(shape), used):
        found = [] if item is None or isinstance(item, slice) else _index_arrays(shape, item, axis)
        if found:
            if not arrays:
                position = len(basic)
            indexed.extend(range(len(basic), len(basic) + len(found)))
            taken = _axes_used(item)
            basic.extend([slice(None)] * taken or [None])
            arrays.extend(found)
            axis += taken
        else:
            basic.append(item)
            axis += item is not None
    return IndexPlan(tuple(basic), tuple(indexed), arrays, position if _adjacent(items) else 0)


def as_mask(item: Any) -> HostArray | None:
    """Return the item as a bool array in host memory, or None if it is not a mask."""
    if is_basic_item(item):
        return None
    array = unmasked("getitem", item)
    return array if array.dtype == bool else None


def _axes_used(item: Any) -> int:
    """Return the number of the array's axes that an item consumes."""
    if item is None or item is Ellipsis:
        return 0
    mask = as_mask(item)
    return 1 if mask is None else mask.ndim


def _adjacent(items: Sequence[Any]) -> bool:
    """Return True if no newaxis, slice or ellipsis, even an empty one, separates index arrays."""
    apart = [item is None or item is Ellipsis or isinstance(item, slice) for item in items]
    first = apart.index(False)
    return not any(apart[first : first + apart.count(False)])


def _index_arrays(shape: Shape, item: Any, axis: int) -> list[HostArray]:
    """Return an int64 array in [0, size) for each axis that the item indexes (a mask: several)."""
    mask = as_mask(item)
    if mask is not None:
        if mask.shape != shape[axis : axis + mask.ndim]:
            raise IndexingError(
                f"getitem: a mask must have the shape of the axes it selects from, got "
                f"{mask.shape} for {shape[axis : axis + mask.ndim]}"
            )
        return list(np.nonzero(mask if mask.ndim else mask[None]))
    index = np.asarray(item)
    if index.size == 0 and isinstance(item, list | tuple):
        index = index.astype(np.int64)
    if index.dtype.kind not in "iu":
        raise DTypeError(
            f"getitem: an index must be an int, slice, newaxis, ellipsis, mask or array of ints, "
            f"got {type(item).__name__} of {index.dtype}; cast it to int64"
        )
    size = shape[axis]
    index = index.astype(np.int64)
    bad = (index < -size) | (index >= size)
    if bad.any():
        raise IndexingError(
            f"getitem: index {index[bad].flat[0]} is out of range for axis {axis} with size {size}"
        )
    return [np.where(index < 0, index + size, index)]


def flat_positions(arrays: Sequence[HostArray], sizes: Shape) -> HostArray:
    """Return the index arrays, broadcast together, as positions in the flattened axes ``sizes``."""
    try:
        together = np.broadcast_arrays(*arrays)
    except ValueError:
        got = ", ".join(str(array.shape) for array in arrays)
        raise IndexingError(
            f"getitem: index arrays must broadcast together, got shapes {got}; reshape them"
        ) from None
    flat = together[0].astype(np.int64)
    for index, size in zip(together[1:], sizes[1:], strict=True):
        flat = flat * size + index
    return flat
