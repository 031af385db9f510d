# Trail 3 of 30: EWiseMul and multiply: an op, its gradient and its public function.
# Next: python/needle/shapes.py
"""Arithmetic of two tensors, or of a tensor and a number, and the Python operators for it.

All ops are elementwise with NumPy's broadcasting; gradients are summed to each operand's shape.
Functions of one tensor are in ``elementwise``, comparisons and selections in ``selection``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from ..dtypes import is_floating
from ..errors import DTypeError
from ..host_steps import host_step
from .broadcasting import (
    Number,
    as_number,
    check_broadcast,
    constant_like,
    log_or_zero,
    unbroadcast,
    unit_shift,
)
from .elementwise import AsType
from .registry import Array, LinearOp, Parts, attach, op


class EWiseAdd(LinearOp):
    """Elementwise sum a + b."""

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("add", a, b)
        return a + b

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        a, b = node.inputs
        return unbroadcast(out_grad, a), unbroadcast(out_grad, b)


@op(EWiseAdd)
def add(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b with broadcasting."""
    return EWiseAdd()(a, b)


class AddScalar(LinearOp):
    """Sum of a tensor and a number."""

    def __init__(self, scalar: Any) -> None:
        self.scalar = as_number("add_scalar", scalar)

    def compute(self, a: Array) -> Array:
        return a + self.scalar

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad


@op(AddScalar)
def add_scalar(a: Tensor, scalar: Number) -> Tensor:
    """Return a + scalar in the dtype of ``a``."""
    return AddScalar(scalar)(a)


class EWiseMul(TensorOp):
    """Elementwise product a * b."""

    reads = {0: (1,), 1: (0,)}

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("multiply", a, b)
        return a * b

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        ### BEGIN YOUR SOLUTION [multiply-grad]
        a, b = node.inputs
        return (
            unbroadcast(out_grad * b, a) if a.requires_grad else None,
            unbroadcast(out_grad * a, b) if b.requires_grad else None,
        )
        ### END YOUR SOLUTION


@op(EWiseMul)
def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return a * b with broadcasting."""
    return EWiseMul()(a, b)


@op(EWiseMul, methods=["square"])
def square(a: Tensor) -> Tensor:
    """Return a * a, elementwise."""
    return EWiseMul()(a, a)


class MulScalar(LinearOp):
    """Product of a tensor and a number."""

    def __init__(self, scalar: Any) -> None:
        self.scalar = as_number("mul_scalar", scalar)

    def compute(self, a: Array) -> Array:
        return a * self.scalar

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad * self.scalar


@op(MulScalar)
def mul_scalar(a: Tensor, scalar: Number) -> Tensor:
    """Return a * scalar in the dtype of ``a``."""
    return MulScalar(scalar)(a)


class Negate(LinearOp):
    """Elementwise negation -a."""

    def compute(self, a: Array) -> Array:
        return -a

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return negate(out_grad)


@op(Negate, methods=["__neg__"])
def negate(a: Tensor) -> Tensor:
    """Return -a."""
    return Negate()(a)


class EWiseDiv(TensorOp):
    """Elementwise quotient a / b."""

    reads = {0: (1,), 1: (1, "result")}

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("divide", a, b)
        return a / b

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        """Return the gradients of a / b for those operands that require one."""
        ### BEGIN YOUR SOLUTION [divide-grad]
        a, b = node.inputs
        return (
            unbroadcast(out_grad / b, a) if a.requires_grad else None,
            unbroadcast(negate(out_grad * (node / b)), b) if b.requires_grad else None,
        )
        ### END YOUR SOLUTION


class RoundedDiv(LinearOp):
    """Rounded elementwise quotient: ``divide`` with a ``rounding_mode``. Its gradient is 0."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("divide", a, b)
        if self.mode == "trunc" and (is_floating(a.dtype) or is_floating(b.dtype)):
            return xp.trunc(a / b)
        down = xp.floor_divide(a, b)
        if self.mode == "floor":
            return down
        return down + xp.astype(xp.logical_and(down < 0, down * b != a), down.dtype)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        zero = Tensor.make_const(xp.zeros_like(out_grad.realize_cached_data()))
        return unbroadcast(zero, node.inputs[0]), unbroadcast(zero, node.inputs[1])


