"""Norms, functions that divide by them, and std: roots of sums, with gradient 0 at 0."""

from __future__ import annotations

import math

from ..autograd import Tensor, as_operand
from ..dtypes import is_floating
from ..errors import ShapeError, UnknownNameError
from ..shapes import broadcast_shapes, normalize_axes, reduced_shape, shape_of
from .arithmetic import PowerScalar
from .elementwise import Sqrt, abs, astype
from .reduction import Max, Summation, summation, variance
from .reduction import max as largest
from .reduction import min as smallest
from .registry import Axes, op
from .rounding import sign
from .selection import clip, equal, isfinite, logical_and, where
from .shape import broadcast_to, reshape


@op(Sqrt, methods=["std"])
def std(a: Tensor, axes: Axes = None, keepdims: bool = False, correction: float = 0) -> Tensor:
    """Return the standard deviation over ``axes``: the square root of ``var``.

    The default is the biased one; PyTorch's has ``correction=1``. The gradient is 0 where all
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

    ``p``: any number; inf and -inf for the largest and smallest |a|, 0 for the number of elements
    that are not 0, "fro" for 2. Elements are scaled by the largest one, so that no power overflows.
    The gradient is 0 where the norm is. ShapeError over an empty axis where there is no result
    (p below 0 or inf).
    """
    if isinstance(p, str):
        if p != "fro":
            raise UnknownNameError(f"norm: p must be a number or 'fro', got {p!r}; use p=2")
        p = 2
    over = normalize_axes("norm", axes, len(shape_of("norm", a)))
    a = a if is_floating(a.dtype) else astype(a, "float32")
    empty = any(a.shape[axis] == 0 for axis in over)
    if empty and (p < 0 or p == math.inf):
        raise ShapeError(
            f"norm: there must be at least one element for p={p}, got shape {a.shape} over axes "
            f"{over}; skip empty inputs"
        )
    size = abs(a)
    if math.isinf(p):
        return (largest if p > 0 else smallest)(size, over, keepdims)
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

    The shapes broadcast. Norms below ``eps`` count as ``eps``.
    """
    a = as_operand(a, b)
    b = as_operand(b, a)
    common = broadcast_shapes("cosine_similarity", a.shape, b.shape)
    units = [normalize(broadcast_to(each, common), 2, axis, eps) for each in (a, b)]
    return summation(units[0] * units[1], axis)


def _scale(size: Tensor, over: tuple[int, ...], p: float) -> Tensor:
    """Return the largest |a| over the axes (for p < 0 the smallest), 1 for 0, inf and NaN.

    A constant: the norm does not depend on it.
    """
    best = (largest if p > 0 else smallest)(size.detach(), over, keepdims=True)
    return where(logical_and(best > 0, isfinite(best)), best, 1.0)
