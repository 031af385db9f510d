"""Ops that select values: maximum, minimum, clip, where, and the comparisons.

The gradient of a selection is 1 for a selected value, 0 for the others and NaN where an operand is
NaN. Results of comparisons are constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ..array_namespace import array_api as xp
from ..array_namespace import is_array
from ..autograd import Tensor, TensorOp, as_operand
from ..dtypes import is_floating
from ..errors import DTypeError, warn_caller
from .broadcasting import Number, as_number, check_broadcast, constant_like, unbroadcast
from .registry import Array, Parts, attach, op


def nan_or(a: Array, b: Array) -> Array:
    """Return b, but NaN where ``a`` is NaN."""
    return xp.where(a == a, b, a) if is_floating(a.dtype) else b


def _split_between(out_grad: Tensor, node: Tensor, wins: Callable[..., Array]) -> Parts:
    """Return the gradients of a selection; equal elements each get half of the gradient."""
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

    reads = (0, 1)

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

    reads = (0, 1)

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
    """Values limited to an interval; None for a side without a limit.

    ``flat``: the gradient is also 0 at the limits.
    """

    reads = (0,)

    def __init__(
        self, low: float | None = None, high: float | None = None, flat: bool = False
    ) -> None:
        self.flat = flat
        self.low = None if low is None else as_number("clip", low, "min")
        self.high = None if high is None else as_number("clip", high, "max")

    def compute(self, a: Array) -> Array:
        a = a if self.low is None else xp.maximum(a, self.low)
        return a if self.high is None else xp.minimum(a, self.high)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        a = node.inputs[0].realize_cached_data()
        inside = a == a
        if self.low is not None:
            inside = xp.logical_and(inside, a > self.low if self.flat else a >= self.low)
        if self.high is not None:
            inside = xp.logical_and(inside, a < self.high if self.flat else a <= self.high)
        return out_grad * Tensor.make_const(nan_or(a, xp.astype(inside, out_grad.dtype)))


@op(Clip, methods=["clip", "clamp"])
def clip(a: Tensor, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """Return a limited to [min, max]; the gradient is 1 inside and at the limits, 0 outside.

    A Tensor as a limit broadcasts with ``a`` and gets a gradient, as in ``maximum``.
    """
    if not isinstance(min, Tensor) and not isinstance(max, Tensor):
        return Clip(min, max)(a)
    a = maximum(a, min) if isinstance(min, Tensor) else Clip(min, None)(a)
    return minimum(a, max) if isinstance(max, Tensor) else Clip(None, max)(a)


class Where(TensorOp):
    """Elementwise choice between two tensors: ``where``."""

    reads = (0,)

    def compute(self, condition: Array, a: Array, b: Array) -> Array:
        check_broadcast("where", condition, a, b)
        return xp.where(_as_bool(condition), a, b)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        condition, a, b = node.inputs
        chosen = _as_bool(condition.realize_cached_data())
        taken = Tensor.make_const(chosen)
        none = _zero_like(out_grad)
        # ``where`` instead of a product, because 0 * inf on the side not chosen would be NaN.
        return (
            None,
            unbroadcast(Where()(taken, out_grad, none), a) if a.requires_grad else None,
            unbroadcast(Where()(taken, none, out_grad), b) if b.requires_grad else None,
        )


def _zero_like(grad: Tensor) -> Tensor:
    """Return the 0-d constant 0 with the dtype and device of ``grad``."""
    data = grad.realize_cached_data()
    return Tensor.make_const(xp.zeros((), dtype=data.dtype, device=data.device))


def _as_bool(condition: Array) -> Array:
    return condition if condition.dtype == "bool" else condition != 0


@op(Where)
def where(condition: Tensor, a: Tensor | Number, b: Tensor | Number) -> Tensor:
    """Return a where ``condition`` is true (not 0), else b; all three broadcast.

    A number takes the dtype of the other choice.
    """
    return Where()(condition, _choice(a, b, condition), _choice(b, a, condition))


def _choice(x: Any, other: Any, condition: Any) -> Tensor:
    """Return ``x`` as a Tensor; a number becomes a fill on the device instead of a copy."""
    if isinstance(x, Tensor):
        return x
    like = other if isinstance(other, Tensor) else None
    if isinstance(x, (int, float)) and like is not None:
        return constant_like(like, (), x)
    device = condition.device if isinstance(condition, Tensor) else None
    return (
        as_operand(x, like) if like is not None else Tensor(x, device=device, requires_grad=False)
    )


class _Predicate(TensorOp):
    """Base class of functions of the array namespace whose result is a bool constant."""

    differentiable = False

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(self, *arrays: Array) -> Array:
        check_broadcast(self.name, *arrays)
        return getattr(xp, self.name)(*arrays)


class Compare(_Predicate):
    """Elementwise comparison of two tensors."""


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    """Return both operands as tensors; numbers take the dtype of the other operand."""
    a = as_operand(a, b)
    if isinstance(b, Tensor):
        return a, b
    if isinstance(b, (int, float)):
        return a, constant_like(a, (), b)
    return a, Tensor(b, device=a.device, requires_grad=False)


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


class Identity:
    """The result of ``==`` and ``!=`` of Tensors, which compare identities as in the course.

    It can only serve as a condition: any other use raises an error that names ``equal``. As a
    condition it warns if a comparison of elements was probably meant (``doubtful``).
    """

    __slots__ = ("doubtful", "truth")

    def __init__(self, truth: bool, doubtful: bool = False) -> None:
        self.truth, self.doubtful = truth, doubtful

    def __bool__(self) -> bool:
        if self.doubtful:
            warn_caller(f"Tensor: {_ADVICE}; here it is {self.truth}", UserWarning)
        return self.truth

    def __eq__(self, other: object) -> bool:
        return self.truth == other

    def __hash__(self) -> int:
        return hash(self.truth)

    def __repr__(self) -> str:
        hint = " (of identity; needle.equal compares elements)" if self.doubtful else ""
        return f"{self.truth}{hint}"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"Tensor: {_ADVICE}, got .{name}", name=name)


_ADVICE = (
    "== and != compare identities, as in the course; to compare elements write "
    "needle.equal(a, b) or needle.not_equal(a, b)"
)


def _as_elements(result: Identity, *others: Any, **options: Any) -> Any:
    raise TypeError(f"Tensor: {_ADVICE}, got arithmetic or a conversion of the result")


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul "
    "rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift invert neg pos abs round "
    "lt le gt ge array float int index iter len contains getitem"
).split():
    setattr(Identity, f"__{_name}__", _as_elements)

_SAME, _DIFFERENT = Identity(True), Identity(False)


def _is(a: Tensor, b: object) -> Any:
    """Return whether both are the same object; lists and dicts also call this."""
    if a is b:
        return _SAME
    if isinstance(b, Tensor):
        return Identity(False, True) if _compares_labels(a, b) else _DIFFERENT
    if isinstance(b, (list, tuple)):
        return _DIFFERENT
    return Identity(False, True) if _is_number_or_array(b) else NotImplemented


def _is_not(a: Tensor, b: object) -> Any:
    """Return whether both are different objects."""
    found = _is(a, b)
    return found if found is NotImplemented else Identity(not found.truth, found.doubtful)


def _compares_labels(a: Tensor, b: Tensor) -> bool:
    """Return True if the shapes are equal and one tensor holds integers, such as labels."""
    mine, others = a.cached_data, b.cached_data
    if mine is None or others is None:  # a lazy value has not been computed yet
        return False
    return (mine.dtype.kind in "biu" or others.dtype.kind in "biu") and a.shape == b.shape


def _is_number_or_array(b: object) -> bool:
    return isinstance(b, (int, float, np.generic, np.ndarray)) or is_array(b)


attach("__eq__", _is)
attach("__ne__", _is_not)


class Logical(_Predicate):
    """Logical function of truth values; nonzero is true."""

    def compute(self, *arrays: Array) -> Array:
        return super().compute(*map(_as_bool, arrays))


@op(Logical)
def logical_not(a: Tensor) -> Tensor:
    """Return True where a is false (0), as a bool constant."""
    return Logical("logical_not")(a)


@op(Logical)
def logical_and(a: Tensor, b: Any) -> Tensor:
    """Return True where a and b are true (not 0), as a bool constant."""
    return Logical("logical_and")(*_operands(a, b))


@op(Logical)
def logical_or(a: Tensor, b: Any) -> Tensor:
    """Return True where a or b is true (not 0), as a bool constant."""
    return Logical("logical_or")(*_operands(a, b))


def _of_masks(symbol: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the operator ``symbol``: ``function`` of bool operands, DTypeError for others."""

    @wraps(function)
    def apply(*operands: Any) -> Tensor:
        kinds = [getattr(x, "dtype", type(x).__name__) for x in operands]
        if any(kind not in ("bool", bool) for kind in kinds):
            raise DTypeError(
                f"{symbol}: operands must be bool, got {' and '.join(map(str, kinds))}; compare "
                f"first, or use {function.__name__}"
            )
        return function(*operands)

    return apply


attach("__invert__", _of_masks("~", logical_not))
attach("__and__", _of_masks("&", logical_and))
attach("__or__", _of_masks("|", logical_or))


class Check(_Predicate):
    """Test of each element: isnan, isinf or isfinite."""


@op(Check, methods=["isnan"])
def isnan(a: Tensor) -> Tensor:
    """Return True where a is NaN, as a bool constant."""
    return Check("isnan")(a)


@op(Check, methods=["isinf"])
def isinf(a: Tensor) -> Tensor:
    """Return True where a is infinite, as a bool constant."""
    return Check("isinf")(a)


@op(Check, methods=["isfinite"])
def isfinite(a: Tensor) -> Tensor:
    """Return True where a is neither infinite nor NaN, as a bool constant."""
    return Check("isfinite")(a)
