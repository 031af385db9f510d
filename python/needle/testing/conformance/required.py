"""The conformance cases of the ten required functions: generators of ``Case``.

NumPy is the oracle: floats in float64, rounded at the end; integers in their own dtype. Small cases
come first, so that the first failure reported is a small one. Called by ``run``.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from ...backends.numpy_functions import unary
from ...dtypes import COMPUTE_DTYPES, DType, is_floating
from .case import PAIRS, Case
from .placement import HostArray
from .required_arrays import array_cases
from .required_reductions import matmul_cases, reduce_cases
from .required_rules import rule_cases
from .values import (
    FLOATS,
    NUMERIC,
    SHAPES,
    TRANSCENDENTAL,
    binary_values,
    in_float64,
    large_values,
    values,
)

NOT_FLOATS = tuple(dtype for dtype in COMPUTE_DTYPES if not is_floating(dtype))
RENAMED: dict[str, Any] = {"round": np.rint, "erf": lambda x: unary("erf", x)}
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
        function = in_float64(RENAMED.get(name) or getattr(np, name))
        for dtype in _unary_dtypes(name):
            yield from _unary_cases(name, dtype, function)


def _unary_cases(name: str, dtype: DType, function: Any) -> Iterator[Case]:
    def call(backend: Any, ins: Any, outs: Any) -> None:
        backend.unary(name, ins[0], outs[0])

    def case(label: str, host: HostArray, **options: Any) -> Case:
        tolerance = TRANSCENDENTAL if name in UNARY_FLOAT else 0.0
        return Case(f"unary.{name}", label, (host,), function, call, tolerance, **options)

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
        function = in_float64({"atan2": np.arctan2}.get(name) or getattr(np, name))
        for dtype in _binary_dtypes(name):
            yield from _binary_cases(name, dtype, function)
            yield from _scalar_cases(name, dtype, function)


def _binary_cases(name: str, dtype: DType, function: Any) -> Iterator[Case]:
    def call(backend: Any, ins: Any, outs: Any) -> None:
        backend.binary(name, ins[0], ins[1], outs[0])

    def case(label: str, a: HostArray, b: HostArray, **options: Any) -> Case:
        return Case(f"binary.{name}", label, (a, b), function, call, _slack(name), **options)

    for shape in SHAPES:
        yield case(f"{dtype} {shape}", *binary_values(name, shape, dtype))
    yield case(f"{dtype} (5, 5)", *binary_values(name, (5, 5), dtype), pairs=PAIRS)
    yield case(f"{dtype} (3, 67)", *binary_values(name, (3, 67), dtype), pairs=PAIRS[:2])
    if name not in BINARY_COMPARE + BINARY_LOGICAL:
        pair = binary_values(name, (2, 3, 4), dtype)
        yield case(f"{dtype} in place", *pair, in_place=True, pairs=PAIRS[1:6])


def _slack(name: str) -> float:
    return TRANSCENDENTAL if name in ("power", "atan2", "floor_divide") else 0.0


def _scalar_cases(name: str, dtype: DType, function: Any) -> Iterator[Case]:
    scalar: Scalar = True if dtype == np.bool_ else 2.5 if is_floating(dtype) else 3
    for left in (False, True):

        def oracle(a: HostArray, left: bool = left) -> tuple[HostArray, ...]:
            other = np.full_like(a, scalar)
            result: tuple[HostArray, ...] = function(other, a) if left else function(a, other)
            return result

        def call(backend: Any, ins: Any, outs: Any, left: bool = left) -> None:
            pair = (scalar, ins[0]) if left else (ins[0], scalar)
            backend.binary(name, *pair, outs[0])

        side = "left" if left else "right"
        host = binary_values(name, (2, 3, 4), dtype)[1 if left else 0]
        yield Case(
            f"binary.{name}",
            f"{dtype} with scalar {scalar} on the {side}",
            (host,),
            oracle,
            call,
            _slack(name),
            pairs=(*PAIRS[:2], PAIRS[4]),
        )
