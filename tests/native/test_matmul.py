"""The row matmul: every path (in place, packed, dot products), edge shapes and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_views import FLOATS, empty_view, numpy_of, view_of
from layout_runs import close, results, same_for_any_threads

SHAPES = [
    (1, 1, 1), (2, 3, 4), (7, 17, 5), (1, 40, 33), (40, 1, 33), (13, 33, 257), (65, 70, 300),
    (97, 301, 64), (3, 0, 4), (3, 4, 0), (0, 4, 3), (130, 129, 1), (20, 300, 1000), (9, 1100, 1201),
    (50, 7, 90), (5, 24, 900), (400, 10, 401), (22, 5, 9001), (590, 3, 8193), (3, 40, 8192),
]  # fmt: skip  # (m, n, k)


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m, n, k", SHAPES)
def test_products_agree_with_float64(kernels: Any, m: int, n: int, k: int, dtype: str) -> None:
    a, b = random((m, k), dtype), random((k, n), dtype, 1)
    want = a.astype(np.float64) @ b.astype(np.float64)
    for layout, (got,) in results(kernels.matmul, (a, b), [((m, n), dtype)]):
        close(got, want, 1e-5, layout)


@pytest.mark.parametrize("k", [256, 1024])
@pytest.mark.parametrize("m, n", [(100, 64), (256, 512), (60, 800)])
def test_rounding_errors_of_long_sums(kernels: Any, m: int, n: int, k: int) -> None:
    """An accumulator for all products of a block of k exceeds 4.6, runs of 128 stay below 3.6.

    The unit is 2**-24 times the standard deviation of the sums.
    """
    a, b = random((m, k), "float32"), random((k, n), "float32", 1)
    want = a.astype(np.float64) @ b.astype(np.float64)
    for layout, (got,) in results(kernels.matmul, (a, b), [((m, n), "float32")]):
        error = float(np.sqrt(np.mean((got - want) ** 2))) / (2.0**-24 * np.sqrt(k))
        assert error < 4.1, (layout, error)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("batch", [(5,), (2, 3), (0,), (1, 1)])
@pytest.mark.parametrize("m, n, k", [(3, 4, 5), (40, 50, 60), (4, 4, 0)])
def test_batches(kernels: Any, batch: tuple[int, ...], m: int, n: int, k: int, dtype: str) -> None:
    a, b = random((*batch, m, k), dtype), random((*batch, k, n), dtype, 1)
    want = a.astype(np.float64) @ b.astype(np.float64)
    for layout, (got,) in results(kernels.matmul, (a, b), [((*batch, m, n), dtype)]):
        close(got, want, 1e-5, layout)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("m, n, k", [(2, 3, 4), (33, 35, 70), (3, 2, 0)])
def test_integers_are_exact_and_wrap(kernels: Any, m: int, n: int, k: int, dtype: str) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a = rng.integers(info.min, info.max, (m, k), dtype)
    b = rng.integers(info.min, info.max, (k, n), dtype)
    for layout, (got,) in results(kernels.matmul, (a, b), [((m, n), dtype)]):
        np.testing.assert_array_equal(got, a @ b, err_msg=layout)


def test_broadcast_operands(kernels: Any) -> None:
    a, b = random((4, 1), "float32"), random((40, 30), "float32", 1)
    rows = view_of(a)._replace(shape=(4, 40), strides=(1, 0))
    batch = [v._replace(shape=(3, *v.shape), strides=(0, *v.strides)) for v in (rows, view_of(b))]
    out = empty_view((3, 4, 30), "float32")
    kernels.matmul(*batch, out)
    want = np.broadcast_to(a, (4, 40)).astype(np.float64) @ b
    close(numpy_of(out), np.broadcast_to(want, (3, 4, 30)), 1e-5)


def test_nan_and_infinity_pass_through(kernels: Any) -> None:
    a, b = np.ones((20, 30), np.float32), np.ones((30, 40), np.float32)
    a[3, 4], a[5, 6], b[7, 8] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = a @ b
    for _, (got,) in results(kernels.matmul, (a, b), [((20, 40), "float32")]):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "m, n, k", [(200, 300, 600), (20, 1500, 900), (2, 900, 700), (700, 1, 900), (23, 9, 20000)]
)
def test_threads_do_not_change_the_result(kernels: Any, m: int, n: int, k: int) -> None:
    a, b = view_of(random((m, k), "float32")), view_of(random((k, n), "float32", 1))

    def call() -> list[np.ndarray]:
        out = empty_view((m, n), "float32")
        kernels.matmul(a, b, out)
        return [numpy_of(out)]

    same_for_any_threads(kernels.module, call)
