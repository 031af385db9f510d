"""Ops that rearrange elements: reshape, broadcast_to, permute, flip, stack, split, dilate.

Indexing is in ``indexing``; the tuples that ``split`` returns are in ``tuples``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorTuple, TensorTupleOp
from ..errors import ShapeError
from ..shapes import (
    Shape,
    as_int_tuple,
    as_shape,
    broadcast_shapes,
    distinct_axes,
    normalize_axes,
    normalize_axis,
    product,
    resolve_reshape,
    shape_of,
)
from .broadcasting import tensors_of, unbroadcast
from .registry import Array, Axes, LinearOp, attach, op


class BroadcastTo(LinearOp):
    """Repetition along new axes and axes of size 1: ``broadcast_to``."""

    def __init__(self, shape: int | Sequence[int]) -> None:
        self.shape = as_shape("broadcast_to", shape)

    def compute(self, a: Array) -> Array:
        shape = tuple(a.shape)
        if shape != self.shape and broadcast_shapes("broadcast_to", shape, self.shape) != (
            self.shape
        ):
            raise ShapeError(
                f"broadcast_to: every axis must be equal or of size 1 from the right, got shape "
                f"{shape} for target {self.shape}; reshape the tensor first"
            )
        return xp.broadcast_to(a, self.shape)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return unbroadcast(out_grad, node.inputs[0])


@op(BroadcastTo, methods=["broadcast_to", "expand"])
def broadcast_to(a: Tensor, shape: int | Sequence[int], *more: int) -> Tensor:
    """Return ``a`` repeated to ``shape`` by NumPy's broadcasting rules; a view.

    A size of -1 stands for the size of ``a`` on that axis, counted from the right.
    """
    if type(shape) is tuple and not more and -1 not in shape:  # the common case, without checks
        return BroadcastTo(shape)(a)
    sizes = as_int_tuple("broadcast_to", "shape", (shape, *more) if more else shape)
    if -1 in sizes:
        own = shape_of("broadcast_to", a)
        kept = (*[-1] * (len(sizes) - len(own)), *own[max(len(own) - len(sizes), 0) :])
        sizes = tuple(k if size == -1 else size for size, k in zip(sizes, kept, strict=True))
    return BroadcastTo(sizes)(a)


class Reshape(LinearOp):
    """The same elements, in row-major order, with another shape: ``reshape``."""

    def __init__(self, shape: int | Sequence[int]) -> None:
        self.shape = shape

    def compute(self, a: Array) -> Array:
        return xp.reshape(a, resolve_reshape("reshape", tuple(a.shape), self.shape))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return reshape(out_grad, node.inputs[0].shape)


@op(Reshape, methods=["reshape"])
def reshape(a: Tensor, shape: int | Sequence[int], *more: int) -> Tensor:
    """Return ``a`` with a new shape, in which one size may be -1; a view if strides allow it."""
    return Reshape((shape, *more) if isinstance(shape, int) else shape)(a)


@op(Reshape, methods=["expand_dims", "unsqueeze"])
def expand_dims(a: Tensor, axis: int = 0) -> Tensor:
    """Return ``a`` with a new axis of size 1 at ``axis``."""
    shape = list(shape_of("expand_dims", a))
    shape.insert(normalize_axis("expand_dims", axis, len(shape) + 1), 1)
    return Reshape(tuple(shape))(a)


@op(Reshape, methods=["flatten"])
def flatten(a: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Return ``a`` with axes ``start`` to ``end`` (inclusive) merged; a 0-d tensor becomes 1-d."""
    shape = shape_of("flatten", a) or (1,)
    first = normalize_axis("flatten", start, len(shape))
    last = normalize_axis("flatten", end, len(shape))
    if last < first:
        raise ShapeError(f"flatten: start must not be after end, got {start} and {end}")
    return Reshape((*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]))(a)


@op(Reshape, methods=["squeeze"])
def squeeze(a: Tensor, axes: Axes = None) -> Tensor:
    """Return ``a`` without its axes of size 1, or without those of the given ``axes``.

    Axes of other sizes are kept, as in PyTorch; NumPy and ``ndarray.squeeze`` raise an error.
    """
    shape = shape_of("squeeze", a)
    chosen = normalize_axes("squeeze", axes, len(shape))
    kept = (size for axis, size in enumerate(shape) if size != 1 or axis not in chosen)
    return Reshape(tuple(kept))(a)


