"""Elementwise functions: one for each kernel, then those that are written with them.

Operands are arrays or Python scalars, at least one array. They broadcast and promote by the array
API standard. Integers given to a function of real numbers become float32.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from ..dtypes import bool_, default_float, is_floating, promote
from ..errors import DTypeError
from . import kernels
from .array import SCALARS, NDArray, from_host, same_device, wrap
from .data_types import isdtype, result_type


def _unary(name: str, x: Any) -> NDArray:
    return as_array(name, x).unary(name)


def _binary(name: str, x1: Any, x2: Any) -> NDArray:
    if isinstance(x1, NDArray):
        result = x1.binary(name, x2)
    else:
        result = as_array(name, x2).binary(name, x1, True)
    if result is NotImplemented:
        raise DTypeError(
            f"{name}: operands must be arrays or scalars, got {type(x1).__name__} and "
            f"{type(x2).__name__}; use asarray"
        )
    return result


def as_array(op: str, x: Any) -> NDArray:
    """Return ``x`` if it is an NDArray; DTypeError otherwise."""
    if not isinstance(x, NDArray):
        raise DTypeError(
            f"{op}: the operand must be an NDArray, got {type(x).__name__}; use asarray"
        )
    return x


def abs(x: NDArray, /) -> NDArray:
    """Return the absolute value."""
    return _unary("abs", x)


def acos(x: NDArray, /) -> NDArray:
    """Return the inverse cosine."""
    return _unary("acos", x)


def acosh(x: NDArray, /) -> NDArray:
    """Return the inverse hyperbolic cosine."""
    return _unary("acosh", x)


def asin(x: NDArray, /) -> NDArray:
    """Return the inverse sine."""
    return _unary("asin", x)


def asinh(x: NDArray, /) -> NDArray:
    """Return the inverse hyperbolic sine."""
    return _unary("asinh", x)


def atan(x: NDArray, /) -> NDArray:
    """Return the inverse tangent."""
    return _unary("atan", x)


def atanh(x: NDArray, /) -> NDArray:
    """Return the inverse hyperbolic tangent."""
    return _unary("atanh", x)


def bitwise_invert(x: NDArray, /) -> NDArray:
    """Return x with every bit inverted (bool: not)."""
    return _unary("bitwise_invert", x)


def ceil(x: NDArray, /) -> NDArray:
    """Return the nearest integer above."""
    return _unary("ceil", x)


def cos(x: NDArray, /) -> NDArray:
    """Return the cosine of an angle in radians."""
    return _unary("cos", x)


def cosh(x: NDArray, /) -> NDArray:
    """Return the hyperbolic cosine."""
    return _unary("cosh", x)


def erf(x: NDArray, /) -> NDArray:
    """Return the error function."""
    return _unary("erf", x)


def exp(x: NDArray, /) -> NDArray:
    """Return e to the power of x."""
    return _unary("exp", x)


def expm1(x: NDArray, /) -> NDArray:
    """Return exp(x) - 1, accurate near 0."""
    return _unary("expm1", x)


def floor(x: NDArray, /) -> NDArray:
    """Return the nearest integer below."""
    return _unary("floor", x)


def isfinite(x: NDArray, /) -> NDArray:
    """Return True where x is neither infinite nor NaN."""
    return _unary("isfinite", x)


def isinf(x: NDArray, /) -> NDArray:
    """Return True where x is infinite."""
    return _unary("isinf", x)


def isnan(x: NDArray, /) -> NDArray:
    """Return True where x is NaN."""
    return _unary("isnan", x)


def log(x: NDArray, /) -> NDArray:
    """Return the natural logarithm."""
    return _unary("log", x)


def log10(x: NDArray, /) -> NDArray:
    """Return the logarithm to base 10."""
    return _unary("log10", x)


def log1p(x: NDArray, /) -> NDArray:
    """Return log(1 + x), accurate near 0."""
    return _unary("log1p", x)


def log2(x: NDArray, /) -> NDArray:
    """Return the logarithm to base 2."""
    return _unary("log2", x)


def logical_not(x: NDArray, /) -> NDArray:
    """Return True where x is 0."""
    return _unary("logical_not", x)


def negative(x: NDArray, /) -> NDArray:
    """Return -x."""
    return _unary("negative", x)


def round(x: NDArray, /) -> NDArray:
    """Return the nearest integer; halves round to even."""
    return _unary("round", x)


def sign(x: NDArray, /) -> NDArray:
    """Return -1, 0 or 1; NaN for NaN."""
    return _unary("sign", x)


def sin(x: NDArray, /) -> NDArray:
    """Return the sine of an angle in radians."""
    return _unary("sin", x)


def sinh(x: NDArray, /) -> NDArray:
    """Return the hyperbolic sine."""
    return _unary("sinh", x)


def sqrt(x: NDArray, /) -> NDArray:
    """Return the square root; NaN below 0."""
    return _unary("sqrt", x)


def square(x: NDArray, /) -> NDArray:
    """Return x * x."""
    return _unary("square", x)


def tan(x: NDArray, /) -> NDArray:
    """Return the tangent of an angle in radians."""
    return _unary("tan", x)


def tanh(x: NDArray, /) -> NDArray:
    """Return the hyperbolic tangent."""
    return _unary("tanh", x)


def trunc(x: NDArray, /) -> NDArray:
    """Return the nearest integer towards 0."""
    return _unary("trunc", x)


def add(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 + x2."""
    return _binary("add", x1, x2)


