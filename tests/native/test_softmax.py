"""The softmax family and cross entropy against their formulas in NumPy float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_views import FLOATS
from layout_runs import close, results

SHAPES = [(1,), (7,), (3, 1), (4, 33), (70, 5), (2, 3, 100), (3, 4, 5, 6), (0, 4), (300, 65)]
AXES = [(shape, axis) for shape in SHAPES for axis in range(len(shape))]


def values(shape: tuple[int, ...], dtype: str, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(dtype)


def softmax(a: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(a - a.max(axis=axis, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=axis, keepdims=True)


def log_softmax(a: np.ndarray, axis: int) -> np.ndarray:
    shifted = a - a.max(axis=axis, keepdims=True, initial=-np.inf)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    return shifted - np.log(total) if a.size else shifted


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape, axis", AXES, ids=str)
def test_softmax_and_its_logarithm(
    kernels: Any, shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    a = values(shape, dtype)
    for call, formula in ((kernels.softmax, softmax), (kernels.log_softmax, log_softmax)):
        want = formula(a.astype(np.float64), axis)
        for layout, (got,) in results(call, (a,), [(shape, dtype)], axis):
            close(got, want, 1e-6, layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_extreme_logits(kernels: Any, axis: int, dtype: str) -> None:
    inf, nan = np.inf, np.nan
    rows = [
        [1e10, -1e10, 1e10, 0], [-inf, 0, 1, -inf], [-inf] * 4, [inf, 0, 0, 0],
        [nan, 0, 1, 2], [0, 1, 2, nan], [-1e10] * 4, [88, 89, 90, 91],
    ]  # fmt: skip
    a = np.tile(np.array(rows, dtype), (1, 5))  # long enough for vector code
    a = a if axis == 1 else a.T.copy()
    with np.errstate(all="ignore"):
        wanted = softmax(a.astype(np.float64), axis), log_softmax(a.astype(np.float64), axis)
    for call, want in zip((kernels.softmax, kernels.log_softmax), wanted, strict=True):
        for layout, (got,) in results(call, (a,), [(a.shape, dtype)], axis):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-30, err_msg=layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape, axes",
    [((7,), (0,)), ((3, 4), (0,)), ((3, 40), (1,)), ((2, 3, 4, 5), (0, 2)), ((2, 3, 40), (1, 2)),
     ((5, 0), (1,)), ((0, 5), (1,)), ((4, 5), (0, 1))],
)  # fmt: skip
def test_logsumexp(kernels: Any, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    a = values(shape, dtype, 30.0)
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    want = np.logaddexp.reduce(a.astype(np.float64), axis=axes[0], keepdims=True)
    for axis in axes[1:]:
        want = np.logaddexp.reduce(want, axis=axis, keepdims=True)
    for layout, (got,) in results(kernels.logsumexp, (a,), [(kept, dtype)]):
        close(got, want, 1e-6, layout) if a.size else np.testing.assert_array_equal(got, want)


def test_logsumexp_of_infinities(kernels: Any) -> None:
    inf = np.inf
    a = np.array([[-inf, -inf], [inf, -inf], [inf, 1], [np.nan, inf], [1e10, 1e10]], np.float32)
    want = np.array([[-inf], [inf], [inf], [np.nan], [1e10]], np.float32)
    for layout, (got,) in results(kernels.logsumexp, (a,), [((5, 1), "float32")]):
        np.testing.assert_array_equal(got, want, err_msg=layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", [(5, 10), (1, 1), (70, 33), (0, 3)], ids=str)
def test_cross_entropy(kernels: Any, shape: tuple[int, int], smoothing: float, dtype: str) -> None:
    logits, (n, classes) = values(shape, dtype), shape
    labels = np.random.default_rng(1).integers(0, classes, n)
    grad = values((n,), dtype)
    q = np.eye(classes)[labels] * (1 - smoothing) + smoothing / classes
    exact = logits.astype(np.float64)
    loss, slope = -(q * log_softmax(exact, 1)).sum(1), grad[:, None] * (softmax(exact, 1) - q)
    call, outs = kernels.cross_entropy, [((n,), dtype)]
    for layout, (got,) in results(call, (logits, labels), outs, smoothing):
        close(got, loss, 1e-6, layout)
    call, outs = kernels.cross_entropy_grad, [(shape, dtype)]
    for layout, (got,) in results(call, (grad, logits, labels), outs, smoothing):
        close(got, slope, 1e-6, layout)


def test_cross_entropy_of_extreme_logits(kernels: Any) -> None:
    logits = np.array([[1e10, 0, -1e10], [0, -np.inf, 3], [0, -np.inf, 3]], np.float32)
    labels, want = np.array([2, 2, 1]), np.array([2e10, np.log1p(np.exp(-3.0)), np.inf])
    for _, (got,) in results(kernels.cross_entropy, (logits, labels), [((3,), "float32")], 0.0):
        np.testing.assert_allclose(got, want, rtol=1e-5)
