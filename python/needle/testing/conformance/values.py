"""Input values of the conformance cases, and NumPy functions as oracles.

The values are the same in every run. Called by the case generators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.base import Scalar
from ...backends.numpy_functions import unary
from ...dtypes import COMPUTE_DTYPES, DType, int32, int64, is_floating, is_integer
from ...shapes import Shape, product
from .case import as_tuple
from .placement import HostArray

INTEGERS = tuple(dtype for dtype in COMPUTE_DTYPES if is_integer(dtype))
FLOATS = tuple(dtype for dtype in COMPUTE_DTYPES if is_floating(dtype))
NUMERIC = INTEGERS + FLOATS
SUMMED = (int32, int64, *FLOATS)
"""The dtypes in which sums and products are computed; narrower integers are cast first."""

SHAPES: tuple[Shape, ...] = ((1,), (), (7,), (0,), (3, 0, 2), (1, 5, 1), (2, 1, 3, 1, 2, 1, 2, 2))
TRANSCENDENTAL = 4e-6
"""Tolerance of functions that are not correctly rounded: about 33 times the epsilon of float32."""

_FLOATS = (
    "0.25 -0.25 1 -1 0 -0.0 nan inf -inf 0.5 1.5 2.5 -0.5 -1.5 -2.5 0.75 -0.75 1e-3 -1e-3 3.7 -3.7 "
    "10 -10 42 88 -88 100 -100 1e-6 7.25"
)
_INTEGERS = "2 -2 1 -1 0 3 -3 5 -5 7 -7 11 -11 100 -100 127"


def values(shape: Shape, dtype: DType) -> HostArray:
    """Return the special values of a dtype, repeated to fill the shape."""
    if dtype == np.bool_:
        pool = np.array([True, False, False, True, True])
    elif dtype.kind == "f":
        pool = np.array([float(text) for text in _FLOATS.split()])
    else:
        pool = np.array([int(text) for text in _INTEGERS.split()])
        pool = np.abs(pool) if dtype.kind == "u" else pool
    return np.resize(pool, product(shape)).astype(dtype).reshape(shape)


def large_values(shape: Shape, dtype: DType) -> HostArray:
    """Return random values of moderate magnitude, for shapes with vector loops and tails."""
    random = np.random.default_rng(product(shape))
    if dtype == np.bool_:
        return random.random(shape) < 0.5
    low = 0 if dtype.kind == "u" else -9
    if dtype.kind == "f":
        return random.uniform(-4.0, 4.0, shape).astype(dtype)
    return random.integers(low, 10, shape).astype(dtype)


def reversed_values(shape: Shape, dtype: DType) -> HostArray:
    """Return ``large_values`` with the first axis in reverse order."""
    host = large_values(shape, dtype)
    return host[::-1].copy() if shape else np.ones_like(host)


def operands(row: str, shape: Shape, dtype: DType) -> tuple[HostArray, ...]:
    """Return one array for a row of ``unary``, or two with many pairs of values for ``binary``.

    Integer powers get small non-negative exponents.
    """
    a = values(shape, dtype)
    if row.startswith("unary"):
        return (a,)
    b = np.roll(a.ravel(), 2 + len(shape)).reshape(shape)
    if shape == (5, 5):  # all pairs of the first five values, which include zero and NaN
        a, b = all_pairs(values((9,), dtype)[[0, 1, 3, 4, 6]])
    if row == "binary.power" and dtype.kind != "f":
        b = np.mod(np.abs(b.astype(np.int64)), 4).astype(dtype)
    return a, b


def all_pairs(first: HostArray, second: HostArray | None = None) -> tuple[HostArray, HostArray]:
    """Return all pairs of a value from ``first`` and one from ``second`` (None: ``first``)."""
    a, b = np.meshgrid(first, first if second is None else second)
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def scalars_of(dtype: DType) -> tuple[Scalar, ...]:
    """Return Python numbers of each type for which C defines the conversion to the dtype."""
    if dtype == np.bool_:
        return (False, True, 2, 0.5, 0.0, float("nan"))
    if dtype.kind == "f":
        return (True, 7, -3, 0.1, -0.0, float("nan"), float("inf"), float("-inf"))
    return (True, 200, 2.9, 200.5) if dtype.kind == "u" else (True, False, 2.9, -2.9, -7)


def converted(scalar: Scalar, dtype: DType) -> HostArray:
    """Return a scalar as a 0-d array, converted to the dtype as in C."""
    with np.errstate(all="ignore"):
        return np.asarray(scalar).astype(dtype)


def numpy_function(name: str) -> Callable[..., Any]:
    """Return NumPy's function for a name of ``unary``, ``binary`` or ``reduce``."""
    if name == "erf":
        return lambda x: unary("erf", x)
    function: Callable[..., Any] = getattr(np, {"round": "rint"}.get(name, name))
    return function


def in_float64(function: Callable[..., Any]) -> Callable[..., tuple[HostArray, ...]]:
    """Wrap a function to compute floats in float64 and round to the first operand's dtype."""

    def oracle(*inputs: HostArray) -> tuple[HostArray, ...]:
        dtype = inputs[0].dtype
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
        results = as_tuple(function(*wide))
        return tuple(r.astype(dtype) if r.dtype.kind == "f" else r for r in results)

    return oracle
