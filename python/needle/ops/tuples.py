"""TensorTuples: several tensors as one node of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorTuple, TensorTupleOp
from ..autograd.changes import check_deferred
from ..autograd.discarding import Discarded
from ..autograd.refs import unheld
from ..errors import IndexingError, ShapeError
from ..shapes import as_int_tuple, normalize_axis, shape_of
from .broadcasting import Number, as_number
from .indexing import Concatenate
from .registry import Array, LinearOp, op


class MakeTensorTuple(TensorTupleOp):
    """The op that builds a TensorTuple from tensors: ``make_tuple``."""

    reads = ()

    def __call__(self, *args: Any) -> TensorTuple:
        made = super().__call__(*args)
        # Indexing the tuple returns the original tensor, without a new node.
        made.items = tuple(args)
        return made

    def compute(self, *arrays: Array) -> tuple[Array, ...]:
        return tuple(arrays)

    def gradient(self, out_grad: TensorTuple, node: TensorTuple) -> tuple[Tensor, ...]:
        return tuple(out_grad)


@op(MakeTensorTuple)
def make_tuple(*args: Tensor) -> TensorTuple:
    """Return the tensors as one TensorTuple."""
    return MakeTensorTuple()(*args)


class TupleGetItem(LinearOp):
    """The op that selects one item of a TensorTuple: ``tuple_get_item``."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, value: TensorTuple) -> Tensor:
        self.is_read = value.op is None or value.op.reads_item(self.index, value)
        return super().__call__(value)

    def compute(self, arrays: tuple[Array, ...]) -> Array:
        return arrays[self.index]

    def keeps_result(self, node: Any) -> bool:
        return self.is_read

    def discard(self, node: Tensor, place: Discarded) -> None:
        """Also replace the array in the tuple, if the tuple has no other user."""
        if unheld(node.inputs)[0]:
            whole: Any = node.inputs[0]
            items = list(whole.cached_data)
            items[self.index] = place
            saved: Any = node.saved
            whole.cached_data = whole.saved[1] = saved[0][0] = tuple(items)

    def recompute(self, node: Tensor) -> Array:
        whole: Any = node.inputs[0]
        data = whole.cached_data[self.index]
        if type(data) is Discarded:
            check_deferred(whole)
            return whole.op.recompute(whole)[self.index]
        return data

    def gradient(self, out_grad: Tensor, node: Tensor) -> TensorTuple:
        """Return a tuple with ``out_grad`` at the index and zeros elsewhere."""
        shapes = node.inputs[0].shape
        zeros = {
            shape: _Zeros(shape, out_grad) for shape in set(shapes)
        }  # items of the same shape share an array of zeros
        parts: list[Tensor] = [zeros[shape] for shape in shapes]
        parts[self.index] = out_grad
        return make_tuple(*parts)


class _Zeros(Tensor):
    """Zeros that occupy no memory; sums of tuples skip them."""

    def __init__(self, shape: tuple[int, ...], like: Tensor) -> None:
        data = like.realize_cached_data()
        zero = xp.zeros((), dtype=data.dtype, device=data.device)
        self.cached_data = xp.broadcast_to(zero, shape)


@op(TupleGetItem)
def tuple_get_item(value: TensorTuple, index: int) -> Tensor:
    """Return item ``index`` of ``value``; for a tuple just built, the original tensor.

    TypeError if ``value`` is not a TensorTuple.
    """
    if not isinstance(value, TensorTuple):
        raise TypeError(
            f"tuple_get_item: value must be a TensorTuple, got {type(value).__name__}; build one "
            "with make_tuple(*tensors), or index the value itself"
        )
    count, given = len(value), index
    if type(index) is not int or not 0 <= index < count:
        (index,) = as_int_tuple("TensorTuple", "an index", (index,))
        if not -count <= index < count:
            raise IndexingError(f"TensorTuple: index must be in [0, {count}), got {given}")
        index %= count
    if value.items is not None:
        return value.items[index]
    return TupleGetItem(index)(value)


class SplitWithSizes(TensorTupleOp):
    """Consecutive pieces along an axis: ``split_with_sizes``, ``chunk``."""

    reads = ()

    def __init__(self, sizes: Sequence[int], axis: int) -> None:
        self.axis, self.ends = axis, tuple(accumulate(sizes, initial=0))

    def index(self, piece: int) -> tuple[slice, ...]:
        """Return the index that selects piece number ``piece``."""
        return (slice(None),) * self.axis + (slice(*self.ends[piece : piece + 2]),)

    def compute(self, a: Array) -> tuple[Array, ...]:
        return tuple(a[self.index(piece)] for piece in range(len(self.ends) - 1))

    def gradient(self, out_grad: TensorTuple, node: TensorTuple) -> Tensor:
        return Concatenate(self.axis)(*out_grad)


