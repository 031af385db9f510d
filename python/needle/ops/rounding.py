"""Step functions of one tensor: floor, ceil, round, trunc, sign. Their gradient is 0 everywhere."""

from __future__ import annotations

from ..array_namespace import array_api as xp
from ..autograd import Tensor
from .registry import Array, LinearOp, op


class _Step(LinearOp):
    """Base class of step functions; their gradient is defined as 0 everywhere."""

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return Tensor.make_const(xp.zeros_like(out_grad.realize_cached_data()))


class Floor(_Step):
    """Largest whole number not above each element: ``floor``."""

    def compute(self, a: Array) -> Array:
        return xp.floor(a)


@op(Floor, methods=["floor"])
def floor(a: Tensor) -> Tensor:
    """Return the largest whole number that is not above each element; the gradient is 0."""
    return Floor()(a)


class Ceil(_Step):
    """Smallest whole number not below each element: ``ceil``."""

    def compute(self, a: Array) -> Array:
        return xp.ceil(a)


@op(Ceil, methods=["ceil"])
def ceil(a: Tensor) -> Tensor:
    """Return the smallest whole number that is not below each element; the gradient is 0."""
    return Ceil()(a)


class Round(_Step):
    """Nearest whole number: ``round``."""

    def compute(self, a: Array) -> Array:
        return xp.round(a)


@op(Round, methods=["round"])
def round(a: Tensor, decimals: int = 0) -> Tensor:
    """Return the nearest number with ``decimals`` decimals; the gradient is 0.

    Ties round to even. Negative ``decimals`` round to tens, hundreds, and so on.
    """
    if decimals == 0:
        return Round()(a)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    return Round()(a * scale) / scale if decimals > 0 else Round()(a / scale) * scale


class Trunc(_Step):
    """Whole part, towards 0: ``trunc``."""

    def compute(self, a: Array) -> Array:
        return xp.trunc(a)


@op(Trunc, methods=["trunc"])
def trunc(a: Tensor) -> Tensor:
    """Return each element without its fractional part; the gradient is 0."""
    return Trunc()(a)


class Sign(_Step):
    """Sign of an element: ``sign``."""

    def compute(self, a: Array) -> Array:
        return xp.sign(a)


@op(Sign, methods=["sign"])
def sign(a: Tensor) -> Tensor:
    """Return -1, 0 or 1, the sign of each element, and NaN for NaN; the gradient is 0."""
    return Sign()(a)