@op(EWiseDiv, RoundedDiv, methods=["div"])
def divide(a: Tensor, b: Tensor, rounding_mode: str | None = None) -> Tensor:
    """Return a / b with broadcasting.

    ``rounding_mode``: "floor" rounds the quotient down, as Python's ``//`` does, and "trunc" rounds
    towards 0; both keep integer dtypes and have gradient 0. ValueError for another mode,
    ZeroDivisionError for integers by 0.
    """
    if rounding_mode is None:
        return EWiseDiv()(a, b)
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(
            f"divide: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}"
        )
    a = as_operand(a, b)
    b = as_operand(b, a)
    if not (is_floating(a.dtype) or is_floating(b.dtype)):
        _check_divisor(b)
    return RoundedDiv(rounding_mode)(a, b)


@host_step
def _check_divisor(b: Tensor) -> None:
    if not bool(xp.all(b.realize_cached_data())):
        raise ZeroDivisionError(
            "divide: integers must not be divided by 0; cast them to float32, which gives inf"
        )


class DivScalar(LinearOp):
    """Quotient of a tensor and a number."""

    def __init__(self, scalar: Any) -> None:
        self.scalar = as_number("divide_scalar", scalar)

    def compute(self, a: Array) -> Array:
        return a / self.scalar

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad / self.scalar


@op(DivScalar)
def divide_scalar(a: Tensor, scalar: Number) -> Tensor:
    """Return a / scalar in the dtype of ``a``."""
    return DivScalar(scalar)(a)


class EWisePow(TensorOp):
    """Elementwise power a ** b."""

    reads = {0: (0, 1), 1: (0, 1, "result")}

    def compute(self, a: Array, b: Array) -> Array:
        check_broadcast("power", a, b)
        return a**b

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        """Return the gradients of a ** b: for a, 0 where b = 0; for b, 0 where a = 0 <= b."""
        ### BEGIN YOUR SOLUTION [power-grad]
        a, b = node.inputs
        by_a = by_b = None
        if a.requires_grad:
            by_a = unbroadcast(out_grad * b * a ** (b - unit_shift(a, b)), a)
        if b.requires_grad:
            by_b = unbroadcast(out_grad * node * log_or_zero(a, b), b)
        return by_a, by_b
        ### END YOUR SOLUTION


@op(EWisePow)
def power(a: Tensor, b: Tensor) -> Tensor:
    """Return a ** b with broadcasting; the gradient for b requires a >= 0."""
    return EWisePow()(a, b)