class Permute(LinearOp):
    """Permutation of all axes."""

    def __init__(self, axes: Sequence[int]) -> None:
        self.axes = as_int_tuple("permute", "axes", axes)

    def compute(self, a: Array) -> Array:
        return xp.permute_dims(a, _permutation(self.axes, len(a.shape)))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [permute-grad]
        axes = _permutation(self.axes, len(out_grad.shape))
        return permute(out_grad, sorted(range(len(axes)), key=axes.__getitem__))
        ### END YOUR SOLUTION


def _permutation(axes: Shape, ndim: int) -> Shape:
    axes = distinct_axes("permute", axes, ndim)
    if len(axes) != ndim:
        raise ShapeError(
            f"permute: every axis must be named once, got {axes} for {ndim} axes; list all of them"
        )
    return axes


@op(Permute, methods=["permute"])
def permute(a: Tensor, axes: int | Sequence[int], *more: int) -> Tensor:
    """Return a view of ``a`` whose axis i is axis ``axes[i]`` of ``a``."""
    return Permute((axes, *more) if isinstance(axes, int) else axes)(a)


class Transpose(LinearOp):
    """Two axes swapped: ``transpose``."""

    def __init__(self, axes: Sequence[int] | None = None) -> None:
        self.axes = axes

    def compute(self, a: Array) -> Array:
        axes = (-2, -1) if self.axes is None else as_int_tuple("transpose", "axes", self.axes)
        if len(axes) != 2:
            raise ShapeError(
                f"transpose: exactly two axes must be given, got {self.axes}; use permute for more"
            )
        return xp.permute_dims(a, _swapped(axes, len(a.shape)))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return transpose(out_grad, self.axes)


@lru_cache(1024)
def _swapped(axes: Shape, ndim: int) -> Shape:
    """Return the order of ``ndim`` axes in which two of them are exchanged."""
    first, second = (normalize_axis("transpose", axis, ndim or 1) for axis in axes)
    order = list(range(ndim))
    if ndim:
        order[first], order[second] = second, first
    return tuple(order)


@op(Transpose, methods=["transpose"])
def transpose(a: Tensor, axes: int | Sequence[int] | None = None, *more: int) -> Tensor:
    """Return a view of ``a`` with the two ``axes`` swapped (None: the last two).

    ``a.mT`` swaps the last two axes; ``a.T`` and ``a.t()`` transpose a matrix only.
    """
    return Transpose((axes, *more) if isinstance(axes, int) else axes)(a)


def _matrix_transpose(a: Tensor) -> Tensor:
    """The transpose of a matrix. ShapeError unless there are two axes, as in the array API."""
    if len(a.shape) != 2:
        raise ShapeError(
            f"T: the tensor must have 2 axes, got shape {a.shape}; use mT to swap the last two, or "
            "permute"
        )
    return transpose(a)


def _stacked_transpose(a: Tensor) -> Tensor:
    """The tensor with its last two axes swapped. ShapeError if there are fewer."""
    if len(a.shape) < 2:
        raise ShapeError(f"mT: the tensor must have at least 2 axes, got shape {a.shape}")
    return transpose(a)


def _t(a: Tensor) -> Tensor:
    """Return the transpose of a matrix; a vector or a 0-d tensor is returned as is."""
    return a if len(a.shape) < 2 else _matrix_transpose(a)


attach("T", property(_matrix_transpose))
attach("mT", property(_stacked_transpose))
attach("t", _t)


class Flip(LinearOp):
    """Reversed order along axes: ``flip``."""

    def __init__(self, axes: Axes = None) -> None:
        self.axes = axes

    def compute(self, a: Array) -> Array:
        return xp.flip(a, axis=normalize_axes("flip", self.axes, len(a.shape)))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return flip(out_grad, self.axes)


@op(Flip, methods=["flip"])
def flip(a: Tensor, axes: Axes = None) -> Tensor:
    """Return ``a`` with the order along ``axes`` (None: all) reversed."""
    return Flip(axes)(a)


def _spread(axes: Axes, dilation: int, ndim: int) -> tuple[slice, ...]:
    """Return the index of the original elements in a dilated array.

    Axes beyond ndim are ignored.
    """
    items = as_int_tuple("dilate", "axes", () if axes is None else axes)
    chosen = {axis + ndim if axis < 0 else axis for axis in items}
    return tuple(slice(None, None, dilation + 1 if i in chosen else 1) for i in range(ndim))


