"""Max and average pooling with gradients against loops over windows in NumPy float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kernel_views import FLOATS
from layout_runs import close, results

# (N, H, W, C), kernel, stride, padding
CASES = [
    ((2, 4, 6, 3), (2, 2), (2, 2), (0, 0)),
    ((2, 5, 7, 13), (2, 3), (2, 3), (0, 0)),
    ((1, 5, 7, 70), (3, 2), (1, 2), (1, 0)),
    ((2, 6, 5, 1), (3, 3), (2, 1), (1, 1)),
    ((1, 1, 1, 2), (1, 1), (1, 1), (0, 0)),
    ((0, 4, 4, 2), (2, 2), (2, 2), (0, 0)),
    ((2, 7, 7, 5), (2, 2), (3, 3), (0, 0)),
]


def out_shape(shape: Any, kernel: Any, stride: Any, padding: Any) -> tuple[int, ...]:
    sizes = [(shape[i + 1] + 2 * padding[i] - kernel[i]) // stride[i] + 1 for i in range(2)]
    return shape[0], *sizes, shape[3]


def windows(shape: Any, kernel: Any, stride: Any, padding: Any) -> Iterator[tuple[Any, Any]]:
    """((n, i, j), (n, rows, columns)) of each output pixel and what it sees of the image."""
    n, oh, ow, _ = out_shape(shape, kernel, stride, padding)
    for image, i, j in itertools.product(range(n), range(oh), range(ow)):
        top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
        rows = slice(max(top, 0), min(top + kernel[0], shape[1]))
        columns = slice(max(left, 0), min(left + kernel[1], shape[2]))
        yield (image, i, j), (image, rows, columns)


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different values, so that windows have ties."""
    return np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_max(kernels: Any, case: Any, dtype: str) -> None:
    x, shape = values(case[0], dtype), out_shape(*case)
    if x.size > 40:
        x[0, 1, 1, 0] = np.nan
    want = np.empty(shape)
    for at, seen in windows(*case):
        want[at] = x[seen].max(axis=(0, 1))
    for layout, (got,) in results(kernels.max_pool2d, (x,), [(shape, dtype)], *case[1:]):
        np.testing.assert_array_equal(got, want, err_msg=layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_max_gradient_goes_to_the_first_maximum(kernels: Any, case: Any, dtype: str) -> None:
    x, shape = values(case[0], dtype), out_shape(*case)
    if x.size > 40:
        x[0, 1, 1, 0] = np.nan
    grad = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    want = np.zeros(x.shape)
    for at, seen in windows(*case):
        part, target = x[seen], want[seen]
        for c in range(x.shape[3]):
            place = np.unravel_index(part[:, :, c].argmax(), part.shape[:2])
            target[(*place, c)] += grad[(*at, c)]
    call = kernels.max_pool2d_grad
    for layout, (got,) in results(call, (grad, x), [(x.shape, dtype)], *case[1:]):
        close(got, want, 1e-6, layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_average_and_its_gradient(kernels: Any, case: Any, dtype: str) -> None:
    rng, shape = np.random.default_rng(0), out_shape(*case)
    x, grad = (rng.standard_normal(s).astype(dtype) for s in (case[0], shape))
    mean, x_grad, share = np.empty(shape), np.zeros(x.shape), 1 / (case[1][0] * case[1][1])
    for at, seen in windows(*case):
        mean[at] = x[seen].sum(axis=(0, 1), dtype=np.float64) * share
        x_grad[seen] += grad[at].astype(np.float64) * share
    for layout, (got,) in results(kernels.avg_pool2d, (x,), [(shape, dtype)], *case[1:]):
        close(got, mean, 1e-6, layout)
    for layout, (got,) in results(kernels.avg_pool2d_grad, (grad,), [(x.shape, dtype)], *case[1:]):
        close(got, x_grad, 1e-6, layout)
