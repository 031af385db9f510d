"""A backend on Python's ``array`` with only the ten functions, which compute one number at a time.

It is slow and short. NumPy is used only to exchange arrays with the host. Where Python's arithmetic
raises an error, the backend returns the value of IEEE 754.
"""

from __future__ import annotations

import functools
import math
import operator
from array import array
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from needle.backends import Backend, View
from needle.backends.base import Operand, Scalar
from needle.dtypes import DType

CODES = {"bool": "b", "uint8": "B", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}


class Buffer(array):
    """A handle: numbers of one type, which the array rounds to float32 when it stores them."""

    size = property(len)


def places(view: View) -> list[int]:
    """Return the positions of the view's elements in the buffer, in row-major order."""
    ### BEGIN YOUR SOLUTION [lists-places]
    found = [view.offset]
    for length, stride in zip(view.shape, view.strides):
        found = [place + i * stride for place in found for i in range(length)]
    return found
    ### END YOUR SOLUTION


def converted(value: Any, dtype: DType) -> Any:
    """Return the number in the dtype by C's rules: floats are truncated, integers wrap around."""
    ### BEGIN YOUR SOLUTION [lists-convert]
    if dtype.kind == "f":
        return value
    if dtype.kind == "b":
        return value != 0
    bits = 8 * dtype.itemsize
    low = -(1 << (bits - 1)) if dtype.kind == "i" else 0
    return (int(value if math.isfinite(value) else 0) - low) % (1 << bits) + low
    ### END YOUR SOLUTION


def read(operand: Operand, out: View, dtype: DType) -> list[Any]:
    """Return the operand's elements; convert a Python number and repeat it to the size of out."""
    ### BEGIN YOUR SOLUTION [lists-memory]
    if isinstance(operand, View):
        return [operand.handle[place] for place in places(operand)]
    return [Buffer(CODES[dtype.name], [converted(operand, dtype)])[0]] * math.prod(out.shape)
    ### END YOUR SOLUTION


def write(out: View, values: list[Any]) -> None:
    """Set the view's elements, in row-major order."""
    ### BEGIN YOUR SOLUTION [lists-memory]
    for place, value in zip(places(out), values):
        out.handle[place] = converted(value, out.dtype)
    ### END YOUR SOLUTION


# ---- functions of one number ---------------------------------------------------------------------

POLES = {"atanh": {1.0: inf, -1.0: -inf}, "log1p": {-1.0: -inf}}
POLES |= {name: {0.0: -inf} for name in ("log", "log2", "log10")}


def quiet(name: str) -> Callable[[float], float]:
    """Return a function of ``math`` that gives infinity at poles and on overflow, NaN elsewhere."""
    function, poles = getattr(math, name), POLES.get(name, {})

    def call(x: float) -> float:
        ### BEGIN YOUR SOLUTION [lists-unary]
        try:
            return function(x)
        except OverflowError:
            return -inf if name == "sinh" and x < 0 else inf
        except ValueError:
            return poles.get(x, nan)
        ### END YOUR SOLUTION

    return call


def whole(function: Callable[[float], int]) -> Callable[[float], float]:
    """Return a rounding function that keeps NaN, infinity and the sign of zero."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


MATH = "exp expm1 log log1p log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh"
UNARY: dict[str, Callable[[Any], Any]] = {
    **{name: quiet(name) for name in [*MATH.split(), "atanh", "erf"]},
    "floor": whole(math.floor),
    "ceil": whole(math.ceil),
    "trunc": whole(int),
    "round": whole(round),
    "negative": operator.neg,
    "abs": abs,
    "sign": lambda x: x if x != x else (x > 0) - (x < 0),
    "square": lambda x: x * x,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "logical_not": operator.not_,
    "bitwise_invert": operator.invert,
}


# ---- functions of two numbers --------------------------------------------------------------------


def divide(x: float, y: float) -> float:
    ### BEGIN YOUR SOLUTION [lists-division]
    if y != 0:
        return x / y
    return nan if x == 0 or x != x else math.copysign(inf, x) * math.copysign(1, y)
    ### END YOUR SOLUTION


def floor_divide(x: Any, y: Any) -> Any:
    ### BEGIN YOUR SOLUTION [lists-division]
    if y == 0:
        return divide(x, y) if isinstance(x, float) else 0
    return x // y
    ### END YOUR SOLUTION


def remainder(x: Any, y: Any) -> Any:
    ### BEGIN YOUR SOLUTION [lists-division]
    if y == 0:
        return nan if isinstance(x, float) else 0
    return x % y
    ### END YOUR SOLUTION


def power(x: Any, y: Any) -> Any:
    ### BEGIN YOUR SOLUTION [lists-division]
    if not isinstance(x, float):
        return x**y if y >= 0 or x else 0  # a fraction is truncated when it is stored
    negative = math.copysign(1, x) < 0 and y % 2 == 1
    try:
        return math.pow(x, y)
    except OverflowError:
        return -inf if negative else inf
    except ValueError:
        return nan if x else -inf if negative else inf
    ### END YOUR SOLUTION


def extreme(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a max or min function that propagates NaN."""
    return lambda x, y: x if x != x else y if y != y else pick(x, y)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": divide,
    "floor_divide": floor_divide,
    "remainder": remainder,
    "power": power,
    "maximum": extreme(max),
    "minimum": extreme(min),
    "atan2": math.atan2,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "logical_and": lambda x, y: bool(x) and bool(y),
    "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_xor": lambda x, y: bool(x) != bool(y),
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def exact_sum(values: list[Any]) -> Any:
    """Return the sum, rounded once."""
    ### BEGIN YOUR SOLUTION [lists-reduce]
    try:
        return math.fsum(values) if values and isinstance(values[0], float) else sum(values)
    except (OverflowError, ValueError):  # infinities of both signs, or a sum beyond float64
        return sum(values)
    ### END YOUR SOLUTION


