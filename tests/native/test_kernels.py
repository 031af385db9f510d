"""Run the conformance suite's cases at the sizes that the CPU kernels' code paths need.

The suite itself runs on every backend, so its arrays are small. Here each kernel meets vectors and
their tails, packed panels, several ranges of rows and parts of long sums, on every instruction set,
and its results have the same bits for any number of threads.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from needle.dtypes import COMPUTE_DTYPES, DType
from needle.testing.conformance.case import PAIRS, Case
from needle.testing.conformance.optional import (
    epilogue_cases,
    extreme_cases,
    fused_norm_cases,
    loss_cases,
    norm_cases,
    row_cases,
    softmax_cases,
)
from needle.testing.conformance.optional_images import pool_cases
from needle.testing.conformance.required_reductions import matmul_cases, reduction

INF, NAN = np.inf, np.nan
FLOATS = (np.dtype("float32"), np.dtype("float64"))
LAYOUTS = PAIRS[:6]

MATMULS = [
    ((), *sizes)
    for sizes in [
        (1, 40, 33), (40, 1, 33), (13, 33, 257), (65, 70, 300), (97, 301, 64), (130, 129, 1),
        (20, 300, 1000), (9, 1100, 1201), (50, 7, 90), (5, 24, 900), (400, 10, 401), (22, 5, 9001),
        (590, 3, 8193), (3, 40, 8192), (200, 300, 600), (20, 1500, 900), (2, 900, 700),
        (700, 1, 900), (23, 9, 20000),
    ]
] + [((2, 3), 40, 50, 60), ((5,), 4, 4, 0)]  # fmt: skip
"""Shapes of the batch, then m, n and k."""
STREAMED = ((53001, 64), (280001, 12))
"""Shapes with results over 12 MB, which use non-temporal stores; rows of 12 are merged."""
NORMS = (
    *(
        (0, 3, 2),
        (1, 1),
        (2, 7, 5, 4),
        (4, 9, 8, 70),
        (700, 3),
        (3, 1, 1, 65),
        (1000, 64),
        (3, 1000),
    ),
    *((3, 17, 31, 6), (500, 2, 256), (70, 9, 300), (6, 30, 40, 24)),
)
# x (N, H, W, C), kernel, stride, padding
POOLS = [
    ((2, 4, 6, 3), (2, 2), (2, 2), (0, 0)),
    ((2, 5, 7, 13), (2, 3), (2, 3), (0, 0)),
    ((1, 5, 7, 70), (3, 2), (1, 2), (1, 0)),
    ((2, 6, 5, 1), (3, 3), (2, 1), (1, 1)),
    ((2, 7, 7, 5), (2, 2), (3, 3), (0, 0)),
    # adjacent windows, whose vector loads reach into the next pixel but not past a row
    *[((3, 13, 11, c), (k, k), (k, k), (0, 0)) for c in (1, 3, 6, 20) for k in (2, 3)],
]
REDUCED = [((70, 300), 0), ((70, 300), 1), ((200_000,), 0), ((40_000, 3), 0), ((300, 1000), 0)]


def matmuls(dtype: DType) -> Iterator[Case]:
    sizes = [(batch, m, k, n) for batch, m, n, k in MATMULS]
    return (case for case in matmul_cases(sizes) if case.inputs[0].dtype == dtype)


def pools(dtype: DType) -> Iterator[Case]:
    for shape, *windows in POOLS:
        yield from pool_cases(dtype, shape, tuple(windows))


def reductions(dtype: DType) -> Iterator[Case]:
    names = ("max", "min") if dtype == np.uint8 else ("sum", "max", "min")
    return (reduction(name, dtype, shape, (axis,)) for name in names for shape, axis in REDUCED)


def streamed(dtype: DType) -> Iterator[Case]:
    return (case for case in norm_cases(dtype, STREAMED) if "batch" in case.row)


SUITES: dict[str, tuple[Callable[[DType], Iterator[Case]], tuple[DType, ...], float]] = {
    "matmul": (matmuls, FLOATS, 1e-5),
    "reduce": (reductions, COMPUTE_DTYPES[1:], 3e-6),
    "softmax": (
        lambda dtype: softmax_cases(dtype, ((70, 5), (2, 3, 100), (300, 65))),
        FLOATS,
        1e-6,
    ),
    "loss": (lambda dtype: loss_cases(dtype, ((5, 10), (70, 33))), FLOATS, 1e-6),
    "norm": (lambda dtype: norm_cases(dtype, NORMS), FLOATS, 2e-6),
    "streamed norm": (streamed, FLOATS[:1], 1e-5),
    "fused norm": (lambda dtype: fused_norm_cases(dtype, NORMS), FLOATS, 2e-6),
    "epilogue": (lambda dtype: epilogue_cases(dtype, ((3, 5, 7, 6), (9, 300))), FLOATS, 1e-6),
    "argmax": (lambda dtype: extreme_cases(dtype, ((2, 3, 4, 70), (70, 5))), COMPUTE_DTYPES, 0),
    "rows": (lambda dtype: row_cases(dtype, ((2, 3000),)), COMPUTE_DTYPES, 1e-6),
    "pools": (pools, FLOATS, 1e-6),
}
"""The cases, their dtypes, and the tolerance of float32 relative to the largest result."""


def check(kernels: Any, case: Case, tolerance: float) -> None:
    """Assert the results in every layout, and their bits with any number of threads."""
    want = case.oracle(*case.inputs)
    case = replace(case, oracle=lambda *_: want)
    size = sum(host.size for host in case.inputs)
    for layouts in LAYOUTS[: 6 if size < 20_000 else 3 if size < 1 << 21 else 1]:
        for expected, got in case.results(kernels, *layouts):
            limit = tolerance if got.dtype == np.float32 else 1e-12
            scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
            note = f"{case.row}: {case.label}, {layouts}"
            np.testing.assert_allclose(got, expected, rtol=0, atol=limit * scale, err_msg=note)
    if size > 5000:
        same_for_any_threads(kernels.module, lambda: [got for _, got in case.results(kernels)])


def same_for_any_threads(module: Any, call: Callable[[], list[np.ndarray]]) -> None:
    """Assert bitwise equality with one, three and eight threads."""
    before, found = module.num_threads(), set()
    for threads in (1, 3, 8):
        module.set_num_threads(threads)
        found.add(tuple(a.tobytes() for a in call()))
    module.set_num_threads(before)
    assert len(found) == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("suite", "dtype"), [(name, dtype) for name, row in SUITES.items() for dtype in row[1]], ids=str
)
def test_results_and_bits(kernels: Any, suite: str, dtype: DType) -> None:
    cases, _, tolerance = SUITES[suite]
    for case in cases(dtype):
        if not case.in_place:
            check(kernels, case, tolerance)


# ---- numbers that one sum or one formula would spoil ---------------------------------------------


@pytest.mark.parametrize("k", [256, 1024])
@pytest.mark.parametrize(("m", "n"), [(100, 64), (256, 512), (60, 800)])
def test_rounding_errors_of_long_products(kernels: Any, m: int, n: int, k: int) -> None:
    """One accumulator for a whole block of k exceeds 4.6; partial sums of 128 stay below 3.6.

    The unit is 2**-24 times the standard deviation of the sums.
    """
    random = np.random.default_rng(0)
    inputs = tuple(random.standard_normal(s, "float32") for s in ((m, k), (k, n)))
    (case,) = (c for c in matmul_cases([((), m, k, n)]) if c.inputs[0].dtype == np.float32)
    want = inputs[0].astype("float64") @ inputs[1]
    for layouts in LAYOUTS:
        ((_, got),) = replace(case, inputs=inputs).results(kernels, *layouts)
        assert np.sqrt(np.mean((got - want) ** 2)) / (2.0**-24 * np.sqrt(k)) < 4.1, layouts


def test_sums_do_not_drift(kernels: Any) -> None:
    """Adding 0.1 always rounds the same way: one running sum would be off by several percent."""
    for shape, axis in (((5_000_001,), 0), ((1_000_000, 4), 0), ((4, 1_000_000), 1)):
        case = reduction("sum", FLOATS[0], shape, (axis,))
        ((want, got),) = replace(case, inputs=(np.full(shape, 0.1, "float32"),)).results(kernels)
        np.testing.assert_allclose(got, want, rtol=2.0**-22)
    case, host = reduction("sum", FLOATS[1], (3 * 1024,), (0,)), np.zeros(3 * 1024)
    host[::1024] = 1e16, 1, -1e16
    ((_, got),) = replace(case, inputs=(host,)).results(kernels)
    assert got == 1
    host[0] = INF
    ((_, got),) = replace(case, inputs=(host,)).results(kernels)
    assert got == INF


# An outlier as the first value must not spoil the sums: their error stays within that of float32
# sums of a few hundred terms.
@pytest.mark.parametrize(("first", "tolerance"), [(1e4, 1e-6), (2e4, 4e-6)])
@pytest.mark.parametrize("shape", [(64, 10, 10, 5), (3000, 64), (20000, 1)], ids=str)
def test_batch_norm_of_a_large_mean(
    kernels: Any, shape: tuple[int, ...], first: float, tolerance: float
) -> None:
    x = (np.random.default_rng(0).standard_normal(shape) + 1e4).astype("float32")
    x[0] = first
    ones, zeros = np.ones(shape[-1], np.float32), np.zeros(shape[-1], np.float32)
    case = replace(next(norm_cases(FLOATS[0], (shape,))), inputs=(x, ones, zeros))
    for layouts in LAYOUTS:
        (want, got), _, (var, got_var) = case.results(kernels, *layouts)
        np.testing.assert_allclose(got_var, var, rtol=tolerance)
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


EXTREME = [
    [1e10, -1e10, 1e10, 0], [-INF, 0, 1, -INF], [-INF] * 4, [INF, 0, 0, 0], [INF, -INF, INF, 1],
    [NAN, 0, 1, 2], [0, 1, 2, NAN], [-1e10] * 4, [88, 89, 90, 91],
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_softmax_of_extreme_logits(kernels: Any, dtype: DType) -> None:
    rows = np.tile(np.array(EXTREME, dtype), (1, 5))  # long enough for vector code
    for host in (rows, rows.T.copy()):
        for case in softmax_cases(dtype, (host.shape,)):
            if case.inputs[0].shape == host.shape:
                for want, got in replace(case, inputs=(host,)).results(kernels):
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-30)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinity_pass_through(kernels: Any) -> None:
    a, b = np.ones((20, 30), np.float32), np.ones((30, 40), np.float32)
    a[3, 4], a[5, 6], b[7, 8] = NAN, INF, -INF
    (case,) = (c for c in matmul_cases([((), 20, 30, 40)]) if c.inputs[0].dtype == a.dtype)
    check(kernels, replace(case, inputs=(a, b)), 0)
    for case in fused_norm_cases(a.dtype, ((40, 3),)):
        if case.row == "batch_norm" and not case.in_place:
            x = case.inputs[0].copy()
            x[7, 1] = NAN
            check(kernels, replace(case, inputs=(x, *case.inputs[1:])), 2e-6)
