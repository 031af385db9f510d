"""Elements taken from, or put at, positions along one axis: gather, scatter, index_select.

They are composed of ``Embedding``, which takes rows by number, and its adjoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy
from ..autograd import Tensor, as_operand
from ..errors import DTypeError, ShapeError
from ..host_steps import host_step
from ..shapes import (
    Shape,
    as_int_tuple,
    as_shape,
    compact_strides,
    normalize_axis,
    product,
    shape_of,
)
from .elementwise import astype
from .indexing import Embedding, EmbeddingGrad, GetItem, check_range, integers, on_device
from .registry import Array, Host, LinearOp, op
from .selection import where
from .shape import broadcast_to, permute, reshape


@host_step
def _flat_positions(name: str, index: Any, shape: Shape, axis: int) -> Host:
    """Return the row-major positions in ``shape`` to which an index along ``axis`` refers.

    The index must have as many axes as ``shape``, and may be longer only along ``axis``.
    """
    host = integers(name, "the index", index)
    fits = len(host.shape) == len(shape) and all(
        i == axis or size <= shape[i] for i, size in enumerate(host.shape)
    )
    if not fits and host.size:
        raise ShapeError(
            f"{name}: the index must have as many axes as the tensor, and may be longer only along "
            f"axis {axis}, got index shape {host.shape} for shape {shape}; broadcast it, "
            "or use index_select"
        )
    check_range(name, "the index", host, shape[axis], f"correct it, or axis {axis}")
    if not host.size:
        return np.zeros(host.shape, np.int64)
    grid: list[Host] = list(np.ogrid[tuple(slice(size) for size in host.shape)])
    grid[axis] = host
    strides = compact_strides(shape)
    return np.asarray(sum(part * stride for part, stride in zip(grid, strides, strict=True)))


@host_step
def _index_on_device(index: Any, device: Any) -> Array:
    return from_numpy(integers("gather", "the index", index), device, np.int64)


def _device(a: Tensor) -> Any:
    return device_of(a.realize_cached_data())


class Gather(LinearOp):
    """Elements at an index along an axis: ``gather``."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.places: Array = None

    def compute(self, a: Array, index: Array) -> Array:
        positions = _flat_positions("gather", index, tuple(a.shape), self.axis)
        self.places = on_device(positions, device_of(a))
        return Embedding(self.places).compute(xp.reshape(a, (-1,)))

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, None]:
        shape = node.inputs[0].shape
        added = EmbeddingGrad(self.places, (product(shape),))(out_grad)
        return reshape(added, shape), None


@op(Gather, Embedding, EmbeddingGrad, methods=["gather"])
def gather(a: Tensor, axis: int, index: Any) -> Tensor:
    """Return the elements of ``a`` at ``index`` along ``axis``, in the shape of ``index``.

    For 3 axes and axis 1, out[i, j, k] = a[i, index[i, j, k], k]. ``index``: a Tensor, array or
    list of integers in [0, size of the axis), with as many axes as ``a``; only along
    ``axis`` may it be longer than ``a``. IndexingError if an index is out of bounds, DTypeError
    unless all are integers.
    """
    shape = shape_of("gather", a)
    if not shape:
        flat = reshape(a, (1,))
        return reshape(
            gather(flat, axis, integers("gather", "the index", index).reshape(-1)), np.shape(index)
        )
    if not isinstance(index, Tensor):
        index = Tensor.make_const(_index_on_device(index, _device(a)))
    return Gather(normalize_axis("gather", axis, len(shape)))(a, index.detach())


@op(Embedding, EmbeddingGrad, methods=["scatter"])
def scatter(a: Tensor, axis: int, index: Any, src: Any, reduce: str | None = None) -> Tensor:
    """Return a copy of ``a`` with the elements of ``src`` at ``index`` along ``axis``.

    For 3 axes and axis 1, out[i, index[i, j, k], k] = src[i, j, k]. ``index`` as in ``gather``;
    ``src``: a number, or a tensor at least as long as the index along every axis. If several
    elements have the same position, the last is written, and it alone gets the gradient;
    ``reduce="add"`` adds all of them to the element of ``a``. DTypeError if the dtypes of src
    and a differ.
    """
    shape = shape_of("scatter", a)
    if not shape:
        src = reshape(_source(src, a), (1,))
        row = integers("scatter", "the index", index).reshape(-1)
        return reshape(scatter(reshape(a, (1,)), axis, row, src, reduce), ())
    axis = normalize_axis("scatter", axis, len(shape))
    if reduce not in (None, "add"):
        raise ValueError(f"scatter: reduce must be None or 'add', got {reduce!r}; choose one")
    positions = _flat_positions("scatter", index, shape, axis)
    values = reshape(_fitting(src, a, positions.shape), (-1,))
    device, count = _device(a), product(shape)
    if reduce == "add":
        rows = on_device(positions, device)
        return a + reshape(EmbeddingGrad(rows, (count,))(values), shape)
    rows = on_device(_without_overwritten(positions, count), device)
    placed = EmbeddingGrad(rows, (count + 1,))(values)
    placed = reshape(GetItem(slice(0, count))(placed), shape)
    return where(Tensor.make_const(_mask(positions, shape, device)), placed, a)


