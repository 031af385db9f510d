"""Elementwise functions: one for each kernel, then functions composed of these.

Operands are arrays or Python scalars, at least one of them an array. They are broadcast and
promoted by the rules of the array API standard. Integers given to a function of real numbers become
float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..dtypes import default_float, is_floating
from ..errors import DTypeError
from ..torch_names import publish
from . import kernels
from .array import SCALARS, NDArray, as_array, from_host, same_device, wrap
from .data_types import isdtype, result_type
from .dtype_rules import common_dtype

Function = TypeVar("Function", bound=Callable[..., NDArray])


def _unary(name: str, doc: str) -> Callable[[NDArray], NDArray]:
    """Return the function of one array that calls the kernel ``name``."""

    def function(x: NDArray, /) -> NDArray:
        return as_array(name, x).unary(name)

    return _named(function, name, doc)


def _binary(name: str, doc: str) -> Callable[[Any, Any], NDArray]:
    """Return the function of two operands that calls the kernel ``name``."""

    def function(x1: Any, x2: Any, /) -> NDArray:
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

    return _named(function, name, doc)


def _named(function: Function, name: str, doc: str) -> Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# ---- the kernels ---------------------------------------------------------------------------------

abs = _unary("abs", "Return the absolute value.")
acos = _unary("acos", "Return the inverse cosine.")
acosh = _unary("acosh", "Return the inverse hyperbolic cosine.")
asin = _unary("asin", "Return the inverse sine.")
asinh = _unary("asinh", "Return the inverse hyperbolic sine.")
atan = _unary("atan", "Return the inverse tangent.")
atanh = _unary("atanh", "Return the inverse hyperbolic tangent.")
bitwise_invert = _unary("bitwise_invert", "Return x with every bit inverted (bool: not).")
ceil = _unary("ceil", "Return the nearest integer above.")
cos = _unary("cos", "Return the cosine of an angle in radians.")
cosh = _unary("cosh", "Return the hyperbolic cosine.")
erf = _unary("erf", "Return the error function.")
exp = _unary("exp", "Return e to the power of x.")
expm1 = _unary("expm1", "Return exp(x) - 1, accurate near 0.")
floor = _unary("floor", "Return the nearest integer below.")
isfinite = _unary("isfinite", "Return True where x is neither infinite nor NaN.")
isinf = _unary("isinf", "Return True where x is infinite.")
isnan = _unary("isnan", "Return True where x is NaN.")
log = _unary("log", "Return the natural logarithm.")
log10 = _unary("log10", "Return the logarithm to base 10.")
log1p = _unary("log1p", "Return log(1 + x), accurate near 0.")
log2 = _unary("log2", "Return the logarithm to base 2.")
logical_not = _unary("logical_not", "Return True where x is 0.")
negative = _unary("negative", "Return -x.")
round = _unary("round", "Return the nearest integer; halves round to even.")
sign = _unary("sign", "Return -1, 0 or 1; NaN for NaN.")
sin = _unary("sin", "Return the sine of an angle in radians.")
sinh = _unary("sinh", "Return the hyperbolic sine.")
sqrt = _unary("sqrt", "Return the square root; NaN below 0.")
square = _unary("square", "Return x * x.")
tan = _unary("tan", "Return the tangent of an angle in radians.")
tanh = _unary("tanh", "Return the hyperbolic tangent.")
trunc = _unary("trunc", "Return the nearest integer towards 0.")

add = _binary("add", "Return x1 + x2.")
atan2 = _binary("atan2", "Return the angle of the point (x2, x1) in radians.")
bitwise_and = _binary("bitwise_and", "Return the bits that are set in both.")
bitwise_or = _binary("bitwise_or", "Return the bits that are set in either.")
bitwise_xor = _binary("bitwise_xor", "Return the bits that are set in exactly one.")
divide = _binary("divide", "Return x1 / x2; float32 for integers.")
equal = _binary("equal", "Return x1 == x2.")
floor_divide = _binary("floor_divide", "Return x1 // x2, rounded down; integer x // 0 is 0.")
greater = _binary("greater", "Return x1 > x2.")
greater_equal = _binary("greater_equal", "Return x1 >= x2.")
less = _binary("less", "Return x1 < x2.")
less_equal = _binary("less_equal", "Return x1 <= x2.")
logical_and = _binary("logical_and", "Return True where both are not 0.")
logical_or = _binary("logical_or", "Return True where either is not 0.")
logical_xor = _binary("logical_xor", "Return True where exactly one is not 0.")
maximum = _binary("maximum", "Return the larger; NaN if either is.")
minimum = _binary("minimum", "Return the smaller; NaN if either is.")
multiply = _binary("multiply", "Return x1 * x2.")
not_equal = _binary("not_equal", "Return x1 != x2.")
power = _binary("power", "Return x1 ** x2.")
remainder = _binary("remainder", "Return x1 % x2, with the sign of x2.")
subtract = _binary("subtract", "Return x1 - x2.")
pow = power


# ---- functions without their own kernel ------------------------------------------------------


def where(condition: Any, x1: Any, x2: Any, /) -> NDArray:
    """Return x1 where the condition is true, else x2, broadcast; x1 and x2 may be scalars."""
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
    """Return ``x`` limited to [min, max]; each bound is an array, a scalar or None.

    The dtype of x is kept, unless x is an integer array and a bound is floating.
    """
    result = as_array("clip", x)
    if min is not None:
        result = maximum(result, min)
    if max is not None:
        result = minimum(result, max)
    if result is x:
        return x.copy()
    rounds = is_floating(result.dtype) and not is_floating(x.dtype)
    return result if rounds else result.astype(x.dtype, copy=False)


def positive(x: NDArray, /) -> NDArray:
    """Return +x: a copy (int64 for bool)."""
    return +as_array("positive", x)


def reciprocal(x: NDArray, /) -> NDArray:
    """Return 1 / x."""
    return 1 / as_array("reciprocal", x)


def signbit(x: NDArray, /) -> NDArray:
    """Return True where the sign bit is set, including that of -0.0 and NaN (floats only)."""
    if not is_floating(as_array("signbit", x).dtype):
        raise DTypeError(f"signbit: the array must be floating, got {x.dtype}; cast it")
    return from_host(np.signbit(np.asarray(x)), x.device)


def bitwise_left_shift(x1: Any, x2: Any, /) -> NDArray:
    """Return the integers x1 shifted left by x2 >= 0 bits."""
    return _on_host("bitwise_left_shift", np.left_shift, "integral", x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> NDArray:
    """Return the integers x1 shifted right by x2 >= 0 bits; the sign is kept."""
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
    """Return zeros, since all of needle's dtypes are real."""
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
    """Return sqrt(x1**2 + x2**2) without overflow; infinity if either is, even if one is NaN."""
    a, b = (_magnitude(x) for x in _as_floats(x1, x2))
    large, small = maximum(a, b), minimum(a, b)
    infinite = (a == math.inf) | (b == math.inf)
    scale = where((large == 0) | infinite, 1.0, large)
    return where(infinite, math.inf, large * sqrt(1 + (small / scale) ** 2))


def logaddexp(x1: Any, x2: Any, /) -> NDArray:
    """Return log(exp(x1) + exp(x2)) without overflow."""
    x1, x2 = _as_floats(x1, x2)
    large, small = maximum(x1, x2), minimum(x1, x2)
    # For equal infinite operands the difference would be NaN, so their gap is set to 0.
    gap = where(large == small, 0.0, small - large)
    return large + log1p(exp(gap))


def _as_floats(*operands: Any) -> list[Any]:
    """Cast integer arrays to the floating dtype to which the arrays promote; keep the rest."""
    common = common_dtype(*[x.dtype for x in operands if isinstance(x, NDArray)])
    wanted = common if is_floating(common) else default_float
    return [x.astype(wanted, copy=False) if isinstance(x, NDArray) else x for x in operands]


def _magnitude(x: Any) -> Any:
    return abs(x) if isinstance(x, NDArray) else math.fabs(x)


publish(__name__)
