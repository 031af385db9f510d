"""Elementwise functions: one a kernel row, then those composed of them.

Operands are arrays or Python scalars, at least one array; they broadcast and promote by the array
API standard. Integers given to a function of real numbers become float32.
"""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError
from .array import NDArray


def _unary(name: str, x: Any) -> NDArray:
    return as_array(name, x)._unary(name)


def _binary(name: str, x1: Any, x2: Any) -> NDArray:
    if isinstance(x1, NDArray):
        result = x1._binary(name, x2)
    else:
        result = as_array(name, x2)._binary(name, x1, True)
    if result is NotImplemented:
        raise DTypeError(
            f"{name}: operands must be arrays or scalars, got {type(x1).__name__} and "
            f"{type(x2).__name__}; use asarray"
        )
    return result


def as_array(op: str, x: Any) -> NDArray:
    """``x`` if it is an NDArray; DTypeError otherwise."""
    if not isinstance(x, NDArray):
        raise DTypeError(f"{op}: an NDArray is needed, got {type(x).__name__}; use asarray")
    return x


def abs(x: NDArray, /) -> NDArray:
    """The absolute value."""
    return _unary("abs", x)


def acos(x: NDArray, /) -> NDArray:
    """The inverse cosine."""
    return _unary("acos", x)


def acosh(x: NDArray, /) -> NDArray:
    """The inverse hyperbolic cosine."""
    return _unary("acosh", x)


def asin(x: NDArray, /) -> NDArray:
    """The inverse sine."""
    return _unary("asin", x)


def asinh(x: NDArray, /) -> NDArray:
    """The inverse hyperbolic sine."""
    return _unary("asinh", x)


def atan(x: NDArray, /) -> NDArray:
    """The inverse tangent."""
    return _unary("atan", x)


def atanh(x: NDArray, /) -> NDArray:
    """The inverse hyperbolic tangent."""
    return _unary("atanh", x)


def bitwise_invert(x: NDArray, /) -> NDArray:
    """Every bit flipped (bool: not)."""
    return _unary("bitwise_invert", x)


def ceil(x: NDArray, /) -> NDArray:
    """The nearest integer above."""
    return _unary("ceil", x)


def cos(x: NDArray, /) -> NDArray:
    """The cosine, of radians."""
    return _unary("cos", x)


def cosh(x: NDArray, /) -> NDArray:
    """The hyperbolic cosine."""
    return _unary("cosh", x)


def erf(x: NDArray, /) -> NDArray:
    """The error function."""
    return _unary("erf", x)


def exp(x: NDArray, /) -> NDArray:
    """e to the power of x."""
    return _unary("exp", x)


def expm1(x: NDArray, /) -> NDArray:
    """exp(x) - 1, exact near 0."""
    return _unary("expm1", x)


def floor(x: NDArray, /) -> NDArray:
    """The nearest integer below."""
    return _unary("floor", x)


def isfinite(x: NDArray, /) -> NDArray:
    """Whether neither infinite nor NaN."""
    return _unary("isfinite", x)


def isinf(x: NDArray, /) -> NDArray:
    """Whether infinite."""
    return _unary("isinf", x)


def isnan(x: NDArray, /) -> NDArray:
    """Whether NaN."""
    return _unary("isnan", x)


def log(x: NDArray, /) -> NDArray:
    """The natural logarithm."""
    return _unary("log", x)


def log10(x: NDArray, /) -> NDArray:
    """The logarithm to base 10."""
    return _unary("log10", x)


def log1p(x: NDArray, /) -> NDArray:
    """log(1 + x), exact near 0."""
    return _unary("log1p", x)


def log2(x: NDArray, /) -> NDArray:
    """The logarithm to base 2."""
    return _unary("log2", x)


def logical_not(x: NDArray, /) -> NDArray:
    """Whether 0."""
    return _unary("logical_not", x)


def negative(x: NDArray, /) -> NDArray:
    """-x."""
    return _unary("negative", x)


def round(x: NDArray, /) -> NDArray:
    """The nearest integer, halves to even."""
    return _unary("round", x)


