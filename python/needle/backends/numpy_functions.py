"""NumPy's functions for the names of ``unary`` and ``binary``, and those that NumPy lacks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from .base import BINARY, UNARY

Array = NumpyArray[Any]


def _erf(x: Array, out: Array) -> None:
    values = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    out[...] = values.reshape(x.shape)


def _integer_power(a: Array, b: Array, out: Array) -> None:
    """Compute a**b; a negative exponent truncates the true value toward zero (1/0 counts as 0)."""
    negative = b < 0
    result = np.power(a, np.where(negative, 0, b).astype(out.dtype))
    if negative.any():
        alternating = np.where(b & 1, -1, 1)
        reciprocal = np.where(a == 1, 1, np.where(a == -1, alternating, 0))
        result = np.where(negative, reciprocal, result)
    out[...] = result  # written last, because out may be an operand


def _power(a: Array, b: Array, out: Array) -> None:
    if out.dtype.kind == "i":
        _integer_power(a, b, out)
    # an array of exponents, because np.power with the scalar 0.5 is sqrt, which is NaN at -inf
    else:
        np.power(a, np.broadcast_to(b, out.shape), out=out)


_RENAMED = {"round": "rint", "bitwise_invert": "invert", "atan2": "arctan2"} | {
    name: name.replace("a", "arc", 1)
    for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
}


def _in_float64(name: str) -> Any:
    """Return NumPy's function computed in float64, since float32 errors reach 4 ulp."""
    function = getattr(np, _RENAMED.get(name, name))

    def compute(*operands: Array, out: Array) -> None:
        function(*operands, out=out, dtype=np.float64, casting="same_kind")

    return compute


_WIDE = (
    "exp expm1 log log1p log2 log10 tan asin acos atan sinh cosh asinh acosh atanh atan2".split()
)
_OWN: dict[str, Any] = {"erf": _erf, "power": _power}
_OWN |= {name: _in_float64(name) for name in _WIDE}


def _functions(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _OWN.get(name) or getattr(np, _RENAMED.get(name, name)) for name in names}


UNARY_FUNCTIONS = _functions(UNARY)
BINARY_FUNCTIONS = _functions(BINARY)


def quiet() -> np.errstate:
    """Suppress NumPy's warnings, since results follow IEEE 754 as on other backends."""
    return np.errstate(all="ignore")


def unary(name: str, a: Any) -> Array:
    """Apply a required unary function to a floating NumPy array or scalar."""
    out: Array = np.empty(np.shape(a), a.dtype)
    with quiet():
        UNARY_FUNCTIONS[name](np.asarray(a), out=out)
    return out