@op()
def confusion_matrix(predicted: Any, labels: Any, num_classes: int | None = None) -> Tensor:
    """Return the counts of predicted classes per true class, int64 (num_classes, num_classes).

    out[i, j] is the number of samples of class i for which j was predicted. ``predicted``,
    ``labels``: classes in [0, num_classes), in Tensors, arrays or lists of the same shape; for
    logits (N, C), pass ``argmax(1)``. ``num_classes``: by default one more than the highest class.
    ShapeError if the shapes differ, IndexingError for a class out of range, DTypeError unless they
    are integers.
    """
    device = device_of(predicted.realize_cached_data()) if isinstance(predicted, Tensor) else None
    return Tensor.make_const(_confusion(predicted, labels, num_classes, device))


@host_step
def _confusion(predicted: Any, labels: Any, num_classes: int | None, device: Any) -> Array:
    name = "confusion_matrix"
    columns, rows = (
        integers(name, w, v) for w, v in (("predicted", predicted), ("labels", labels))
    )
    if rows.shape != columns.shape:
        raise ShapeError(
            f"{name}: predicted and labels must have the same shape, got {columns.shape} and "
            f"{rows.shape}; for logits (N, C), pass argmax(1)"
        )
    given = np.concatenate([columns, rows], None)
    if num_classes is None:
        num_classes = int(given.max(initial=-1)) + 1
    (num_classes,) = as_int_tuple(name, "num_classes", (num_classes,))
    shape = as_shape(name, (num_classes, num_classes))
    check_range(name, "classes", given, num_classes, "correct them, or give a larger num_classes")
    places = (rows * num_classes + columns).reshape(-1)
    counts = np.bincount(places, minlength=num_classes**2)
    return from_numpy(counts.reshape(shape), device, np.int64)


def _fitting(src: Any, a: Tensor, shape: Shape) -> Tensor:
    """Return ``src`` cropped to the shape of the index; a number is repeated."""
    src = _source(src, a)
    if not src.shape:
        return broadcast_to(src, shape)
    if len(src.shape) != len(shape) or any(n < m for n, m in zip(src.shape, shape, strict=True)):
        raise ShapeError(
            f"scatter: src must have as many axes as the index, and none may be shorter, got shape "
            f"{src.shape} for index shape {shape}; broadcast it"
        )
    return src if src.shape == shape else GetItem(tuple(slice(size) for size in shape))(src)


def _source(src: Any, a: Tensor) -> Tensor:
    """Return ``src`` as a Tensor in the dtype of ``a``; only numbers and arrays are cast."""
    given = as_operand(src, a)
    if given.dtype == a.dtype:
        return given
    if given is src or not np.can_cast(given.dtype, a.dtype, "same_kind"):
        raise DTypeError(
            f"scatter: src must have the tensor's dtype {a.dtype}, got {given.dtype}; cast it with "
            f"astype({str(a.dtype)!r})"
        )
    return astype(given, a.dtype)


@host_step
def _without_overwritten(positions: Host, count: int) -> Host:
    """Return the flat positions, with those that occur again later replaced by ``count``."""
    flat = positions.reshape(-1)
    last = flat.size - 1 - np.unique(flat[::-1], return_index=True)[1]
    kept = np.full(flat.size, count, np.int64)
    kept[last] = flat[last]
    return kept


@host_step
def _mask(positions: Host, shape: Shape, device: Any) -> Array:
    mask = np.zeros(product(shape), bool)
    mask[positions.reshape(-1)] = True
    return from_numpy(mask.reshape(shape), device, np.bool_)


@op(Embedding, methods=["index_select"])
def index_select(a: Tensor, axis: int, index: Any) -> Tensor:
    """Return the slices of ``a`` at the integers ``index`` (n,) along ``axis``, in this order.

    IndexingError if one is outside [0, size of the axis).
    """
    shape = shape_of("index_select", a)
    if not shape:
        return reshape(index_select(reshape(a, (1,)), axis, index), ())
    axis = normalize_axis("index_select", axis, len(shape))
    rows = on_device(_row_numbers(index, shape[axis], axis), _device(a))
    if axis == 0:
        return Embedding(rows)(a)
    to_first = (axis, *(i for i in range(len(shape)) if i != axis))
    back = sorted(range(len(shape)), key=to_first.__getitem__)
    return permute(Embedding(rows)(permute(a, to_first)), back)


@host_step
def _row_numbers(index: Any, size: int, axis: int) -> Host:
    host = integers("index_select", "the index", index)
    if host.ndim > 1:
        raise ShapeError(
            f"index_select: the index must have one axis, got shape {host.shape}; use a[...]"
        )
    check_range("index_select", "the index", host, size, f"correct it, or axis {axis}")
    return host.reshape(-1)


@op(Embedding, methods=["masked_fill"])
def masked_fill(a: Tensor, mask: Any, value: Any) -> Tensor:
    """Return ``a`` with ``value``, a number or a 0-d tensor, where ``mask`` is true.

    The mask and ``a`` broadcast together.
    """
    mask = as_operand(mask, a)
    if np.shape(value):
        raise ShapeError(
            f"masked_fill: the value must be a number or 0-d, got shape {np.shape(value)}; use "
            "where"
        )
    return where(mask, value, a)
