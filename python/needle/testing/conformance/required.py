"""The conformance cases of the ten required functions: generators of ``Case``.

NumPy is the oracle: it computes floats in float64 and rounds at the end, integers in their own
dtype. Small cases come first, so that the first failure reported is a small one. Called by ``run``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...backends import base
from ...dtypes import COMPUTE_DTYPES, DType, is_floating
from . import values
from .case import PAIRS, Case
from .required_arrays import array_cases
from .required_reductions import matmul_cases, reduce_cases
from .required_rules import rule_cases, scalar_cases
from .values import SHAPES, TRANSCENDENTAL

NOT_FLOATS = tuple(dtype for dtype in COMPUTE_DTYPES if not is_floating(dtype))
PREDICATES = ("isnan", "isinf", "isfinite")
TO_BOOL = (*PREDICATES, "logical_not", *base.BINARY_COMPARE, *base.BINARY_LOGICAL)
ROUGH = (*base.UNARY_FLOAT, "power", "atan2", "floor_divide")
"""Functions that need not be correctly rounded."""


def required_cases() -> Iterator[Case]:
    """Yield every case of the ten required functions."""
    yield from array_cases()
    for row in (*(f"unary.{name}" for name in base.UNARY), *(f"binary.{n}" for n in base.BINARY)):
        for dtype in _dtypes(row.partition(".")[2]):
            yield from _elementwise_cases(row, dtype)
    yield from reduce_cases()
    yield from matmul_cases()
    yield from rule_cases()


def _dtypes(name: str) -> tuple[DType, ...]:
    """Return the dtypes of the operands of a unary or binary function."""
    if name in (*base.UNARY_FLOAT, *base.BINARY_FLOAT, *PREDICATES, "divide"):
        return values.FLOATS
    if name in base.UNARY_INTEGER + base.BINARY_INTEGER:
        return NOT_FLOATS
    return COMPUTE_DTYPES if name in TO_BOOL else values.NUMERIC


def _elementwise_cases(row: str, dtype: DType) -> Iterator[Case]:
    """Yield the cases of a function: all shapes and layouts, in place, and with a scalar."""
    kind, _, name = row.partition(".")
    oracle = values.in_float64(values.numpy_function(name))
    slack = TRANSCENDENTAL if name in ROUGH else 0.0
    operands = partial(values.operands, row, dtype=dtype)
    case = partial(Case, row, oracle=oracle, tolerance=slack)
    for shape in SHAPES:
        yield case(f"{dtype} {shape}", operands(shape))
    for shape in ((2, 3, 4), (5, 5), (3, 67)):
        yield case(f"{dtype} {shape}", operands(shape), pairs=PAIRS)
    pair = operands((2, 3, 4))
    if name not in TO_BOOL or (name == "logical_not" and dtype == np.bool_):
        yield case(f"{dtype} in place", pair, in_place=True, pairs=PAIRS[1:6])
    if kind == "unary":
        yield case(f"{dtype} random", (values.large_values((3, 67), dtype),), pairs=PAIRS[:2])
        return
    scalar: base.Scalar = True if dtype == np.bool_ else 2.5 if is_floating(dtype) else 3
    pairs = (*PAIRS[:2], PAIRS[4])
    yield from scalar_cases(name, pair, scalar, oracle, tolerance=slack, pairs=pairs)
