# Trail 7 of 30: the ten functions of a backend, in NumPy.
# Next: src/core/view.h
"""The NumPy backend, device ``cpu_numpy``: the ten required functions, each a call of NumPy.

The other backends are tested against it, and it needs no compiler. A handle is a one-dimensional
``numpy.ndarray``. It has only those optional kernels whose definition would loop although NumPy has
a function for them; for the others, the definition runs on NumPy already.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..dtypes import KIND, DType
from .base import BINARY, REDUCE, UNARY, Backend, Operand, Scalar, View

Array = NumpyArray[Any]


def erf(x: Any) -> Array:
    """Return the error function, elementwise, with the accuracy of ``math.erf`` (NumPy has none).

    The result has the shape and dtype of ``x``.
    """
    x = np.asarray(x)
    values = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return values.reshape(x.shape).astype(x.dtype)


def _erf(x: Array, out: Array) -> None:
    out[...] = erf(x)


def _integer_power(a: Array, b: Array, out: Array) -> None:
    """Compute a**b; a negative exponent truncates the true value toward zero (1/0 counts as 0)."""
    negative = b < 0
    result = np.power(a, np.where(negative, 0, b).astype(out.dtype))
    if negative.any():
        alternating = np.where(b & 1, -1, 1)
        reciprocal = np.where(a == 1, 1, np.where(a == -1, alternating, 0))
        result = np.where(negative, reciprocal, result)
    out[...] = result  # last: out may be an operand


def _power(a: Array, b: Array, out: Array) -> None:
    if out.dtype.kind == "i":
        _integer_power(a, b, out)
    else:  # an exponent of full shape: np.power(-inf, 0.5) of a scalar is the square root, NaN
        np.power(a, np.broadcast_to(b, out.shape), out=out)


_RENAMED = {"round": "rint", "bitwise_invert": "invert", "atan2": "arctan2"} | {
    name: name.replace("a", "arc", 1)
    for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
}


def _in_float64(name: str) -> Any:
    """Return NumPy's function, computed in float64 and rounded to the dtype of ``out``.

    NumPy's float32 functions are up to 4 ulp away; sin, cos, tanh and power are within 1.5.
    """
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


_UNARY = _functions(UNARY)
_BINARY = _functions(BINARY)
_REDUCE = {name: getattr(np, name) for name in REDUCE}


def unary(name: str, a: Any) -> Array:
    """Return a required unary function of a floating NumPy array or scalar."""
    out = np.empty(np.shape(a), a.dtype)
    with _quiet():
        _UNARY[name](a, out=out)
    return out


def array_of(view: View) -> Array:
    """Return the view as a writable NumPy array on the handle's memory."""
    handle, shape, strides, offset, dtype = view
    if 0 in shape:
        return np.empty(shape, dtype)
    size = dtype.itemsize
    return np.ndarray(
        shape, dtype, buffer=handle, offset=offset * size, strides=[s * size for s in strides]
    )


def _convert(value: Scalar, dtype: DType) -> Array:
    """Return the scalar as a 0-d array of the dtype, converted as in C (integers wrap around)."""
    return np.asarray(value).astype(dtype)


def _pair(a: Operand, b: Operand, dtype: DType) -> tuple[Array, Array]:
    return (
        array_of(a) if isinstance(a, View) else _convert(a, dtype),
        array_of(b) if isinstance(b, View) else _convert(b, dtype),
    )


def _quiet() -> np.errstate:
    """Suppress NumPy's warnings: results follow IEEE 754, as those of the other backends do."""
    return np.errstate(all="ignore")


class NumpyBackend(Backend):
    """The functions of the interface, written with NumPy."""

    name = "cpu_numpy"

    def allocate(self, size: int, dtype: DType) -> Array:
        return np.empty(size, dtype)

    def upload(self, source: Array, out: View) -> None:
        array_of(out)[...] = source

    def download(self, a: View) -> Array:
        return np.array(array_of(a), order="C")

    def fill(self, out: View, value: Scalar) -> None:
        with _quiet():
            array_of(out)[...] = _convert(value, out.dtype)

    def copy(self, a: View, out: View) -> None:
        with _quiet():
            np.copyto(array_of(out), array_of(a), casting="unsafe")

    def unary(self, name: str, a: View, out: View) -> None:
        with _quiet():
            _UNARY[name](array_of(a), out=array_of(out))

    def binary(self, name: str, a: Operand, b: Operand, out: View) -> None:
        dtype = a.dtype if isinstance(a, View) else b.dtype if isinstance(b, View) else out.dtype
        with _quiet():
            left, right = _pair(a, b, dtype)
            _BINARY[name](left, right, out=array_of(out))

    def where(self, condition: View, a: Operand, b: Operand, out: View) -> None:
        with _quiet():
            left, right = _pair(a, b, out.dtype)
            array_of(out)[...] = np.where(array_of(condition), left, right)

    def reduce(self, name: str, a: View, out: View) -> None:
        axes = tuple(i for i, n in enumerate(out.shape) if n == 1)
        options: dict[str, Any] = {}
        if name in ("sum", "prod"):
            # NumPy sums pairwise along the last axis only; float64 is accurate along every axis.
            options["dtype"] = np.float64 if a.dtype == np.float32 else a.dtype
        with _quiet():
            result = _REDUCE[name](array_of(a), axis=axes, keepdims=True, **options)
            np.copyto(array_of(out), result, casting="unsafe")

    def matmul(self, a: View, b: View, out: View) -> None:
        with _quiet():
            np.matmul(array_of(a), array_of(b), out=array_of(out))

    # ---- optional ----------------------------------------------------------------------------

    def gather(self, a: View, index: View, out: View) -> None:
        array_of(out)[...] = array_of(a)[array_of(index)]

    def scatter(self, a: View, index: View, out: View) -> None:
        array_of(out)[array_of(index)] = array_of(a)

    def scatter_add(self, a: View, index: View, out: View) -> None:
        with _quiet():
            np.add.at(array_of(out), array_of(index), array_of(a))

    def one_hot(self, index: View, out: View) -> None:
        array_of(out)[...] = array_of(index)[:, None] == np.arange(out.shape[1])

    def argmax(self, a: View, out: View, axis: int) -> None:
        if 0 not in out.shape:  # NumPy raises for an empty axis even if the result is empty
            array_of(out)[...] = np.argmax(array_of(a), axis=axis, keepdims=True)

    def argmin(self, a: View, out: View, axis: int) -> None:
        if 0 not in out.shape:  # NumPy raises for an empty axis even if the result is empty
            array_of(out)[...] = np.argmin(array_of(a), axis=axis, keepdims=True)

    # ---- services ----------------------------------------------------------------------------

    def adopt(self, source: Array) -> Array | None:
        flags = source.flags
        if not (flags.c_contiguous and flags.writeable and flags.aligned):
            return None
        if source.dtype not in KIND or not source.dtype.isnative:
            return None
        return source.reshape(-1).view(np.ndarray)

    def export(self, a: View) -> Array | None:
        return array_of(a)