REDUCE: dict[str, Callable[[list[Any]], Any]] = {
    "sum": exact_sum,
    "prod": math.prod,
    "max": lambda values: functools.reduce(BINARY["maximum"], values),
    "min": lambda values: functools.reduce(BINARY["minimum"], values),
    "any": any,
    "all": all,
}


class ListsBackend(Backend):
    """The backend of the device ``lists``."""

    name = "lists"
    dtypes = tuple(CODES)
    known_failures = Path(__file__).with_name("known_failures.txt").read_text().split()

    def allocate(self, size: int, dtype: DType) -> Buffer:
        ### BEGIN YOUR SOLUTION [lists-memory]
        return Buffer(CODES[dtype.name], bytes(size * dtype.itemsize))
        ### END YOUR SOLUTION

    def upload(self, source: np.ndarray, out: View) -> None:
        ### BEGIN YOUR SOLUTION [lists-memory]
        write(out, source.ravel().tolist())
        ### END YOUR SOLUTION

    def download(self, a: View) -> np.ndarray:
        ### BEGIN YOUR SOLUTION [lists-memory]
        return np.array(read(a, a, a.dtype), a.dtype).reshape(a.shape)
        ### END YOUR SOLUTION

    def fill(self, out: View, value: Scalar) -> None:
        ### BEGIN YOUR SOLUTION [lists-copy]
        write(out, [value] * math.prod(out.shape))
        ### END YOUR SOLUTION

    def copy(self, a: View, out: View) -> None:
        ### BEGIN YOUR SOLUTION [lists-copy]
        write(out, read(a, out, a.dtype))
        ### END YOUR SOLUTION

    def unary(self, name: str, a: View, out: View) -> None:
        ### BEGIN YOUR SOLUTION [lists-unary]
        if name == "bitwise_invert" and a.dtype.kind == "b":
            name = "logical_not"
        write(out, list(map(UNARY[name], read(a, out, a.dtype))))
        ### END YOUR SOLUTION

    def binary(self, name: str, a: Operand, b: Operand, out: View) -> None:
        ### BEGIN YOUR SOLUTION [lists-binary]
        dtype = a.dtype if isinstance(a, View) else b.dtype
        write(out, list(map(BINARY[name], read(a, out, dtype), read(b, out, dtype))))
        ### END YOUR SOLUTION

    def where(self, condition: View, a: Operand, b: Operand, out: View) -> None:
        ### BEGIN YOUR SOLUTION [lists-where]
        pick, left, right = (read(each, out, out.dtype) for each in (condition, a, b))
        write(out, [x if wanted else y for wanted, x, y in zip(pick, left, right)])
        ### END YOUR SOLUTION

    def reduce(self, name: str, a: View, out: View) -> None:
        ### BEGIN YOUR SOLUTION [lists-reduce]
        # Stride 0 on the reduced axes gives the target of each element of a.
        strides = tuple(0 if n == 1 else s for n, s in zip(out.shape, out.strides))
        groups: dict[int, list[Any]] = {place: [] for place in places(out)}
        targets = places(out._replace(shape=a.shape, strides=strides))
        for place, value in zip(targets, read(a, a, a.dtype)):
            groups[place].append(value)
        write(out, [REDUCE[name](values) for values in groups.values()])
        ### END YOUR SOLUTION

    def matmul(self, a: View, b: View, out: View) -> None:
        ### BEGIN YOUR SOLUTION [lists-matmul]
        (*batch, m, n), k = out.shape, a.shape[-1]
        left, right = read(a, a, a.dtype), read(b, b, b.dtype)
        result = []
        for i in range(math.prod(batch)):
            columns = [right[i * k * n + j : (i + 1) * k * n : n] for j in range(n)]
            for start in range(i * m * k, (i + 1) * m * k, k or 1):
                row = left[start : start + k]
                result += [sum(map(operator.mul, row, column)) for column in columns]
            if not k:
                result += [0] * (m * n)
        write(out, result)
        ### END YOUR SOLUTION