class PowerScalar(TensorOp):
    """Power of a tensor with a number as exponent."""

    reads = (0,)

    def __init__(self, scalar: Any) -> None:
        self.scalar = as_number("power_scalar", scalar)

    def compute(self, a: Array) -> Array:
        if self.scalar < 0 and isinstance(self.scalar, int) and a.dtype.kind in "biu":
            raise DTypeError(
                f"power_scalar: an integer tensor has no negative powers, got {a.dtype} ** "
                f"{self.scalar}; cast the tensor or use {float(self.scalar)}"
            )
        return a**self.scalar

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient of a ** scalar; for scalar 0 it is 0, even at a = 0."""
        ### BEGIN YOUR SOLUTION [power-grad]
        if self.scalar == 0:  # a**-1 is infinite at a = 0
            return out_grad * 0
        (a,) = node.inputs
        return out_grad * (power_scalar(a, self.scalar - 1) * self.scalar)
        ### END YOUR SOLUTION


@op(PowerScalar)
def power_scalar(a: Tensor, scalar: Number) -> Tensor:
    """Return a ** scalar in the dtype of ``a``; NaN for a negative base and a fractional scalar."""
    return PowerScalar(scalar)(a)


class ScalarPower(TensorOp):
    """Power of a number with a tensor as exponent."""

    reads = ("result",)

    def __init__(self, scalar: Any) -> None:
        self.scalar = as_number("scalar_power", scalar)

    def compute(self, a: Array) -> Array:
        return self.scalar**a

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, scalar**a * log(scalar); for scalar 0 it is 0 where a >= 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = float(np.log(np.float64(self.scalar)))
        if self.scalar != 0:
            return out_grad * (node * factor)
        a = node.inputs[0].realize_cached_data()
        return out_grad * (node * Tensor.make_const(xp.where(a >= 0, xp.zeros_like(a), factor)))


@op(ScalarPower)
def scalar_power(a: Tensor, scalar: Number) -> Tensor:
    """Return scalar ** a in the dtype of ``a``; differentiable for scalar >= 0."""
    return ScalarPower(scalar)(a)


# ---- operators, which select the op for two tensors or the op for a tensor and a number ------


def _is_number(b: Any) -> bool:
    return isinstance(b, (int, float, np.generic)) or (
        not isinstance(b, Tensor) and getattr(b, "size", None) == 1
    )


def _operator(
    kind: type[TensorOp], with_number: Callable[[Any], TensorOp]
) -> Callable[[Tensor, Any], Tensor]:
    def apply(a: Tensor, b: Any) -> Tensor:
        if isinstance(b, Tensor):
            return Tensor.make_from_op(kind(), (a, b))
        return with_number(b)(a) if _is_number(b) else kind()(a, as_operand(b, a))

    return apply


_plus = _operator(EWiseAdd, AddScalar)
_times = _operator(EWiseMul, MulScalar)
_over = _operator(EWiseDiv, DivScalar)
_to_the = _operator(EWisePow, PowerScalar)


def _negated(a: Tensor, other: Any) -> Tensor:
    """Return -a in the dtype of its sum with ``other``, before which uint8 must not wrap around."""
    if a.dtype.kind == "u":
        a = AsType(xp.result_type(a.dtype, other))(a)
    return Negate()(a)


def _minus(a: Tensor, b: Any) -> Tensor:
    """Return a - b as the sum with a negation."""
    if not isinstance(b, Tensor) and _is_number(b):
        number = -as_number("subtract", b)
        if a.dtype.kind == "u" and isinstance(number, int):
            # equivalent to the negation, since integer sums wrap around
            number %= 1 << 8 * a.dtype.itemsize
        return AddScalar(number)(a)
    b = as_operand(b, a)
    return EWiseAdd()(a, _negated(b, a.dtype))


def _minus_reversed(a: Tensor, b: Any) -> Tensor:
    b = as_number("add_scalar", b) if _is_number(b) else as_operand(b, a)
    return _plus(_negated(a, getattr(b, "dtype", b)), b)


def _over_reversed(a: Tensor, b: Any) -> Tensor:
    """Return b / a, since b * a**-1 would be rounded twice."""
    if _is_number(b):
        return EWiseDiv()(constant_like(a, (), float(as_number("divide", b))), a)
    return EWiseDiv()(as_operand(b, a), a)


def _to_the_reversed(a: Tensor, b: Any) -> Tensor:
    return ScalarPower(b)(a) if _is_number(b) else EWisePow()(as_operand(b, a), a)


for _name, _function in {
    "__add__": _plus,
    "__radd__": _plus,
    "__sub__": _minus,
    "__rsub__": _minus_reversed,
    "__mul__": _times,
    "__rmul__": _times,
    "__truediv__": _over,
    "__rtruediv__": _over_reversed,
    "__pow__": _to_the,
    "__rpow__": _to_the_reversed,
}.items():
    attach(_name, _function)
