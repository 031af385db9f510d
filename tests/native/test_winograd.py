"""Winograd's algorithm for conv2d and its gradients: bounds on its error, and its selection.

Its results are tested with the other algorithms in test_conv2d. The root-mean-square error of its
float32 results against float64 is at most 4.5 times that of sequential float32 sums, or nine times
for images of a few pixels per side; the weight gradient's is at most eight and ten times that of
the direct algorithm, whose many partial sums have small errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kernel_views import empty_view, numpy_of, view_of
from layout_runs import same_for_any_threads
from test_conv2d import Case, add_patches, operands, patches

from needle.backends.base import NO_EPILOGUE

FACTORS, FACTORS_OF_TINY, TINY = (4.5, 4.5, 8.0), (9.0, 9.0, 10.0), 6


@pytest.fixture
def choose(kernels: Any) -> Iterator[Callable[[str], None]]:
    before = kernels.module.conv2d_algorithm()
    yield kernels.module.select_conv2d
    kernels.module.select_conv2d(before)


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n, c, o = (int(v) for v in rng.integers(1, (5, 90, 90)))
    h, w = (int(v) for v in rng.integers(3, 21, 2))
    return Case((n, h, w, 300 if seed == 0 else c), (3, 3), o, padding=tuple(rng.integers(0, 4, 2)))


def all_three(kernels: Any, case: Case) -> tuple[np.ndarray, ...]:
    """Return float32 results: the output and the gradients of input and weight."""
    x, weight, grad = (view_of(a) for a in operands(case, "float32"))
    out, dx, dw = (empty_view(s, "float32") for s in (case.out, case.x, case.weight))
    kernels.conv2d(x, weight, out, case.geometry, NO_EPILOGUE)
    kernels.conv2d_input_grad(grad, weight, dx, case.geometry)
    kernels.conv2d_weight_grad(grad, x, dw, case.geometry)
    return numpy_of(out), numpy_of(dx), numpy_of(dw)


def all_in_float64(case: Case) -> tuple[np.ndarray, ...]:
    x, weight, grad = (a.astype(np.float64) for a in operands(case, "float32"))
    seen = patches(case, x)
    out = np.einsum("nhwijc,ijco->nhwo", seen, weight, optimize=True)
    dx = add_patches(case, np.einsum("nhwo,ijco->nhwijc", grad, weight, optimize=True))
    return out, dx, np.einsum("nhwijc,nhwo->ijco", seen, grad, optimize=True)


@functools.cache
def running_sums(case: Case) -> tuple[np.ndarray, ...]:
    """Return the output and the input gradient, summed product by product in float32."""
    x, weight, grad = operands(case, "float32")
    seen = patches(case, x).astype(np.float32)
    out = np.zeros(case.out, np.float32)
    for i, j, c in np.ndindex(weight.shape[:3]):
        out += seen[..., i, j, c, None] * weight[i, j, c]
    (n, h, w, channels), (ph, pw), (_, oh, ow, outputs) = case.x, case.padding, case.out
    dx = np.zeros((n, h + 2 * ph, w + 2 * pw, channels), np.float32)
    for i, j, o in np.ndindex(3, 3, outputs):
        dx[:, i : i + oh, j : j + ow] += grad[..., o, None] * weight[i, j, :, o]
    return out, dx[:, ph : ph + h, pw : pw + w]


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(np.mean((got - want) ** 2)))


@pytest.mark.parametrize("seed", range(24))
def test_error_is_a_small_factor_of_the_direct_sums(
    kernels: Any, choose: Callable[[str], None], seed: int
) -> None:
    case = random_case(seed)
    want = all_in_float64(case)
    choose("direct")
    direct = all_three(kernels, case)
    choose("winograd")
    fast = all_three(kernels, case)
    tiny = min(*case.x[1:3], *case.out[1:3]) < TINY
    factors = FACTORS_OF_TINY if tiny else FACTORS
    plain = *running_sums(case), direct[2]
    for exact, slow, quick, measure, factor in zip(want, direct, fast, plain, factors, strict=True):
        assert not np.array_equal(slow, quick), "the algorithm was not used"
        assert error(quick, exact) <= factor * error(measure, exact)


# Winograd pays with enough channels, enough tiles, and tiles that mostly lie inside the image.
@pytest.mark.parametrize(
    "case, expected",
    [
        (Case((2, 32, 32, 16), (3, 3), 16, padding=(1, 1)), "winograd"),
        (Case((8, 14, 14, 64), (3, 3), 64, padding=(1, 1)), "winograd"),
        (Case((24, 4, 4, 64), (3, 3), 64, padding=(1, 1)), "winograd"),
        (Case((2, 32, 32, 3), (3, 3), 16, padding=(1, 1)), "direct"),
        (Case((24, 2, 2, 64), (3, 3), 64, padding=(1, 1)), "direct"),
        (Case((1, 4, 4, 64), (3, 3), 64, padding=(1, 1)), "direct"),
    ],
    ids=str,
)
def test_choice_by_shape(
    kernels: Any, choose: Callable[[str], None], case: Case, expected: str
) -> None:
    results = {}
    for name in ("auto", "direct", "winograd"):
        choose(name)
        results[name] = all_three(kernels, case)
    assert not np.array_equal(results["direct"][0], results["winograd"][0])
    for got, want in zip(results["auto"], results[expected], strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 9, 9, 8), (3, 3), 8, padding=(1, 1), stride=(2, 2)),
        Case((1, 9, 9, 8), (3, 3), 8, padding=(1, 1), dilation=(2, 1)),
        Case((1, 9, 9, 8), (3, 2), 8, padding=(1, 1)),
    ],
    ids=str,
)
def test_other_geometry_is_never_winograds(
    kernels: Any, choose: Callable[[str], None], case: Case
) -> None:
    choose("direct")
    want = all_three(kernels, case)
    choose("winograd")
    for got, plain in zip(all_three(kernels, case), want, strict=True):
        np.testing.assert_array_equal(got, plain)


@pytest.mark.parametrize("channels", [24, 300])  # transformed weights all at once, and in parts
def test_threads_change_no_bit(kernels: Any, choose: Callable[[str], None], channels: int) -> None:
    choose("winograd")
    case = Case((3, 30, 21, channels), (3, 3), channels, padding=(1, 1))
    same_for_any_threads(kernels.module, lambda: all_three(kernels, case))


def test_unknown_algorithms_are_refused(kernels: Any) -> None:
    with pytest.raises(ValueError, match="'fft' is no algorithm; use auto, direct or winograd"):
        kernels.module.select_conv2d("fft")