def atan2(x1: Any, x2: Any, /) -> NDArray:
    """Return the angle of the point (x2, x1) in radians."""
    return _binary("atan2", x1, x2)


def bitwise_and(x1: Any, x2: Any, /) -> NDArray:
    """Return the bits that are set in both."""
    return _binary("bitwise_and", x1, x2)


def bitwise_or(x1: Any, x2: Any, /) -> NDArray:
    """Return the bits that are set in either."""
    return _binary("bitwise_or", x1, x2)


def bitwise_xor(x1: Any, x2: Any, /) -> NDArray:
    """Return the bits that are set in exactly one."""
    return _binary("bitwise_xor", x1, x2)


def divide(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 / x2; float32 for integers."""
    return _binary("divide", x1, x2)


def equal(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 == x2."""
    return _binary("equal", x1, x2)


def floor_divide(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 // x2, rounded down; integer x // 0 is 0."""
    return _binary("floor_divide", x1, x2)


def greater(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 > x2."""
    return _binary("greater", x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 >= x2."""
    return _binary("greater_equal", x1, x2)


def less(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 < x2."""
    return _binary("less", x1, x2)


def less_equal(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 <= x2."""
    return _binary("less_equal", x1, x2)


def logical_and(x1: Any, x2: Any, /) -> NDArray:
    """Return True where both are not 0."""
    return _binary("logical_and", x1, x2)


def logical_or(x1: Any, x2: Any, /) -> NDArray:
    """Return True where either is not 0."""
    return _binary("logical_or", x1, x2)


def logical_xor(x1: Any, x2: Any, /) -> NDArray:
    """Return True where exactly one is not 0."""
    return _binary("logical_xor", x1, x2)


def maximum(x1: Any, x2: Any, /) -> NDArray:
    """Return the larger; NaN if either is."""
    return _binary("maximum", x1, x2)


def minimum(x1: Any, x2: Any, /) -> NDArray:
    """Return the smaller; NaN if either is."""
    return _binary("minimum", x1, x2)


def multiply(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 * x2."""
    return _binary("multiply", x1, x2)


def not_equal(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 != x2."""
    return _binary("not_equal", x1, x2)


def power(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 ** x2."""
    return _binary("power", x1, x2)


pow = power


def remainder(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 % x2, with the sign of x2."""
    return _binary("remainder", x1, x2)


def subtract(x1: Any, x2: Any, /) -> NDArray:
    """Return x1 - x2."""
    return _binary("subtract", x1, x2)


# ---- functions without a kernel of their own -------------------------------------------------


def where(condition: Any, x1: Any, x2: Any, /) -> NDArray:
    """Return x1 where the condition holds, else x2, broadcast; x1 and x2 may be scalars."""
    items = (condition, x1, x2)
    array = next((item for item in items if isinstance(item, NDArray)), None)
    if array is None:
        raise DTypeError("where: at least one operand must be an NDArray, got none; use asarray")
    views = [_operand(array, item) for item in items]
    if not isinstance(condition, NDArray):
        views[0] = NDArray(np.asarray(condition) != 0, device=array.device).view
    return wrap(kernels.where(array.device.backend, *views), array.device)


def _operand(array: NDArray, item: Any) -> Any:
    """Return an operand of ``where`` as a view on the array's device or a Python scalar."""
    if isinstance(item, NDArray):
        same_device("where", array, item)
        return item.view
    if type(item) in SCALARS:
        return item
    other = array.foreign_operand("where", item)
    if other is NotImplemented:
        raise DTypeError(
            f"where: operands must be arrays or scalars, got {type(item).__name__}; use asarray"
        )
    return other


def clip(x: NDArray, /, min: Any = None, max: Any = None) -> NDArray:
    """Return ``x`` limited to [min, max], each an array, a scalar or None; x's dtype is kept."""
    result = as_array("clip", x)
    if min is not None:
        result = maximum(result, min)
    if max is not None:
        result = minimum(result, max)
    if result is x:
        return x.copy()
    return result.astype(x.dtype, copy=False)


def positive(x: NDArray, /) -> NDArray:
    """Return +x: a copy (int64 for bool)."""
    return +as_array("positive", x)


def reciprocal(x: NDArray, /) -> NDArray:
    """Return 1 / x."""
    return 1 / as_array("reciprocal", x)


def signbit(x: NDArray, /) -> NDArray:
    """Return True where the sign is negative, also for -0.0 and NaN (floats only)."""
    if not is_floating(as_array("signbit", x).dtype):
        raise DTypeError(f"signbit: the array must be floating, got {x.dtype}; cast it")
    return from_host(np.signbit(np.asarray(x)), x.device)


def bitwise_left_shift(x1: Any, x2: Any, /) -> NDArray:
    """Return the integers x1 shifted left by x2 >= 0 bits."""
    return _on_host("bitwise_left_shift", np.left_shift, "integral", x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> NDArray:
    """Return the integers x1 shifted right by x2 >= 0 bits; the sign stays."""
    return _on_host("bitwise_right_shift", np.right_shift, "integral", x1, x2)


def nextafter(x1: Any, x2: Any, /) -> NDArray:
    """Return the number next to x1 in the direction of x2 (floats only)."""
    return _on_host("nextafter", np.nextafter, "real floating", x1, x2)


def _on_host(op: str, function: Any, kind: str, x1: Any, x2: Any) -> NDArray:
    """Return the result of a NumPy function for which no backend has a kernel."""
    common = result_type(x1, x2)
    if not isdtype(common, kind):
        raise DTypeError(f"{op}: operands must be of kind {kind!r}, got {common}; cast them")
    first = x1 if isinstance(x1, NDArray) else as_array(op, x2)
    if isinstance(x2, NDArray):
        same_device(op, first, x2)
    hosts = (np.asarray(x).astype(common) for x in (x1, x2))
    return from_host(np.asarray(function(*hosts)), first.device)


def conj(x: NDArray, /) -> NDArray:
    """Return a copy: the complex conjugate of a real number is the number itself."""
    return as_array("conj", x).copy()


def real(x: NDArray, /) -> NDArray:
    """Return a copy: every dtype of needle is real."""
    return as_array("real", x).copy()


def imag(x: NDArray, /) -> NDArray:
    """Return zeros: every dtype of needle is real."""
    return as_array("imag", x) * 0


def copysign(x1: Any, x2: Any, /) -> NDArray:
    """Return |x1| with the sign of x2 (floats only)."""
    for x in (x1, x2):
        if isinstance(x, NDArray) and not is_floating(x.dtype):
            raise DTypeError(f"copysign: operands must be floating, got {x.dtype}; cast them")
    x1, x2 = _as_floats(x1, x2)
    size = _magnitude(x1)
    if not isinstance(x2, NDArray):
        signed: NDArray = size if math.copysign(1.0, x2) > 0 else -size
        return signed
    return where(signbit(x2), -size, size)


def hypot(x1: Any, x2: Any, /) -> NDArray:
    """Return sqrt(x1**2 + x2**2) without overflow; infinity if either is, even beside NaN."""
    a, b = (_magnitude(x) for x in _as_floats(x1, x2))
    large, small = maximum(a, b), minimum(a, b)
    infinite = (a == math.inf) | (b == math.inf)
    scale = where((large == 0) | infinite, 1.0, large)
    return where(infinite, math.inf, large * sqrt(1 + (small / scale) ** 2))


def logaddexp(x1: Any, x2: Any, /) -> NDArray:
    """Return log(exp(x1) + exp(x2)) without overflow."""
    x1, x2 = _as_floats(x1, x2)
    large, small = maximum(x1, x2), minimum(x1, x2)
    # inf - inf is NaN, but equal operands are close.
    gap = where(large == small, 0.0, small - large)
    return large + log1p(exp(gap))


def _as_floats(*operands: Any) -> list[Any]:
    """Return integer arrays in the floating dtype that the arrays promote to; keep the rest."""
    dtypes = [x.dtype for x in operands if isinstance(x, NDArray)]
    common = reduce(promote, dtypes, bool_)
    wanted = common if is_floating(common) else default_float
    return [x.astype(wanted, copy=False) if isinstance(x, NDArray) else x for x in operands]


def _magnitude(x: Any) -> Any:
    return abs(x) if isinstance(x, NDArray) else math.fabs(x)
