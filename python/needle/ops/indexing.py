"""Indexing and concatenation: getitem, scatter_add, embedding, concatenate.

The gradient of indexing adds each element to the position it came from, and vice versa.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from .. import accelerated
from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy, is_array, to_numpy
from ..autograd import Tensor, as_operand
from ..dtypes import unmasked
from ..errors import DTypeError, IndexingError, ShapeError
from ..host_steps import host_step
from ..shapes import Shape, as_int_tuple, as_shape, normalize_axis, product, shape_of
from .broadcasting import tensors_of
from .registry import Array, Host, LinearOp, op
from .selection import where


def _plain(index: Any) -> Any:
    """Return an index entry: the array of a Tensor, and a copy of any array or list.

    The copy is needed because the gradient uses the index later.
    """
    if isinstance(index, Tensor):
        index = index.realize_cached_data()
    if getattr(index, "ndim", 0):
        index = index.copy()
    elements = np.asarray(index) if isinstance(index, list) and index else index
    if hasattr(elements, "dtype") and elements.dtype.kind not in "iub":
        raise DTypeError(
            f"getitem: an index array must be integer or bool, got {elements.dtype}; cast it"
        )
    return deepcopy(index) if isinstance(index, list) else index


def _index_of(index: Any) -> tuple[Any, ...]:
    entries = index if isinstance(index, tuple) else (index,)
    return tuple(_plain(entry) for entry in entries)


def _is_view(index: tuple[Any, ...]) -> bool:
    """Return True if the index has no arrays, so that no element is selected twice."""
    return not any(
        isinstance(entry, (list, bool, np.bool_))
        or (hasattr(entry, "dtype") and getattr(entry, "ndim", 0))
        for entry in index
    )


class GetItem(LinearOp):
    """Indexing a[index]: ``getitem``."""

    def __init__(self, index: Any) -> None:
        self.index = _index_of(index)

    def compute(self, a: Array) -> Array:
        return a[self.index]

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return ScatterAdd(self.index, node.inputs[0].shape)(out_grad)


@op(GetItem, methods=["__getitem__"])
def getitem(a: Tensor, index: Any) -> Tensor:
    """Return ``a[index]`` for any NumPy index: ints, slices, Ellipsis, None, int or bool arrays.

    DTypeError for an index array of another dtype.
    """
    return GetItem(index)(a)


class ScatterAdd(LinearOp):
    """Zeros to which the input is added at an index: the adjoint of GetItem."""

    def __init__(self, index: Any, shape: Shape) -> None:
        self.index, self.shape = _index_of(index), tuple(shape)

    def compute(self, a: Array) -> Array:
        out = xp.zeros(self.shape, dtype=a.dtype, device=a.device)
        if _is_view(self.index):
            out[self.index] = a
        else:
            positions = _positions(self.shape, device_of(a), *self.index)
            flat = xp.reshape(out, (out.size,))
            accelerated.scatter_add(flat, positions, xp.reshape(a, (a.size,)))
            out = xp.reshape(flat, self.shape)
        return out

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return GetItem(self.index)(out_grad)


@host_step
def _positions(shape: Shape, device: Any, *index: Any) -> Array:
    """Return the flat positions that ``index`` selects, in order, in an array of ``shape``."""
    host = _selected(np.arange(product(shape)).reshape(shape), index)
    return from_numpy(host.reshape(-1), device, np.int64)


def _selected(host: Array, index: tuple[Any, ...]) -> Array:
    """Return ``host[index]``; IndexingError if NumPy raises an error."""
    try:
        return host[tuple(to_numpy(entry) if is_array(entry) else entry for entry in index)]
    except (IndexError, TypeError) as error:
        raise IndexingError(
            f"scatter_add: the index must be valid for shape {host.shape}, got an error: {error}; "
            "change the index or the shape"
        ) from None


@op(ScatterAdd)
def scatter_add(a: Tensor, index: Any, shape: Sequence[int]) -> Tensor:
    """Return zeros of ``shape`` with ``a`` added at ``index``; equal positions add up.

    ``a`` must have the shape that ``index`` selects from such an array, else ShapeError.
    IndexingError for an invalid index.
    """
    scatter = ScatterAdd(index, as_shape("scatter_add", shape))
    expected = _selected(np.broadcast_to(np.zeros((), bool), scatter.shape), scatter.index).shape
    if shape_of("scatter_add", a) != expected:
        raise ShapeError(
            f"scatter_add: the tensor must have the shape {expected} that the index selects from "
            f"shape {scatter.shape}, got {tuple(a.shape)}; reshape or broadcast it"
        )
    return scatter(a)


class Embedding(LinearOp):
    """Rows of a matrix: weight[ids]."""

    def __init__(self, ids: Array, padding_idx: int | None = None) -> None:
        self.ids, self.padding_idx = ids, padding_idx

    def compute(self, weight: Array) -> Array:
        flat = xp.reshape(self.ids, (self.ids.size,))
        rows = accelerated.gather(weight, flat)
        return xp.reshape(rows, (*self.ids.shape, *weight.shape[1:]))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        shape = node.inputs[0].shape
        if self.padding_idx is not None:
            kept = xp.reshape(self.ids != self.padding_idx, self.ids.shape + (1,) * len(shape[1:]))
            out_grad = where(Tensor.make_const(kept), out_grad, 0.0)
        return EmbeddingGrad(self.ids, shape)(out_grad)


class EmbeddingGrad(LinearOp):
    """Sum of gradient rows into the rows from which they came: the adjoint of Embedding."""

    def __init__(self, ids: Array, shape: Shape) -> None:
        self.ids, self.shape = ids, shape

    def compute(self, grad: Array) -> Array:
        out = xp.zeros(self.shape, dtype=grad.dtype, device=grad.device)
        flat = xp.reshape(self.ids, (self.ids.size,))
        accelerated.scatter_add(out, flat, xp.reshape(grad, (flat.size, *self.shape[1:])))
        return out

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return Embedding(self.ids)(out_grad)


@op(Embedding, EmbeddingGrad)
def embedding(weight: Tensor, ids: Any, padding_idx: int | None = None) -> Tensor:
    """Return the rows of ``weight`` (V, E) at integer ``ids`` of any shape: ids.shape + (E,).

    ``ids`` are row numbers in [0, V): a Tensor, an array or a list of integers. The row
    ``padding_idx`` gets no gradient; a negative one counts from the end. Raise ShapeError if an id
    is out of range or ``weight`` has fewer than 2 axes, DTypeError if ids are not integers,
    IndexingError if ``padding_idx`` is out of range.
    """
    shape = shape_of("embedding", weight)
    weight = as_operand(weight)
    if len(shape) < 2:
        raise ShapeError(
            f"embedding: weight must be (V, E) or (V, ...), got shape {shape}; reshape it"
        )
    row = None if padding_idx is None else padding_row("embedding", padding_idx, shape[0])
    rows = _row_ids(ids, shape[0], device_of(weight.realize_cached_data()))
    return Embedding(rows, row)(weight)


def padding_row(name: str, padding_idx: Any, rows: int) -> int:
    """Return ``padding_idx`` counted from the front; IndexingError if it is out of range."""
    (row,) = as_int_tuple(name, "padding_idx", (padding_idx,))
    if not -rows <= row < rows:
        raise IndexingError(
            f"{name}: padding_idx must be in [{-rows}, {rows}), got {row}; enlarge the table"
        )
    return row % rows


@host_step
def _row_ids(ids: Any, count: int, device: Any) -> Array:
    """Return the ids as an int64 array on ``device`` after checking their dtype and range."""
    host = integers("embedding", "ids", ids)
    check_range("embedding", "ids", host, count, "enlarge the table")
    return on_device(host, device)


def check_range(name: str, what: str, host: Host, count: int, remedy: str) -> None:
    """Raise IndexingError unless the integers are in [0, count)."""
    if host.size and (host.min() < 0 or host.max() >= count):
        wrong = host[(host < 0) | (host >= count)][0]
        raise IndexingError(f"{name}: {what} must be in [0, {count}), got {wrong}; {remedy}")


def integers(name: str, what: str, value: Any) -> Host:
    """Return a Tensor, array or list of integers as an int64 array on the host.

    DTypeError for other elements; an empty array may have any dtype.
    """
    data = value.realize_cached_data() if isinstance(value, Tensor) else value
    try:
        host = unmasked(name, to_numpy(data) if is_array(data) else data)
    except ValueError:  # the rows of a nested list differ in length
        raise ShapeError(f"{name}: {what} must be a regular array, got {value!r}; pad it") from None
    if host.dtype.kind not in "iu" and host.size:
        raise DTypeError(f"{name}: {what} must be integers, got {host.dtype}; cast to int64")
    return host.astype(np.int64)


@host_step
def on_device(host: Host, device: Any) -> Array:
    """Return integers on the host as an int64 array on ``device``."""
    return from_numpy(host, device, np.int64)


class Concatenate(LinearOp):
    """Tensors joined along an existing axis: ``concatenate``."""

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def compute(self, *arrays: Array) -> Array:
        if not arrays:
            raise ShapeError("concatenate: there must be at least one tensor, got none")
        axis = normalize_axis("concatenate", self.axis, len(arrays[0].shape))
        others = {(*a.shape[:axis], *a.shape[axis + 1 :]) for a in arrays}
        if len(others) != 1 or len({len(a.shape) for a in arrays}) != 1:
            shapes = [tuple(a.shape) for a in arrays]
            raise ShapeError(
                f"concatenate: shapes must agree except along axis {axis}, got {shapes}; reshape"
            )
        return xp.concat(list(arrays), axis=axis)

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, ...]:
        axis = normalize_axis("concatenate", self.axis, len(out_grad.shape))
        before: tuple[slice, ...] = (slice(None),) * axis
        parts, start = [], 0
        for source in node.inputs:
            stop = start + source.shape[axis]
            parts.append(GetItem((*before, slice(start, stop)))(out_grad))
            start = stop
        return tuple(parts)


@op(Concatenate)
def concatenate(args: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return the tensors joined along an existing axis; their other sizes must agree."""
    return Concatenate(axis)(*tensors_of("concatenate", args))
