"""The conformance cases of the ten required functions: generators of ``Case``.

NumPy is the oracle: floats in float64, rounded at the end; integers in their own dtype. Small cases
come first, so that the first failure reported is a small one. Called by ``run``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ...backends.base import (
    BINARY,
    BINARY_COMPARE,
    BINARY_FLOAT,
    BINARY_INTEGER,
    BINARY_LOGICAL,
    UNARY,
    UNARY_FLOAT,
    UNARY_INTEGER,
    UNARY_NUMERIC,
    Scalar,
)
from ...dtypes import COMPUTE_DTYPES, DType, is_floating
from .case import PAIRS, Case
from .required_arrays import array_cases
from .required_reductions import matmul_cases, reduce_cases
from .required_rules import binary_case, rule_cases, scalar_cases, unary_case
from .values import (
    FLOATS,
    NUMERIC,
    SHAPES,
    TRANSCENDENTAL,
    binary_values,
    in_float64,
    large_values,
    numpy_function,
    values,
)

NOT_FLOATS = tuple(dtype for dtype in COMPUTE_DTYPES if not is_floating(dtype))
PREDICATES = ("isnan", "isinf", "isfinite")


def required_cases() -> Iterator[Case]:
    """Yield every case of the ten."""
    yield from array_cases()
    yield from unary_cases()
    yield from binary_cases()
    yield from reduce_cases()
    yield from matmul_cases()
    yield from rule_cases()


def _unary_dtypes(name: str) -> tuple[DType, ...]:
    if name in UNARY_FLOAT or name in PREDICATES:
        return FLOATS
    if name in UNARY_NUMERIC:
        return NUMERIC
    return NOT_FLOATS if name in UNARY_INTEGER else COMPUTE_DTYPES


def unary_cases() -> Iterator[Case]:
    """Yield cases of ``unary``: each name, dtype, shape and layout, and in place."""
    for name in UNARY:
        function = in_float64(numpy_function(name))
        for dtype in _unary_dtypes(name):
            yield from _unary_cases(name, dtype, function)


def _unary_cases(name: str, dtype: DType, function: Any) -> Iterator[Case]:
    slack = TRANSCENDENTAL if name in UNARY_FLOAT else 0.0
    case = partial(unary_case, name, oracle=function, tolerance=slack)
    for shape in SHAPES:
        yield case(f"{dtype} {shape}", values(shape, dtype))
    yield case(f"{dtype} (2, 3, 4)", values((2, 3, 4), dtype), pairs=PAIRS)
    yield case(f"{dtype} large", large_values((3, 67), dtype), pairs=PAIRS[:2])
    if name not in PREDICATES and (name != "logical_not" or dtype == np.bool_):
        yield case(f"{dtype} in place", values((2, 3, 4), dtype), in_place=True, pairs=PAIRS[1:6])


def _binary_dtypes(name: str) -> tuple[DType, ...]:
    if name in BINARY_COMPARE or name in BINARY_LOGICAL:
        return COMPUTE_DTYPES
    if name in BINARY_FLOAT or name == "divide":
        return FLOATS
    return NOT_FLOATS if name in BINARY_INTEGER else NUMERIC


def binary_cases() -> Iterator[Case]:
    """Yield cases of ``binary``: as for ``unary``, and with a scalar on either side."""
    for name in BINARY:
        function = in_float64(numpy_function(name))
        for dtype in _binary_dtypes(name):
            yield from _binary_cases(name, dtype, function)


def _binary_cases(name: str, dtype: DType, function: Any) -> Iterator[Case]:
    slack = TRANSCENDENTAL if name in ("power", "atan2", "floor_divide") else 0.0
    case = partial(binary_case, name, oracle=function, tolerance=slack)
    for shape in SHAPES:
        yield case(f"{dtype} {shape}", *binary_values(name, shape, dtype))
    yield case(f"{dtype} (5, 5)", *binary_values(name, (5, 5), dtype), pairs=PAIRS)
    yield case(f"{dtype} (3, 67)", *binary_values(name, (3, 67), dtype), pairs=PAIRS[:2])
    pair = binary_values(name, (2, 3, 4), dtype)
    if name not in BINARY_COMPARE + BINARY_LOGICAL:
        yield case(f"{dtype} in place", *pair, in_place=True, pairs=PAIRS[1:6])
    scalar: Scalar = True if dtype == np.bool_ else 2.5 if is_floating(dtype) else 3
    pairs = (*PAIRS[:2], PAIRS[4])
    yield from scalar_cases(name, pair, scalar, function, tolerance=slack, pairs=pairs)