@op(SplitWithSizes, methods=["split"])
def split_with_sizes(a: Tensor, sizes: int | Sequence[int], axis: int = 0) -> TensorTuple:
    """Return consecutive pieces of ``a`` along ``axis``, as views in a TensorTuple.

    ``sizes``: the size of each piece, or one int for all pieces; the last may then be smaller.
    ShapeError unless the sizes add up to that of the axis.
    """
    total = _divided("split", a, axis)
    given = as_int_tuple("split", "sizes", sizes)
    if isinstance(sizes, Iterable):
        if sum(given) != total or min(given, default=0) < 0:
            raise ShapeError(
                f"split: the sizes must add up to {total}, that of axis {axis} of shape {a.shape}, "
                f"got {sizes}; correct them, or pass one size for all pieces"
            )
        return SplitWithSizes(given, normalize_axis("split", axis, a.ndim))(a)
    if given[0] < (total > 0):
        raise ShapeError(f"split: a size must be at least 1, got {sizes} for shape {a.shape}")
    return _pieces(a, axis, total, given[0])


@op(SplitWithSizes, methods=["chunk"])
def chunk(a: Tensor, chunks: int, axis: int = 0) -> TensorTuple:
    """Return at most ``chunks`` pieces of ``a`` along ``axis``, as views in a TensorTuple.

    Their size is that of the axis divided by ``chunks`` and rounded up; the last may be smaller, as
    in PyTorch. ShapeError unless ``chunks`` is positive.
    """
    total = _divided("chunk", a, axis)
    (count,) = as_int_tuple("chunk", "chunks", (chunks,))
    if count < 1:
        raise ShapeError(f"chunk: chunks must be at least 1, got {chunks}")
    if not total:
        return SplitWithSizes([0] * count, normalize_axis("chunk", axis, a.ndim))(a)
    return _pieces(a, axis, total, -(-total // count))


def _divided(name: str, a: Tensor, axis: int) -> int:
    """Return the size of the axis; ShapeError for a 0-d tensor."""
    shape = shape_of(name, a)
    if not shape:
        raise ShapeError(f"{name}: a 0-d tensor cannot be divided, got shape (); reshape it")
    return shape[normalize_axis(name, axis, len(shape))]


def _pieces(a: Tensor, axis: int, total: int, size: int) -> TensorTuple:
    """Return pieces of equal ``size``, the last with the rest; an empty axis is one empty piece."""
    sizes = [min(size, total - start) for start in range(0, total, size)] if total else [0]
    return SplitWithSizes(sizes, normalize_axis("split", axis, a.ndim))(a)


class FusedAddScalars(TensorTupleOp):
    """The op (a + c0, a + c1), the course's example of an op with two results."""

    reads = ()

    def __init__(self, c0: Any, c1: Any) -> None:
        self.c0 = as_number("fused_add_scalars", c0)
        self.c1 = as_number("fused_add_scalars", c1)

    def compute(self, a: Array) -> tuple[Array, Array]:
        return a + self.c0, a + self.c1

    def gradient(self, out_grad: TensorTuple, node: TensorTuple) -> Tensor:
        return out_grad[0] + out_grad[1]


@op(FusedAddScalars)
def fused_add_scalars(x: Tensor, c0: Number, c1: Number) -> TensorTuple:
    """Return (x + c0, x + c1) as a TensorTuple."""
    return FusedAddScalars(c0, c1)(x)


def _sum(a: Tensor, b: Tensor) -> Tensor:
    if isinstance(a, _Zeros):
        return b
    return a if isinstance(b, _Zeros) else a + b


def _add_tuples(a: TensorTuple, b: TensorTuple) -> TensorTuple:
    """Return the TensorTuple of the sums of corresponding items."""
    if not isinstance(b, TensorTuple) or len(a) != len(b):
        raise ShapeError(f"TensorTuple: + needs two tuples of equal length, got {a!r} and {b!r}")
    return make_tuple(*[_sum(x, y) for x, y in zip(a, b, strict=True)])


TensorTuple.item_of = tuple_get_item
TensorTuple.sum_of = _add_tuples
