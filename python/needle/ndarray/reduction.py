"""Reductions: over None (every axis), one axis or a tuple of axes, with ``keepdims``.

sum, prod, max, min, any and all are kernels; mean, var, std and cumulative sums are made of them.
Sums of bool and integers are int64; a mean of integers is float32.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype, default_float, is_floating
from ..errors import ShapeError
from ..shapes import normalize_axes, normalize_axis, product
from .array import NDArray
from .elementwise import as_array, sqrt


def sum(x: NDArray, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """The sum, in ``dtype`` if one is given."""
    return _summed("sum", x, axis, dtype, keepdims)


def prod(x: NDArray, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """The product, in ``dtype`` if one is given."""
    return _summed("prod", x, axis, dtype, keepdims)


def _summed(name: str, x: NDArray, axis: Any, dtype: Any, keepdims: bool) -> NDArray:
    as_array(name, x)
    if dtype is None:
        return x._reduce(name, axis, keepdims)
    wanted = as_dtype(dtype, name)
    return x.astype(wanted, copy=False)._reduce(name, axis, keepdims).astype(wanted, copy=False)


def summation(a: NDArray, axis: Any = None, keepdims: bool = False) -> NDArray:
    """``sum`` under the course's name."""
    return sum(a, axis, keepdims=keepdims)


def max(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The maximum; NaN wins."""
    return as_array("max", x)._reduce("max", axis, keepdims)


def min(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The minimum; NaN wins."""
    return as_array("min", x)._reduce("min", axis, keepdims)


def any(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Whether any element is not 0."""
    return as_array("any", x)._reduce("any", axis, keepdims)


def all(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Whether no element is 0."""
    return as_array("all", x)._reduce("all", axis, keepdims)


def count_nonzero(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """How many elements are not 0 (int64)."""
    return sum(as_array("count_nonzero", x) != 0, axis, keepdims=keepdims)


def _floats(name: str, x: NDArray) -> NDArray:
    return as_array(name, x) if is_floating(x.dtype) else x.astype(default_float)


def mean(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The mean; NaN of no elements."""
    x = _floats("mean", x)
    count = product(x.shape[axis] for axis in normalize_axes("mean", axis, x.ndim))
    total = x._reduce("sum", axis, keepdims)
    return total / count


def var(
    x: NDArray, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False
) -> NDArray:
    """The mean squared distance from the mean, over n - correction; NaN where that is <= 0."""
    x = _floats("var", x)
    count = product(x.shape[axis] for axis in normalize_axes("var", axis, x.ndim))
    distance = x - mean(x, axis, keepdims=True)
    total = (distance * distance)._reduce("sum", axis, keepdims)
    return total / (count - correction) if count > correction else total * float("nan")


def std(
    x: NDArray, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False
) -> NDArray:
    """The square root of ``var``."""
    return sqrt(var(x, axis, correction=correction, keepdims=keepdims))


def cumulative_sum(
    x: NDArray,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> NDArray:
    """Running sums along ``axis`` (which only a 1-D array may leave out).

    Sums of 2, 4, 8, ... neighbours are combined, so float32 rounding grows with log(n) only.
    """
    place = _running_axis(as_array("cumulative_sum", x), axis)
    start = sum(x, (), dtype=dtype)
    if include_initial:
        pairs = [(int(i == place), 0) for i in range(x.ndim)]
        start = start.pad(pairs)
    result, reach = start.copy(), 1
    while reach < result.shape[place]:
        later = (slice(None),) * place + (slice(reach, None),)
        earlier = (slice(None),) * place + (slice(None, -reach),)
        result[later] = result[later] + result[earlier]
        reach *= 2
    return result


def _running_axis(x: NDArray, axis: int | None) -> int:
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(
                f"cumulative_sum: axis may be left out for 1-D arrays only, got shape {x.shape}"
            )
        return 0
    return normalize_axis("cumulative_sum", axis, x.ndim)
