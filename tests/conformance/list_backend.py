"""A whole backend over plain Python lists: the ten required functions and nothing else.

Slow and short. Each element is computed by itself, by the NumPy function of the same name on one
scalar; everything else of needle runs on top, through the definitions of the optional kernels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle.backends import Backend, View, register
from needle.backends.base import Operand, Scalar
from needle.dtypes import DType


class Buffer(list):
    """The handle: Python numbers in a list."""

    size = property(len)


def places(view: View) -> list[int]:
    """Where in the buffer the view's elements are, in row-major order."""
    found = [view.offset]
    for length, stride in zip(view.shape, view.strides):
        found = [place + i * stride for place in found for i in range(length)]
    return found


def read(operand: Operand, out: View, dtype: DType) -> list[Any]:
    """The operand's elements as scalars of the dtype; a Python number as often as out needs it."""
    if isinstance(operand, View):
        return [dtype.type(operand.handle[place]) for place in places(operand)]
    return [np.asarray(operand).astype(dtype)[()]] * math.prod(out.shape)


def write(out: View, values: list[Any]) -> None:
    """Stores the values, converted to out's dtype as C does."""
    for place, value in zip(places(out), np.array(values).astype(out.dtype).tolist()):
        out.handle[place] = value


def pairwise(function: Any, values: list[Any], empty: Any) -> Any:
    """function over all values, halves first: float32 sums stay accurate."""
    if len(values) < 2:
        return values[0] if values else empty
    middle = len(values) // 2
    halves = values[:middle], values[middle:]
    return function(*(pairwise(function, half, empty) for half in halves))


FUNCTIONS = {"erf": math.erf, "round": np.rint}
FOLDS = {
    "sum": (np.add, 0),
    "prod": (np.multiply, 1),
    "max": (np.maximum, None),
    "min": (np.minimum, None),
    "any": (np.logical_or, False),
    "all": (np.logical_and, True),
}


def function_of(name: str) -> Any:
    return FUNCTIONS.get(name) or getattr(np, name)


class ListBackend(Backend):
    """Device ``lists``."""

    name = "lists"

    def allocate(self, size: int, dtype: DType) -> Buffer:
        return Buffer([dtype.type(0).item()] * size)

    def upload(self, source: np.ndarray, out: View) -> None:
        write(out, source.ravel().tolist())

    def download(self, a: View) -> np.ndarray:
        return np.array([a.handle[place] for place in places(a)], a.dtype).reshape(a.shape)

    def fill(self, out: View, value: Scalar) -> None:
        write(out, [value] * math.prod(out.shape))

    def copy(self, a: View, out: View) -> None:
        write(out, [a.handle[place] for place in places(a)])

    @np.errstate(all="ignore")
    def unary(self, name: str, a: View, out: View) -> None:
        function = function_of(name)
        write(out, [function(x) for x in read(a, out, a.dtype)])

    @np.errstate(all="ignore")
    def binary(self, name: str, a: Operand, b: Operand, out: View) -> None:
        function, dtype = function_of(name), a.dtype if isinstance(a, View) else b.dtype
        write(out, list(map(function, read(a, out, dtype), read(b, out, dtype))))

    def where(self, condition: View, a: Operand, b: Operand, out: View) -> None:
        chosen = (read(operand, out, out.dtype) for operand in (a, b))
        write(
            out, [x if c else y for c, x, y in zip(read(condition, out, condition.dtype), *chosen)]
        )

    @np.errstate(all="ignore")
    def reduce(self, name: str, a: View, out: View) -> None:
        function, empty = FOLDS[name]
        # Stride 0 along the reduced axes: where each element of a goes.
        strides = tuple(0 if n == 1 else s for n, s in zip(out.shape, out.strides))
        groups: dict[int, list[Any]] = {place: [] for place in places(out)}
        for place, value in zip(
            places(out._replace(shape=a.shape, strides=strides)), read(a, a, a.dtype)
        ):
            groups[place].append(value)
        write(out, [pairwise(function, values, empty) for values in groups.values()])

    def matmul(self, a: View, b: View, out: View) -> None:
        (*batch, m, n), k = out.shape, a.shape[-1]
        left = [a.handle[place] for place in places(a)]
        right = [b.handle[place] for place in places(b)]
        rows = [left[row * k : (row + 1) * k] for row in range(math.prod(batch) * m)]
        result = []
        for index, row in enumerate(rows):
            start = index // m * k * n
            for column in range(start, start + n):
                result.append(sum(x * y for x, y in zip(row, right[column : start + k * n : n])))
        write(out, result)


register("lists", ListBackend)
