"""Ops that select values: maximum, minimum, clip, where, and the comparisons.

The gradient of a selection is 1 for a selected value, 0 for the others and NaN where an operand is
NaN. Results of comparisons are constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from .broadcasting import as_number, check_broadcast, unbroadcast
from .registry import op

Array = Any
Parts = tuple[Tensor | None, ...]


def nan_or(a: Array, b: Array) -> Array:
    """Return b, and NaN where ``a`` is NaN."""
    return xp.where(a == a, b, a) if a.dtype.kind == "f" else b


def _split_between(out_grad: Tensor, node: Tensor, wins: Callable[..., Array]) -> Parts:
    """Return the gradients of a selection; equal elements get half of the gradient each."""
    a, b = node.inputs
    left, right = a.realize_cached_data(), b.realize_cached_data()
    dtype = out_grad.dtype
    ties = xp.astype(left == right, dtype) * 0.5
    share = nan_or(left, nan_or(right, xp.astype(wins(left, right), dtype) + ties))
    to_a = Tensor.make_const(share)
    return (
        unbroadcast(out_grad * to_a, a) if a.requires_grad else None,
        unbroadcast(out_grad * (1 - to_a), b) if b.requires_grad else None,
    )


class Maximum(TensorOp):
    """Elementwise maximum of two tensors."""

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("maximum", a, b)
        return xp.maximum(a, b)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        return _split_between(out_grad, node, operator.gt)


@op(Maximum)
def maximum(a: Tensor, b: Tensor) -> Tensor:
    """Return the larger of a and b with broadcasting; equal elements share the gradient."""
    return Maximum()(a, b)


class Minimum(TensorOp):
    """Elementwise minimum of two tensors."""

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("minimum", a, b)
        return xp.minimum(a, b)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        return _split_between(out_grad, node, operator.lt)


@op(Minimum)
def minimum(a: Tensor, b: Tensor) -> Tensor:
    """Return the smaller of a and b with broadcasting; equal elements share the gradient."""
    return Minimum()(a, b)


class Clip(TensorOp):
    """Values limited to an interval; None for a side without a limit."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = None if low is None else as_number("clip: low", low)
        self.high = None if high is None else as_number("clip: high", high)

    def compute(self, a: Array) -> Array:
        a = a if self.low is None else xp.maximum(a, self.low)
        return a if self.high is None else xp.minimum(a, self.high)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        a = node.inputs[0].realize_cached_data()
        inside = a == a
        if self.low is not None:
            inside = xp.logical_and(inside, a >= self.low)
        if self.high is not None:
            inside = xp.logical_and(inside, a <= self.high)
        return out_grad * Tensor.make_const(nan_or(a, xp.astype(inside, out_grad.dtype)))


@op(Clip, methods=["clip"])
def clip(a: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """Return a limited to [low, high]; the gradient is 1 inside and on the limits, 0 outside."""
    return Clip(low, high)(a)


class Where(TensorOp):
    """Elementwise choice between two tensors: ``where``."""

    def compute(self, condition: Array, a: Array, b: Array) -> Array:
        check_broadcast("where", condition, a, b)
        return xp.where(_as_bool(condition), a, b)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        condition, a, b = node.inputs
        chosen = _as_bool(condition.realize_cached_data())
        taken = Tensor.make_const(xp.astype(chosen, out_grad.dtype))
        return (
            None,
            unbroadcast(out_grad * taken, a) if a.requires_grad else None,
            unbroadcast(out_grad * (1 - taken), b) if b.requires_grad else None,
        )


def _as_bool(condition: Array) -> Array:
    return condition if condition.dtype == "bool" else condition != 0


@op(Where)
def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return a where ``condition`` is true (not 0), else b; all three broadcast."""
    return Where()(condition, a, b)


class Compare(TensorOp):
    """Elementwise comparison; the result is a bool constant."""

    differentiable = False

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast(self.name, a, b)
        return getattr(xp, self.name)(a, b)


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    """Return both operands as tensors; numbers take the dtype of the other operand."""
    if not isinstance(a, Tensor):
        a = as_operand(a, b)
    if isinstance(b, Tensor):
        return a, b
    dtype = a.dtype if isinstance(b, (int, float)) else None
    return a, Tensor(b, device=a.device, dtype=dtype, requires_grad=False)


@op(Compare)
def equal(a: Tensor, b: Any) -> Tensor:
    """Return a == b elementwise as a bool constant; the operator ``==`` compares identities."""
    return Compare("equal")(*_operands(a, b))


@op(Compare)
def not_equal(a: Tensor, b: Any) -> Tensor:
    """Return a != b elementwise as a bool constant."""
    return Compare("not_equal")(*_operands(a, b))


@op(Compare, methods=["__lt__"])
def less(a: Tensor, b: Any) -> Tensor:
    """Return a < b elementwise as a bool constant."""
    return Compare("less")(*_operands(a, b))


@op(Compare, methods=["__le__"])
def less_equal(a: Tensor, b: Any) -> Tensor:
    """Return a <= b elementwise as a bool constant."""
    return Compare("less_equal")(*_operands(a, b))


@op(Compare, methods=["__gt__"])
def greater(a: Tensor, b: Any) -> Tensor:
    """Return a > b elementwise as a bool constant."""
    return Compare("greater")(*_operands(a, b))


@op(Compare, methods=["__ge__"])
def greater_equal(a: Tensor, b: Any) -> Tensor:
    """Return a >= b elementwise as a bool constant."""
    return Compare("greater_equal")(*_operands(a, b))
