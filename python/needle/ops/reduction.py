"""Reductions over axes: sum, mean, variance, maximum, minimum, norms.

``axes`` is None (all), an int or a sequence of ints, which may be negative. Without ``keepdims``
the reduced axes are dropped, so a full reduction has shape (). ``std`` and ``norm``, which are
roots of sums, have gradient 0 at 0. ``prod`` is in ``cumulative``, ``logsumexp`` in ``loss``.
"""

from __future__ import annotations

import math
from typing import Any

from ..array_namespace import BACKEND
from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from ..dtypes import is_floating
from ..errors import ShapeError, UnknownNameError
from ..shapes import Shape, broadcast_shapes, normalize_axes, product, reduced_shape, shape_of
from .arithmetic import PowerScalar
from .broadcasting import as_number
from .elementwise import Sqrt, abs, astype
from .registry import Array, Axes, op
from .rounding import sign
from .selection import clip, equal, isfinite, logical_and, where
from .shape import broadcast_to, reshape


def expanded(v: Tensor, shape: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    """Return ``v``, reduced over ``axes``, repeated to the ``shape`` before the reduction."""
    ### BEGIN YOUR SOLUTION [sum-grad]
    return broadcast_to(reshape(v, reduced_shape(shape, axes, True)), shape)
    ### END YOUR SOLUTION


def filled_axes(name: str, shape: Shape, axes: Axes) -> Shape:
    """Return a reduction's axes, counted from the front; ShapeError if there are no elements."""
    found = normalize_axes(name, axes, len(shape))
    if any(shape[axis] == 0 for axis in found):
        raise ShapeError(
            f"{name}: there must be at least one element to reduce, got shape {tuple(shape)} over "
            f"axes {found}; leave empty inputs out"
        )
    return found


class Reduction(TensorOp):
    """Base class of ops that reduce axes."""

    name = "reduction"

    def __init__(self, axes: Axes = None, keepdims: bool = False) -> None:
        self.axes, self.keepdims = axes, keepdims


class Summation(Reduction):
    """Sum over axes: ``summation``."""

    reads = ()

    name = "summation"

    def compute(self, a: Array) -> Array:
        axes = None if self.axes is None else normalize_axes(self.name, self.axes, a.ndim)
        # Without an explicit dtype, NumPy and the array API widen narrow dtypes.
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


class _Extremum(Reduction):
    reads = (0, "result")

    def compute(self, a: Array) -> Array:
        axes = filled_axes(self.name, a.shape, self.axes)
        reduce = xp.max if self.name == "max" else xp.min
        return reduce(a, axis=axes, keepdims=self.keepdims)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, divided equally among the elements that equal the extremum."""
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
    """Return the number of elements reduced to each result; ShapeError if there are none."""
    shape = shape_of(name, a)
    return product(shape[axis] for axis in filled_axes(name, shape, axes))


def _widened(a: Any) -> Tensor:
    """Cast int32 and int64 to the device's widest float, since sums or squares would overflow."""
    x: Tensor = as_operand(a)
    if is_floating(x.dtype) or x.dtype.itemsize < 4:
        return x
    return astype(x, "float64" if "float64" in x.device.dtypes else "float32")


def _narrowed(mean: Tensor, a: Any) -> Tensor:
    """Return a mean of ``a`` as float32 if a has integers; NumPy arrays keep float64."""
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


@op(Sqrt, methods=["std"])
def std(a: Tensor, axes: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """Return the standard deviation over ``axes``: the square root of ``var``.

    It is biased by default; PyTorch's default is ``correction=1``. The gradient is 0 where all
    elements are equal. ShapeError unless there are more than ``correction`` elements.
    """
    return _power(variance("std", a, axes, keepdims, correction), 0.5)


def _power(a: Tensor, exponent: float) -> Tensor:
    """Return ``a ** exponent`` for non-negative elements, with gradient 0 at 0."""
    zero, at_zero = equal(a, 0), 0.0 if exponent > 0 else math.inf
    root = Sqrt() if exponent == 0.5 else PowerScalar(exponent)
    return where(zero, at_zero, root(where(zero, 1.0, a)))


@op(Summation, Max, methods=["norm"])
def norm(a: Tensor, p: float | str = 2, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the p-norm over ``axes`` (None: all), sum(|a|**p)**(1/p).

    ``p``: any number; inf and -inf give the largest and smallest |a|, 0 the number of nonzero
    elements, and "fro" means 2. Elements are scaled by the largest one, so that no power overflows.
    The gradient is 0 where the norm is. ShapeError over an empty axis if the norm is undefined (p
    below 0 or inf).
    """
    if isinstance(p, str):
        if p != "fro":
            raise UnknownNameError(f"norm: p must be a number or 'fro', got {p!r}; use p=2")
        p = 2
    over = normalize_axes("norm", axes, len(shape_of("norm", a)))
    a = a if is_floating(a.dtype) else astype(a, "float32")
    empty = any(a.shape[axis] == 0 for axis in over)
    if empty and (p < 0 or p == math.inf):
        filled_axes("norm", a.shape, over)
    size = abs(a)
    if math.isinf(p):
        return (max if p > 0 else min)(size, over, keepdims)
    if p == 0:
        return summation(sign(size), over, keepdims)
    if p == 1 or empty:
        return summation(size, over, keepdims)
    scale = _scale(size, over, p)
    part = size / scale
    total = summation(part * part if p == 2 else _power(part, p), over, keepdims=True)
    kept = _power(total, 1 / p) * scale
    return kept if keepdims else reshape(kept, reduced_shape(a.shape, over, False))


@op(Summation, Max)
def normalize(a: Tensor, p: float | str = 2, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """Return ``a`` divided by its p-norms along ``axis``, or by ``eps`` where they are smaller."""
    return a / clip(norm(a, p, axis, keepdims=True), min=eps)


@op(Summation)
def cosine_similarity(a: Tensor, b: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angles between ``a`` and ``b`` along ``axis``, which is dropped.

    The shapes broadcast. Norms below ``eps`` are replaced by ``eps``.
    """
    a = as_operand(a, b)
    b = as_operand(b, a)
    common = broadcast_shapes("cosine_similarity", a.shape, b.shape)
    units = [normalize(broadcast_to(each, common), 2, axis, eps) for each in (a, b)]
    return summation(units[0] * units[1], axis)


def _scale(size: Tensor, over: tuple[int, ...], p: float) -> Tensor:
    """Return the largest |a| over the axes (for p < 0 the smallest), but 1 if it is 0, inf or NaN.

    It is a constant, because the norm does not depend on it.
    """
    best = (max if p > 0 else min)(size.detach(), over, keepdims=True)
    return where(logical_and(best > 0, isfinite(best)), best, 1.0)
