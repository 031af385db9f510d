"""Reductions over axes: sum, mean, variance, maximum, minimum.

``axes`` is None (all), an int or a sequence of ints, which may be negative. Without ``keepdims``
the reduced axes are dropped, so a full reduction has shape (). ``prod`` is in ``cumulative``,
``std`` and ``norm`` are in ``norms``, ``logsumexp`` in ``loss``.
"""

from __future__ import annotations

from typing import Any

from ..array_namespace import BACKEND
from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from ..dtypes import is_floating
from ..errors import ShapeError
from ..shapes import normalize_axes, product, reduced_shape, shape_of
from .broadcasting import as_number
from .elementwise import astype
from .registry import Array, Axes, op
from .shape import broadcast_to, reshape


def expanded(v: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    """Return the result of reducing ``axes``, repeated to the ``shape`` before the reduction."""
    ### BEGIN YOUR SOLUTION [sum-grad]
    return broadcast_to(reshape(v, reduced_shape(shape, axes, True)), shape)
    ### END YOUR SOLUTION


class _Reduction(TensorOp):
    name = "reduction"

    def __init__(self, axes: Axes = None, keepdims: bool = False) -> None:
        self.axes, self.keepdims = axes, keepdims


class Summation(_Reduction):
    """Sum over axes: ``summation``."""

    reads = ()

    name = "summation"

    def compute(self, a: Array) -> Array:
        axes = None if self.axes is None else normalize_axes(self.name, self.axes, a.ndim)
        # Without an explicit dtype, NumPy and the array API widen narrow ones.
        return xp.sum(a, axis=axes, keepdims=self.keepdims, dtype=sum_dtype(a.dtype))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [sum-grad]
        shape = node.inputs[0].shape
        return expanded(out_grad, shape, normalize_axes(self.name, self.axes, len(shape)))
        ### END YOUR SOLUTION


def sum_dtype(dtype: Any) -> Any:
    """Return the dtype of a sum; None lets the namespace choose one for integers and bool."""
    return dtype if is_floating(dtype) else None


@op(Summation, methods=["sum"])
def summation(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the sum over ``axes``; 0 over an empty axis."""
    return Summation(axes, keepdims)(a)


class _Extremum(_Reduction):
    reads = (0, "result")

    def compute(self, a: Array) -> Array:
        axes = normalize_axes(self.name, self.axes, a.ndim)
        if any(a.shape[axis] == 0 for axis in axes):
            raise ShapeError(
                f"{self.name}: there must be at least one element to reduce, got shape "
                f"{tuple(a.shape)} over axes {axes}; skip empty inputs"
            )
        reduce = xp.max if self.name == "max" else xp.min
        return reduce(a, axis=axes, keepdims=self.keepdims)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, shared equally among the elements that equal the extremum."""
        ### BEGIN YOUR SOLUTION [max-grad]
        a = node.inputs[0]
        axes = normalize_axes(self.name, self.axes, len(a.shape))
        kept = reduced_shape(a.shape, axes, True)
        data = a.realize_cached_data()
        best = xp.astype(data == xp.reshape(node.realize_cached_data(), kept), out_grad.dtype)
        share = best / xp.sum(best, axis=axes, keepdims=True)
        return expanded(out_grad, a.shape, axes) * Tensor.make_const(share)
        ### END YOUR SOLUTION


class Max(_Extremum):
    """Maximum over axes: ``max``."""

    name = "max"


@op(Max, methods=["max"])
def max(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over ``axes``; equal maxima share the gradient.

    ShapeError over an empty axis.
    """
    return Max(axes, keepdims)(a)


class Min(_Extremum):
    """Minimum over axes: ``min``."""

    name = "min"


@op(Min, methods=["min"])
def min(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the minimum over ``axes``; equal minima share the gradient.

    ShapeError over an empty axis.
    """
    return Min(axes, keepdims)(a)


def _count(name: str, a: Tensor, axes: Axes) -> int:
    """Return the number of elements reduced to one; ShapeError if there are none."""
    shape = shape_of(name, a)
    count = product(shape[axis] for axis in normalize_axes(name, axes, len(shape)))
    if count == 0:
        raise ShapeError(
            f"{name}: there must be at least one element to reduce, got shape {shape} over axes "
            f"{axes}; skip empty inputs"
        )
    return count


def _widened(a: Any) -> Tensor:
    """Return int32 and int64, whose sums or squares overflow, in the device's widest float."""
    x: Tensor = as_operand(a)
    if is_floating(x.dtype) or x.dtype.itemsize < 4:
        return x
    return astype(x, "float64" if "float64" in x.device.dtypes else "float32")


def _narrowed(mean: Tensor, a: Any) -> Tensor:
    """Return a mean of ``a`` as float32 if a has integers; NumPy's arrays keep float64."""
    return mean if is_floating(a.dtype) or BACKEND == "np" else astype(mean, "float32")


@op(Summation, methods=["mean"])
def mean(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the arithmetic mean over ``axes``, float32 for integers.

    ShapeError over an empty axis.
    """
    count = _count("mean", a, axes)
    return _narrowed(summation(_widened(a), axes, keepdims) / count, a)


@op(Summation, methods=["var"])
def var(a: Tensor, axes: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """Return the variance sum((a - mean)**2) / (count - correction) over ``axes``.

    The default is the biased variance. ShapeError unless there are more than ``correction``
    elements.
    """
    return variance("var", a, axes, keepdims, correction)


def variance(name: str, a: Tensor, axes: Axes, keepdims: bool, correction: float) -> Tensor:
    """Return the variance, with errors that name the op ``name``."""
    count, correction = _count(name, a, axes), as_number(name, correction, "correction")
    if count <= correction:
        raise ShapeError(
            f"{name}: there must be more than correction={correction} elements, got {count} in "
            f"shape {a.shape} over axes {axes}; use a smaller correction"
        )
    wide = _widened(a)
    centred = wide - mean(wide, axes, keepdims=True)
    return _narrowed(summation(centred * centred, axes, keepdims) / (count - correction), a)
