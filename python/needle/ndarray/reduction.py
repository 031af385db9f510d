"""Reductions over every axis (None), one axis or a tuple of axes, with ``keepdims``.

sum, prod, max, min, any and all are kernels; mean, var, std and cumulative sums are composed
of them. Sums of bool and integers are int64; a mean of integers is float32.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import as_dtype, bool_
from ..errors import ShapeError
from ..shapes import as_int_tuple, normalize_axis, product
from ..torch_names import publish
from .array import NDArray, along, as_array, only_axis
from .manipulation import concat


def sum(x: NDArray, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """Return the sum, computed in ``dtype`` if one is given."""
    return _summed("sum", x, axis, dtype, keepdims)


def prod(x: Any, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Return the product, computed in ``dtype`` if one is given.

    The product of a shape, a tuple or list of ints, is an int, as in the course.
    """
    if isinstance(x, tuple | list) and axis is dtype is None and not keepdims:
        return product(as_int_tuple("prod", "the shape", x))
    return _summed("prod", x, axis, dtype, keepdims)


def _summed(name: str, x: NDArray, axis: Any, dtype: Any, keepdims: bool) -> NDArray:
    as_array(name, x)
    if dtype is None:
        return x.reduce(name, axis, keepdims)
    wanted = as_dtype(dtype, name)
    return x.astype(wanted, copy=False).reduce(name, axis, keepdims).astype(wanted, copy=False)


def summation(a: NDArray, axis: Any = None, keepdims: bool = False) -> NDArray:
    """Return ``sum(a, axis)``: the course's name for it."""
    return sum(a, axis, keepdims=keepdims)


def max(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Return the maximum; NaN propagates."""
    return as_array("max", x).reduce("max", axis, keepdims)


def min(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Return the minimum; NaN propagates."""
    return as_array("min", x).reduce("min", axis, keepdims)


def any(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Return True where any element is not 0."""
    return as_array("any", x).reduce("any", axis, keepdims)


def all(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Return True where no element is 0."""
    return as_array("all", x).reduce("all", axis, keepdims)


def count_nonzero(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Return the number of elements that are not 0 (int64)."""
    return sum(as_array("count_nonzero", x) != 0, axis, keepdims=keepdims)


def mean(x: NDArray, /, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Return the mean; NaN for no elements."""
    return as_array("mean", x).mean(axis, keepdims)


def var(
    x: NDArray, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False
) -> NDArray:
    """Return the sum of squared deviations / (n - correction); NaN if the divisor is <= 0."""
    return as_array("var", x).var(axis, keepdims, correction=correction)


def std(
    x: NDArray, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False
) -> NDArray:
    """Return the square root of ``var``."""
    return as_array("std", x).std(axis, keepdims, correction=correction)


def cumulative_sum(
    x: NDArray, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> NDArray:
    """Return running sums along ``axis``, which may be omitted only for a 1-D array.

    Sums of 2, 4, 8, ... neighbours are combined, so that the float32 rounding error grows only with
    log(n).
    """
    place = only_axis("cumulative_sum", x, axis)
    return _running(sum(x, (), dtype=dtype), "add", place, 0 if include_initial else None)


def cumulative_prod(
    x: NDArray, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> NDArray:
    """Return running products along ``axis``, which may be omitted only for a 1-D array."""
    place = only_axis("cumulative_prod", x, axis)
    return _running(prod(x, (), dtype=dtype), "multiply", place, 1 if include_initial else None)


def _running(start: NDArray, name: str, axis: int, initial: int | None) -> NDArray:
    """Return the cumulative results of a binary kernel, starting with ``initial`` if given."""
    result = start.copy()
    if initial is not None:
        result = start.pad([(int(i == axis), 0) for i in range(start.ndim)])
        along(result, axis, slice(1)).fill(initial)
    reach = 1
    while reach < result.shape[axis]:
        later, earlier = (along(result, axis, s) for s in (slice(reach, None), slice(-reach)))
        later.assign(later.binary(name, earlier))
        reach *= 2
    return result


def diff(
    x: NDArray,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: NDArray | None = None,
    append: NDArray | None = None,
) -> NDArray:
    """Return the ``n``-th differences of adjacent elements along ``axis``.

    ``prepend`` and ``append`` are joined to the array along ``axis`` first, unless ``n`` is 0.
    """
    if n < 0:
        raise ShapeError(f"diff: n must not be negative, got {n}; pass 0 or more")
    place = normalize_axis("diff", axis, as_array("diff", x).ndim)
    if n:
        x = concat([part for part in (prepend, x, append) if part is not None], axis=place)
    for _ in range(n):
        later, earlier = along(x, place, slice(1, None)), along(x, place, slice(-1))
        x = later != earlier if x.dtype == bool_ else later - earlier
    return x


publish(__name__)
