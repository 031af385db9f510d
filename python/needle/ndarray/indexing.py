"""Basic indexing: ints, slices, newaxis and ellipsis turned into shape, strides and offset.

Index arrays are only recognised here; ``backend_ndarray/advanced_indexing.py`` does them with
gather and scatter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import IndexingError, ShapeError
from ..shapes import Shape, Strides

SIMPLE = frozenset({int, slice, type(None), type(Ellipsis)})


def is_basic(items: Sequence[Any]) -> bool:
    """Whether no item is an index array, a list or a mask."""
    return SIMPLE.issuperset(map(type, items)) or all(map(is_basic_item, items))


def is_basic_item(item: Any) -> bool:
    """Whether one index item is an int (of any integer type, or 0-d), slice, None or ellipsis."""
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
    """The items with the ellipsis (or the missing end) written out as full slices.

    ``used`` is the number of axes that the items without newaxis and ellipsis consume.
    """
    dots = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("getitem: an index can have one ellipsis (...), got more")
    if used > ndim:
        raise IndexingError(f"getitem: too many indices, got {used} for {ndim} dimensions")
    fill = [slice(None)] * (ndim - used)
    if not dots:
        return [*items, *fill]
    return [*items[: dots[0]], *fill, *items[dots[0] + 1 :]]


def process_slice(part: slice, size: int) -> slice:
    """The slice with start, stop and step filled in for an axis of ``size``.

    stop is None where a negative step runs through element 0, so that the result is an index.
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
    """The window that basic items select; ``slicer(part, axis)`` fills in a slice's bounds."""
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
    """``index`` counted from the front; IndexingError when out of range."""
    if not -size <= index < size:
        raise IndexingError(
            f"getitem: index {index} is out of range for axis {axis} with size {size}"
        )
    return index + size if index < 0 else index