def sign(x: NDArray, /) -> NDArray:
    """-1, 0 or 1; NaN stays."""
    return _unary("sign", x)


def sin(x: NDArray, /) -> NDArray:
    """The sine, of radians."""
    return _unary("sin", x)


def sinh(x: NDArray, /) -> NDArray:
    """The hyperbolic sine."""
    return _unary("sinh", x)


def sqrt(x: NDArray, /) -> NDArray:
    """The square root; NaN below 0."""
    return _unary("sqrt", x)


def square(x: NDArray, /) -> NDArray:
    """x * x."""
    return _unary("square", x)


def tan(x: NDArray, /) -> NDArray:
    """The tangent, of radians."""
    return _unary("tan", x)


def tanh(x: NDArray, /) -> NDArray:
    """The hyperbolic tangent."""
    return _unary("tanh", x)


def trunc(x: NDArray, /) -> NDArray:
    """The nearest integer towards 0."""
    return _unary("trunc", x)


def add(x1: Any, x2: Any, /) -> NDArray:
    """x1 + x2."""
    return _binary("add", x1, x2)


def atan2(x1: Any, x2: Any, /) -> NDArray:
    """The angle of the point (x2, x1), in radians."""
    return _binary("atan2", x1, x2)


def bitwise_and(x1: Any, x2: Any, /) -> NDArray:
    """The bits set in both."""
    return _binary("bitwise_and", x1, x2)


def bitwise_or(x1: Any, x2: Any, /) -> NDArray:
    """The bits set in either."""
    return _binary("bitwise_or", x1, x2)


def bitwise_xor(x1: Any, x2: Any, /) -> NDArray:
    """The bits set in one."""
    return _binary("bitwise_xor", x1, x2)


def divide(x1: Any, x2: Any, /) -> NDArray:
    """x1 / x2; float32 for integers."""
    return _binary("divide", x1, x2)


def equal(x1: Any, x2: Any, /) -> NDArray:
    """x1 == x2."""
    return _binary("equal", x1, x2)


def floor_divide(x1: Any, x2: Any, /) -> NDArray:
    """x1 // x2, rounded down; integer x // 0 is 0."""
    return _binary("floor_divide", x1, x2)


def greater(x1: Any, x2: Any, /) -> NDArray:
    """x1 > x2."""
    return _binary("greater", x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> NDArray:
    """x1 >= x2."""
    return _binary("greater_equal", x1, x2)


def less(x1: Any, x2: Any, /) -> NDArray:
    """x1 < x2."""
    return _binary("less", x1, x2)


def less_equal(x1: Any, x2: Any, /) -> NDArray:
    """x1 <= x2."""
    return _binary("less_equal", x1, x2)


def logical_and(x1: Any, x2: Any, /) -> NDArray:
    """Whether both are not 0."""
    return _binary("logical_and", x1, x2)


def logical_or(x1: Any, x2: Any, /) -> NDArray:
    """Whether either is not 0."""
    return _binary("logical_or", x1, x2)


def logical_xor(x1: Any, x2: Any, /) -> NDArray:
    """Whether just one is not 0."""
    return _binary("logical_xor", x1, x2)


def maximum(x1: Any, x2: Any, /) -> NDArray:
    """The larger; NaN wins."""
    return _binary("maximum", x1, x2)


def minimum(x1: Any, x2: Any, /) -> NDArray:
    """The smaller; NaN wins."""
    return _binary("minimum", x1, x2)


def multiply(x1: Any, x2: Any, /) -> NDArray:
    """x1 * x2."""
    return _binary("multiply", x1, x2)


def not_equal(x1: Any, x2: Any, /) -> NDArray:
    """x1 != x2."""
    return _binary("not_equal", x1, x2)


def power(x1: Any, x2: Any, /) -> NDArray:
    """x1 ** x2."""
    return _binary("power", x1, x2)


def remainder(x1: Any, x2: Any, /) -> NDArray:
    """x1 % x2, of the sign of x2."""
    return _binary("remainder", x1, x2)


def subtract(x1: Any, x2: Any, /) -> NDArray:
    """x1 - x2."""
    return _binary("subtract", x1, x2)
