"""Elementwise functions without a kernel of their own, written with those that have one.

``where`` and ``clip`` included. The kernel rows are in ``elementwise``.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from ..dtypes import bool_, default_float, is_floating, promote
from ..errors import DTypeError
from . import kernels
from .array import NDArray, same_device, wrap
from .elementwise import abs, as_array, exp, log1p, maximum, minimum, sqrt


def positive(x: NDArray, /) -> NDArray:
    """+x: a copy (int64 for bool)."""
    return +as_array("positive", x)


def reciprocal(x: NDArray, /) -> NDArray:
    """1 / x."""
    return 1 / as_array("reciprocal", x)


def signbit(x: NDArray, /) -> NDArray:
    """Whether the sign is negative, of zeros too (floats only; NaN counts as positive)."""
    if not is_floating(as_array("signbit", x).dtype):
        raise DTypeError(f"signbit: the array must be floating, got {x.dtype}; cast it")
    return (x < 0) | ((x == 0) & (1 / x < 0))


def copysign(x1: Any, x2: Any, /) -> NDArray:
    """|x1| with the sign of x2 (floats only)."""
    for x in (x1, x2):
        if isinstance(x, NDArray) and not is_floating(x.dtype):
            raise DTypeError(f"copysign: operands must be floating, got {x.dtype}; cast them")
    x1, x2 = _as_floats(x1, x2)
    size: Any = abs(x1) if isinstance(x1, NDArray) else math.fabs(x1)
    if not isinstance(x2, NDArray):
        signed: NDArray = size if math.copysign(1.0, x2) > 0 else -size
        return signed
    return where(signbit(x2), -size, size)


def hypot(x1: Any, x2: Any, /) -> NDArray:
    """sqrt(x1**2 + x2**2) without overflow: the larger is factored out. Infinity wins over NaN."""
    a, b = (_magnitude(x) for x in _as_floats(x1, x2))
    large, small = maximum(a, b), minimum(a, b)
    infinite = (a == math.inf) | (b == math.inf)
    scale = where((large == 0) | infinite, 1.0, large)
    return where(infinite, math.inf, large * sqrt(1 + (small / scale) ** 2))


def _as_floats(*operands: Any) -> list[Any]:
    """Arrays of integers in the floating dtype that the arrays promote to; the rest as it is."""
    dtypes = [x.dtype for x in operands if isinstance(x, NDArray)]
    common = reduce(promote, dtypes, bool_)
    wanted = common if is_floating(common) else default_float
    return [x.astype(wanted, copy=False) if isinstance(x, NDArray) else x for x in operands]


def _magnitude(x: Any) -> Any:
    return abs(x) if isinstance(x, NDArray) else math.fabs(x)


def logaddexp(x1: Any, x2: Any, /) -> NDArray:
    """log(exp(x1) + exp(x2)) without overflow."""
    x1, x2 = _as_floats(x1, x2)
    large, small = maximum(x1, x2), minimum(x1, x2)
    # inf - inf is NaN: equal operands differ by 0, whatever they are.
    gap = where(large == small, 0.0, small - large)
    return large + log1p(exp(gap))


def clip(x: NDArray, /, min: Any = None, max: Any = None) -> NDArray:
    """``x`` limited to [min, max], either of them an array, a scalar or None; x's dtype stays."""
    result = as_array("clip", x)
    if min is not None:
        result = maximum(result, min)
    if max is not None:
        result = minimum(result, max)
    if result is x:
        return x.copy()
    return result.astype(x.dtype, copy=False)


def where(condition: Any, x1: Any, x2: Any, /) -> NDArray:
    """x1 where the condition holds else x2, broadcast; x1 and x2 may be Python scalars."""
    items = (condition, x1, x2)
    array = next((item for item in items if isinstance(item, NDArray)), None)
    if array is None:
        raise DTypeError("where: at least one operand must be an NDArray, got none; use asarray")
    views = [_operand(array, item) for item in items]
    if not isinstance(condition, NDArray):
        views[0] = NDArray(np.asarray(condition) != 0, device=array.device)._view
    return wrap(kernels.where(array.device.backend, *views), array.device)


def _operand(array: NDArray, item: Any) -> Any:
    """An operand as a view on the array's device, or a Python scalar."""
    if isinstance(item, NDArray):
        same_device("where", array, item)
        return item._view
    if type(item) in (bool, int, float):
        return item
    other = array._foreign("where", item)
    if other is NotImplemented:
        raise DTypeError(
            f"where: operands must be arrays or scalars, got {type(item).__name__}; use asarray"
        )
    return other
