"""Ops that choose between values: maximum, minimum, clip, where, and the comparisons.

A choice has gradient 1 for what is taken and 0 for the rest; comparisons have none: constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from .broadcasting import check_broadcast, unbroadcast
from .registry import op

Array = Any
Parts = tuple[Tensor | None, ...]


def _split_between(out_grad: Tensor, node: Tensor, wins: Callable[..., Array]) -> Parts:
    """All of the gradient to the operand that wins, half to each where they are equal."""
    a, b = node.inputs
    left, right = a.realize_cached_data(), b.realize_cached_data()
    dtype = out_grad.dtype
    ties = xp.astype(left == right, dtype) * 0.5
    to_a = Tensor.make_const(xp.astype(wins(left, right), dtype) + ties)
    return (
        unbroadcast(out_grad * to_a, a) if a.requires_grad else None,
        unbroadcast(out_grad * (1 - to_a), b) if b.requires_grad else None,
    )


class Maximum(TensorOp):
    """max(a, b)."""

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("maximum", a, b)
        return xp.maximum(a, b)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        return _split_between(out_grad, node, operator.gt)


@op(Maximum)
def maximum(a: Tensor, b: Tensor) -> Tensor:
    """The larger of a and b with broadcasting; equal elements share the gradient."""
    return Maximum()(a, b)


class Minimum(TensorOp):
    """min(a, b)."""

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("minimum", a, b)
        return xp.minimum(a, b)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        return _split_between(out_grad, node, operator.lt)


@op(Minimum)
def minimum(a: Tensor, b: Tensor) -> Tensor:
    """The smaller of a and b with broadcasting; equal elements share the gradient."""
    return Minimum()(a, b)


class Clip(TensorOp):
    """min(max(a, low), high); None for a side without a limit."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low, self.high = low, high

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
        return out_grad * Tensor.make_const(xp.astype(inside, out_grad.dtype))


@op(Clip, methods=["clip"])
def clip(a: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """a limited to [low, high]; the gradient is 1 inside and on the limits, 0 outside."""
    return Clip(low, high)(a)


class Where(TensorOp):
    """a where condition, else b."""

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
    """a where condition is true (not 0), else b; the three broadcast."""
    return Where()(condition, a, b)


class Compare(TensorOp):
    """A comparison: a bool constant."""

    differentiable = False

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast(self.name, a, b)
        return getattr(xp, self.name)(a, b)


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    """A number is compared in the tensor's own dtype."""
    if not isinstance(a, Tensor):
        a = as_operand(a, b)
    if isinstance(b, Tensor):
        return a, b
    dtype = a.dtype if isinstance(b, (int, float)) else None
    return a, Tensor(b, device=a.device, dtype=dtype, requires_grad=False)


@op(Compare)
def equal(a: Tensor, b: Any) -> Tensor:
    """a == b elementwise, a bool constant (``==`` itself compares identities)."""
    return Compare("equal")(*_operands(a, b))


@op(Compare)
def not_equal(a: Tensor, b: Any) -> Tensor:
    """a != b elementwise, a bool constant."""
    return Compare("not_equal")(*_operands(a, b))


@op(Compare, methods=["__lt__"])
def less(a: Tensor, b: Any) -> Tensor:
    """a < b elementwise, a bool constant."""
    return Compare("less")(*_operands(a, b))


@op(Compare, methods=["__le__"])
def less_equal(a: Tensor, b: Any) -> Tensor:
    """a <= b elementwise, a bool constant."""
    return Compare("less_equal")(*_operands(a, b))


@op(Compare, methods=["__gt__"])
def greater(a: Tensor, b: Any) -> Tensor:
    """a > b elementwise, a bool constant."""
    return Compare("greater")(*_operands(a, b))


@op(Compare, methods=["__ge__"])
def greater_equal(a: Tensor, b: Any) -> Tensor:
    """a >= b elementwise, a bool constant."""
    return Compare("greater_equal")(*_operands(a, b))
