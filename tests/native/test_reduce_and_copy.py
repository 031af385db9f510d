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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["any", "all"])
def test_any_and_all(kernels: Any, name: str, layout: str) -> None:
    for share in (0.0, 0.01, 0.99, 1.0):
        a = np.random.default_rng(1).random((7, 40)) < share
        for axis in (0, 1):
            want = getattr(np, name)(a, axis=axis, keepdims=True)
            out = empty_view(want.shape, "bool")
            kernels.reduce(name, view_of(a, layout), out)
            np.testing.assert_array_equal(numpy_of(out), want)


def test_reductions_over_nothing_give_the_neutral_element(kernels: Any) -> None:
    for name, dtype, want in (("sum", "float32", 0), ("prod", "int64", 1), ("all", "bool", 1)):
        out = empty_view((1, 3), dtype)
        kernels.reduce(name, view_of(np.zeros((0, 3), dtype)), out)
        np.testing.assert_array_equal(numpy_of(out), np.full((1, 3), want))


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(kernels: Any, dtype: str, layout: str) -> None:
    for value in (True, 0, 7, 2.5):
        out = empty_view((3, 4), dtype, layout)
        kernels.fill(out, value)
        np.testing.assert_array_equal(numpy_of(out), np.full((3, 4), value).astype(dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_by_index(kernels: Any, dtype: str, layout: str) -> None:
    index = np.array([3, 0, 3, 1, 1, 4])
    table, rows = values(dtype, (5, 2, 3)), values(dtype, (6, 2, 3), 1)
    out = empty_view(rows.shape, dtype)
    kernels.gather(view_of(table, layout), view_of(index, layout), out)
    np.testing.assert_array_equal(numpy_of(out), table[index])
    into, want = view_of(table, layout), table.copy()
    kernels.scatter(view_of(rows, layout), view_of(index), into)
    want[index] = rows
    np.testing.assert_array_equal(numpy_of(into), want)
    into, want = view_of(table, layout), table.copy()
    kernels.scatter_add(view_of(rows, layout), view_of(index), into)
    np.add.at(want, index, rows)
    np.testing.assert_allclose(numpy_of(into), want, rtol=1e-6)


def test_an_index_outside_the_axis_is_an_error(kernels: Any) -> None:
    table, out = view_of(np.zeros((5, 2), "float32")), empty_view((1, 2), "float32")
    for bad in (5, -1):
        with pytest.raises(ValueError, match="inside the axis"):
            kernels.gather(table, view_of(np.array([bad])), out)
