"""Indexing with integer arrays and masks, by gather and scatter on one flat leading axis.

``NDArray.__getitem__`` and ``__setitem__`` come here when an index holds an array, a list or a
mask. NumPy's rules: index arrays (ints among them) broadcast together; their axes appear where
they stood if they are adjacent, else in front. A 0-d bool index is not offered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..accelerated import gather, scatter
from ..errors import DTypeError, IndexingError
from ..shapes import Shape, product, view_strides_for_reshape
from . import kernels
from .array import NDArray, fit_view, overlap
from .indexing import expand_ellipsis, is_basic_item

Index = NumpyArray[Any]


class Plan(NamedTuple):
    """An index taken apart: rows of a view whose first ``leading`` axes are the indexed ones."""

    moved: NDArray
    leading: int
    rows: Index
    """Positions in the flattened leading axes, int64, of the index arrays' common shape."""
    place: int
    """Where the index arrays' axes stand in the result."""

    @property
    def rest(self) -> Shape:
        """The shape of one row."""
        return self.moved.shape[self.leading :]

    @property
    def flat_shape(self) -> Shape:
        """``moved`` with the indexed axes as one."""
        return (product(self.moved.shape[: self.leading]), *self.rest)

    def order(self) -> tuple[int, ...]:
        """The permutation from (index axes, rest) to the result."""
        ndim = self.rows.ndim
        axes = list(range(ndim, ndim + len(self.rest)))
        return (*axes[: self.place], *range(ndim), *axes[self.place :])


def get_items(a: NDArray, items: tuple[Any, ...]) -> NDArray:
    """a[items], a copy; IndexingError for an index out of range or of a bad form."""
    plan = _plan(a, items)
    source = plan.moved.reshape(plan.flat_shape)
    taken: NDArray = gather(source, _upload(plan.rows, a))
    return taken.reshape(plan.rows.shape + plan.rest).permute(plan.order())


def set_items(a: NDArray, items: tuple[Any, ...], value: Any) -> None:
    """a[items] = value, in place; of equal positions the last stays."""
    a._check_writable()
    value = a._source(value)
    if _fill_by_mask(a, items, value):
        return
    plan = _plan(a, items)
    source = _rows_of(plan, a, value)
    strides = view_strides_for_reshape(plan.moved.shape, plan.moved.strides, plan.flat_shape)
    if strides is not None:
        scatter(plan.moved._window(plan.flat_shape, strides), _upload(plan.rows, a), source)
        return
    dense = plan.moved.reshape(plan.flat_shape)
    scatter(dense, _upload(plan.rows, a), source)
    plan.moved.assign(dense.reshape(plan.moved.shape))


def _rows_of(plan: Plan, a: NDArray, value: Any) -> NDArray:
    """The assigned value as one row an index, in the array's dtype."""
    if not isinstance(value, NDArray):
        scalar = NDArray.make((), device=a.device, dtype=a.dtype)
        scalar.fill(value)
        value = scalar
    elif overlap(value, a):
        value = value.copy()
    order = plan.order()
    shape = plan.rows.shape + plan.rest
    placed = fit_view(value, tuple(shape[axis] for axis in order))
    inverse = sorted(range(len(order)), key=order.__getitem__)
    rows = placed.astype(a.dtype, copy=False).permute(inverse)
    return rows.reshape((plan.rows.size, *plan.rest))


def _fill_by_mask(a: NDArray, items: tuple[Any, ...], value: Any) -> bool:
    """a[mask] = scalar as one ``where``; False if the index is anything else."""
    if len(items) != 1 or isinstance(value, NDArray) or _mask_of(items[0]) is None:
        return False
    mask = items[0] if isinstance(items[0], NDArray) else NDArray(items[0], device=a.device)
    if mask.device != a.device or mask.shape != a.shape[: mask.ndim]:
        return False
    if overlap(mask, a):
        mask = mask.copy()  # a[a.T] = ...: the kernel would read what it has written
    wide = mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)).broadcast_to(a.shape)
    kernels.fill_where(a.device.backend, wide._view, value, a._view)
    return True


def _upload(rows: Index, a: NDArray) -> NDArray:
    return NDArray(rows.reshape(-1), device=a.device, dtype="int64")


def _mask_of(item: Any) -> Index | None:
    """The item as a host mask if it is one."""
    if is_basic_item(item):
        return None
    array = np.asarray(item)
    return array if array.dtype == bool and array.ndim else None


def _plan(a: NDArray, items: tuple[Any, ...]) -> Plan:
    masks = [_mask_of(item) for item in items]
    used = sum(
        1 if mask is None else mask.ndim
        for item, mask in zip(items, masks, strict=True)
        if item is not None and item is not Ellipsis
    )
    basic: list[Any] = []
    arrays: list[Index] = []
    axes: list[int] = []
    place = axis = 0
    for item in expand_ellipsis(items, a.ndim, used):
        found = [] if item is None or isinstance(item, slice) else _index_arrays(a, item, axis)
        if found:
            if not arrays:
                place = len(basic)
            axes.extend(range(len(basic), len(basic) + len(found)))
            basic.extend([slice(None)] * len(found))
            arrays.extend(found)
            axis += len(found)
        else:
            basic.append(item)
            axis += item is not None
    view = a._basic(tuple(basic))
    moved = view.permute((*axes, *(i for i in range(view.ndim) if i not in axes)))
    rows = _flat_positions(arrays, moved.shape[: len(arrays)])
    return Plan(moved, len(arrays), rows, place if _adjacent(items) else 0)


def _adjacent(items: tuple[Any, ...]) -> bool:
    """Whether the index arrays stand side by side: newaxis, a slice or an ellipsis, even one that
    stands for no axis, parts them."""
    apart = [item is None or item is Ellipsis or isinstance(item, slice) for item in items]
    first = apart.index(False)
    return not any(apart[first : first + apart.count(False)])


def _index_arrays(a: NDArray, item: Any, axis: int) -> list[Index]:
    """One int64 array an axis that the item indexes, in [0, size): a mask gives several."""
    mask = _mask_of(item)
    if mask is not None:
        if mask.shape != a.shape[axis : axis + mask.ndim]:
            raise IndexingError(
                f"getitem: a mask must have the shape of the axes it selects from, got "
                f"{mask.shape} for {a.shape[axis : axis + mask.ndim]}"
            )
        return list(np.nonzero(mask))
    index = np.asarray(item)
    if index.size == 0 and isinstance(item, list | tuple):
        index = index.astype(np.int64)
    if index.dtype.kind not in "iu":
        raise DTypeError(
            f"getitem: an index must be an int, slice, newaxis, ellipsis, mask or array of ints, "
            f"got {type(item).__name__} of {index.dtype}; cast it to int64"
        )
    size = a.shape[axis]
    index = index.astype(np.int64)
    bad = (index < -size) | (index >= size)
    if bad.any():
        raise IndexingError(
            f"getitem: index {index[bad].flat[0]} is out of range for axis {axis} with size {size}"
        )
    return [np.where(index < 0, index + size, index)]


def _flat_positions(arrays: list[Index], sizes: Shape) -> Index:
    """The index arrays, broadcast together, as positions in the axes ``sizes`` made one."""
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
