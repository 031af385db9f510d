"""reduce, fill, copy, gather, scatter and scatter_add against NumPy over dtypes and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_views import DTYPES, FLOATS, LAYOUTS, NUMBERS, empty_view, numpy_of, view_of

REDUCED = {"sum": NUMBERS[1:], "prod": NUMBERS[1:], "max": NUMBERS, "min": NUMBERS}
SHAPES = [
    ((3, 4, 5), (0,)),
    ((3, 4, 5), (1,)),
    ((3, 4, 5), (0, 2)),
    ((3, 4, 5), (0, 1, 2)),
    ((70, 300), (0,)),
    ((70, 300), (1,)),
    ((200_000,), (0,)),
    ((40_000, 3), (0,)),
    ((1, 7), (0,)),
    ((0, 3), (1,)),
    ((), ()),
]


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    if dtype in FLOATS:
        return np.asarray(random.standard_normal(shape), dtype)
    return np.asarray(random.integers(0 if dtype == "uint8" else -5, 6, shape), dtype)


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("shape, axes", SHAPES, ids=str)
def test_reduce(kernels: Any, name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    for dtype in REDUCED[name]:
        a = values(dtype, shape)
        if name == "prod" and dtype in FLOATS:
            a = (1 + a / 1000).astype(dtype)
        exact = a.astype("float64") if dtype == "float32" else a
        options = {"dtype": exact.dtype} if name in ("sum", "prod") else {}
        want = getattr(np, name)(exact, axis=axes, keepdims=True, **options)
        limit = 3e-6 if dtype == "float32" else 1e-11
        if name == "prod":  # each multiplication rounds once
            limit = max(limit, np.finfo(dtype).eps / 2 * a.size) if dtype in FLOATS else 0
        scale = np.abs(exact).sum(axis=axes, keepdims=True) if name == "sum" else np.abs(want)
        for layout in LAYOUTS if a.size < 1000 else LAYOUTS[:3]:
            out = empty_view(kept, dtype)
            kernels.reduce(name, view_of(a, layout), out)
            assert (np.abs(numpy_of(out) - want) <= limit * (scale + 1)).all(), (dtype, layout)


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_copy_converts(kernels: Any, source: str, target: str) -> None:
    for shape in ((3, 4, 5), (40, 70), (0, 3), (1, 9), ()):
        a = np.asarray(values(source, shape) * (1 if source == "bool" else 7), source)
        if source in FLOATS and target == "uint8":
            a = np.abs(a)
        for i, layout in enumerate(LAYOUTS):
            out = empty_view(shape, target, LAYOUTS[i - 1])
            kernels.copy(view_of(a, layout), out)
            np.testing.assert_array_equal(numpy_of(out), a.astype(target), err_msg=layout)


def test_an_index_outside_the_axis_is_an_error(kernels: Any) -> None:
    table, out = view_of(np.zeros((5, 2), "float32")), empty_view((1, 2), "float32")
    for bad in (5, -1):
        with pytest.raises(ValueError, match="inside the axis"):
            kernels.gather(table, view_of(np.array([bad])), out)
