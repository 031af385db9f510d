"""Cases of reduce and matmul. Called by ``required``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ...backends.base import REDUCE
from ...dtypes import DType, bool_
from .case import PAIRS, Case, Mismatch
from .placement import HostArray
from .values import NUMERIC, SUMMED, in_float64, large_values, values

SUMS = 2e-6
"""Tolerance of sums: one running float32 sum over thousands of values exceeds it."""


def reduce_cases() -> Iterator[Case]:
    """Yield cases of ``reduce``: names, dtypes, axes, empty axes, accuracy, reproducible bits."""
    for name in REDUCE:
        for dtype in _reduce_dtypes(name):
            yield from _axes_cases(name, dtype)
            if name in ("sum", "prod"):
                yield reduction(name, dtype, (0,), (0,))
                yield reduction(name, dtype, (3, 0, 2), (1,))
                yield reduction(name, dtype, (3, 0, 2), (0, 2))
    for shape, axes in (((20011, 2), (0,)), ((2, 20011), (1,)), ((2, 20011), (0, 1))):
        host = np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)
        yield _of("sum", host, axes, f"float32 accuracy over {shape}")
    yield _same_bits()


def _reduce_dtypes(name: str) -> tuple[DType, ...]:
    if name in ("any", "all"):
        return (bool_,)
    return SUMMED if name in ("sum", "prod") else NUMERIC


def _axes_cases(name: str, dtype: DType) -> Iterator[Case]:
    for shape in ((4,), (2, 3, 4), (1, 5, 1), (2, 1, 3, 1, 2, 1, 2, 2)):
        for count in range(len(shape) + 1):
            for axes in list(combinations(range(len(shape)), count))[:6]:
                yield reduction(name, dtype, shape, axes)
    for axis in (1, 0):
        yield _of(name, _moderate(name, (35, 67), dtype), (axis,), f"{dtype} (35, 67)")
    if dtype.kind == "f" and name in ("max", "min"):
        one = large_values((2, 67), dtype)
        one[0, 5] = np.nan
        for label, host in (
            ("NaN wins", np.array([[np.nan, 1, 2], [1, np.nan, 2], [1, 2, np.nan]], dtype)),
            ("infinite", np.full((2, 67), -np.inf if name == "max" else np.inf, dtype)),
            ("one NaN among many", one),
        ):
            yield _of(name, host, (1,), f"{dtype} {label}")


def _moderate(name: str, shape: tuple[int, ...], dtype: DType) -> HostArray:
    host = large_values(shape, dtype)
    if name == "prod" and dtype.kind == "f":
        return (1 + host / 40).astype(dtype)
    return host


def reduction(name: str, dtype: DType, shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    """Return a case of ``reduce`` over these axes."""
    host = values(shape, dtype) if name in ("any", "all") else _moderate(name, shape, dtype)
    return _of(name, host, axes, f"{dtype} {shape} over {axes}")


def _of(name: str, host: HostArray, axes: tuple[int, ...], label: str) -> Case:
    options: dict[str, Any] = {"axis": axes, "keepdims": True}
    if name in ("sum", "prod"):
        options["dtype"] = np.float64 if host.dtype.kind == "f" else host.dtype
    pairs = PAIRS if host.shape == (2, 3, 4) else PAIRS[: 3 if host.size < 10000 else 1]
    slack = SUMS if name in ("sum", "prod") else 0.0
    oracle = in_float64(partial(getattr(np, name), **options))
    return Case(f"reduce.{name}", label, (host,), oracle, tolerance=slack, pairs=pairs)


def _same_bits() -> Case:
    def call(backend: Any, ins: Any, outs: Any) -> None:
        results = set()
        for _ in range(3):
            backend.reduce("sum", ins[0], outs[0])
            results.add(backend.download(outs[0]).tobytes())
        if len(results) > 1:
            raise Mismatch("a repeated call gave different bits")

    host = large_values((67, 257), np.dtype(np.float32))
    case = _of("sum", host, (0, 1), "same bits every time")
    return replace(case, tolerance=1e-3, call=call)


SIZES: tuple[tuple[tuple[int, ...], int, int, int], ...] = (
    ((), 1, 1, 1), ((), 2, 3, 4), ((), 1, 7, 1), ((), 3, 0, 2), ((), 0, 3, 2), ((), 2, 3, 0),
    ((2,), 3, 4, 5), ((2, 3), 2, 5, 3), ((0,), 2, 2, 2), ((2, 1, 1, 2, 1, 2), 2, 3, 2),
    ((), 17, 33, 9), ((), 35, 40, 67),
)  # fmt: skip
"""Shapes of products: the batch, m, k and n."""


def matmul_cases(sizes: Any = SIZES) -> Iterator[Case]:
    """Yield cases of ``matmul``: dtypes, batches, empty and odd sizes, every layout."""
    for dtype in SUMMED:
        for batch, m, k, n in sizes:
            a = large_values((*batch, m, k), dtype)
            b = large_values((*batch, k, n), dtype)
            label = f"{dtype} {a.shape} @ {b.shape}"
            slack = 2e-5 if dtype.kind == "f" else 0.0
            yield Case("matmul", label, (a, b), in_float64(np.matmul), (), slack, pairs=PAIRS)