def _check_dilation(name: str, dilation: int) -> None:
    if as_int_tuple(name, "dilation", (dilation,))[0] < 0:
        raise ShapeError(
            f"{name}: dilation must be at least 0, got {dilation}; 0 leaves the tensor unchanged"
        )


class Dilate(LinearOp):
    """Zeros inserted after every element along axes: ``dilate``."""

    def __init__(self, axes: int | Sequence[int], dilation: int) -> None:
        _check_dilation("dilate", dilation)
        self.axes, self.dilation = axes, dilation

    def compute(self, a: Array) -> Array:
        ### BEGIN YOUR SOLUTION [dilate]
        index = _spread(self.axes, self.dilation, len(a.shape))
        shape = tuple(size * part.step for size, part in zip(a.shape, index, strict=True))
        out = xp.zeros(shape, dtype=a.dtype, device=a.device)
        out[index] = a
        return out
        ### END YOUR SOLUTION

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return undilate(out_grad, self.axes, self.dilation)


@op(Dilate)
def dilate(a: Tensor, axes: int | Sequence[int], dilation: int) -> Tensor:
    """Return ``a`` with ``dilation`` zeros after every element along the axes.

    A size n becomes n * (dilation + 1). Axes that the tensor does not have are ignored.
    """
    return Dilate(axes, dilation)(a)


class UnDilate(LinearOp):
    """Every (dilation + 1)-th element along axes: ``undilate``."""

    def __init__(self, axes: int | Sequence[int], dilation: int) -> None:
        _check_dilation("undilate", dilation)
        self.axes, self.dilation = axes, dilation

    def compute(self, a: Array) -> Array:
        index = _spread(self.axes, self.dilation, len(a.shape))
        for size, part in zip(a.shape, index, strict=True):
            if size % part.step:
                raise ShapeError(
                    f"undilate: the sizes along the axes must be multiples of {part.step}, got "
                    f"shape {tuple(a.shape)}; use the dilation that ``dilate`` was given"
                )
        return a[index]

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return dilate(out_grad, self.axes, self.dilation)


@op(UnDilate)
def undilate(a: Tensor, axes: int | Sequence[int], dilation: int) -> Tensor:
    """Return ``a`` without the ``dilation`` elements after each kept one.

    The inverse of ``dilate``. ShapeError if a size is not a multiple of dilation + 1.
    """
    return UnDilate(axes, dilation)(a)


class Stack(LinearOp):
    """Tensors of one shape joined along a new axis: ``stack``."""

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def compute(self, *arrays: Array) -> Array:
        if len(arrays) == 1 and isinstance(arrays[0], tuple):  # called on a TensorTuple
            arrays = arrays[0]
        shapes = {tuple(a.shape) for a in arrays}
        if len(shapes) != 1:
            raise ShapeError(
                f"stack: there must be at least one tensor and all must have the same shape, got "
                f"shapes {sorted(shapes)}; reshape them"
            )
        axis = normalize_axis("stack", self.axis, len(arrays[0].shape) + 1)
        return xp.stack(list(arrays), axis=axis)

    def gradient(self, out_grad: Tensor, node: Tensor) -> TensorTuple | tuple[Tensor, ...]:
        ### BEGIN YOUR SOLUTION [stack-grad]
        parts = split(out_grad, self.axis)
        return parts if isinstance(node.inputs[0], TensorTuple) else tuple(parts)
        ### END YOUR SOLUTION


@op(Stack)
def stack(args: Sequence[Tensor] | TensorTuple, axis: int = 0) -> Tensor:
    """Return tensors of one shape joined along a new axis."""
    return Stack(axis)(*tensors_of("stack", args))


class Split(TensorTupleOp):
    """The slices along an axis, without that axis: ``split``."""

    reads = ()

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def compute(self, a: Array) -> tuple[Array, ...]:
        ### BEGIN YOUR SOLUTION [stack-grad]
        axis = normalize_axis("split", self.axis, len(a.shape))
        before = (slice(None),) * axis
        return tuple(a[before + (i,)] for i in range(a.shape[axis]))
        ### END YOUR SOLUTION

    def gradient(self, out_grad: TensorTuple, node: Tensor) -> Tensor:
        return stack(tuple(out_grad), self.axis)


@op(Split, methods=["unbind"])
def split(a: Tensor, axis: int = 0) -> TensorTuple:
    """Return the slices of ``a`` along ``axis``, without that axis, as a TensorTuple.

    The inverse of ``stack``. The method ``a.split``, as in PyTorch, is ``split_with_sizes``.
    """
    return Split(axis)(a)
