"""Max and average pooling with gradients against loops over windows in NumPy float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kernel_views import FLOATS, numpy_of, view_of
from layout_runs import close, results, same_for_any_threads

from needle.backends import View

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
    """Yield ((n, i, j), (n, rows, columns)) for each output pixel and its window of the image."""
    n, oh, ow, _ = out_shape(shape, kernel, stride, padding)
    for image, i, j in itertools.product(range(n), range(oh), range(ow)):
        top, left = i * stride[0] - padding[0], j * stride[1] - padding[1]
        rows = slice(max(top, 0), min(top + kernel[0], shape[1]))
        columns = slice(max(left, 0), min(left + kernel[1], shape[2]))
        yield (image, i, j), (image, rows, columns)


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return few different values, so that windows have ties."""
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


def inside(base: np.ndarray, shape: tuple[int, ...]) -> View:
    """Return a view of this shape that starts at pixel (1, 2) of each image of ``base``."""
    whole = view_of(base)
    offset = whole.strides[1] + 2 * whole.strides[2]
    return View(whole.handle, shape, whole.strides, offset, whole.dtype)


def around(view: View, base_shape: tuple[int, ...]) -> np.ndarray:
    """Return the contents of the buffer of ``inside``, with zeros in place of the view."""
    strides = view.strides
    base = numpy_of(View(view.handle, base_shape, strides, 0, view.dtype)).copy()
    base[:, 1 : 1 + view.shape[1], 2 : 2 + view.shape[2]] = 0
    return base


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("channels", [1, 3, 6, 20])
def test_windows_side_by_side_touch_nothing_around(
    kernels: Any, channels: int, kernel: int
) -> None:
    """Vector loads reach the next pixel, but not past a row; any number of threads agrees."""
    shape, settings = (3, 13, 11, channels), ((kernel, kernel), (kernel, kernel), (0, 0))
    small = out_shape(shape, *settings)
    x_base, y_base = (3, 15, 14, channels), (3, 15, 14, channels)
    image = np.random.default_rng(2).standard_normal(x_base).astype(np.float32)
    seen, grad = image[:, 1:14, 2:13], image[:, 1 : 1 + small[1], 2 : 2 + small[2]]
    tiles = seen[:, : small[1] * kernel, : small[2] * kernel].reshape(
        3, small[1], kernel, small[2], kernel, channels
    )
    wanted = {"max_pool2d": tiles.max((2, 4)), "avg_pool2d": tiles.mean((2, 4), dtype=np.float64)}
    first = tiles == tiles.max((2, 4), keepdims=True)
    for name, share in (("max", first), ("avg", np.full(first.shape, 1 / kernel**2))):
        spread = np.zeros(shape)
        part = (share * grad[:, :, None, :, None]).reshape(
            3, small[1] * kernel, small[2] * kernel, channels
        )
        spread[:, : part.shape[1], : part.shape[2]] = part
        wanted[f"{name}_pool2d_grad"] = spread
    x, g = inside(image, shape), inside(image, small)
    turned = view_of(grad, "permuted")  # like the gradient behind a Flatten of NCHW

    def call() -> list[np.ndarray]:
        found = []
        for name, want in (*wanted.items(), *list(wanted.items())[2:]):
            base = np.full(x_base if want.shape == shape else y_base, 93, np.float32)
            out = inside(base, want.shape)
            given = turned if len(found) > 3 else g
            ins = {"max_pool2d_grad": (given, x), "avg_pool2d_grad": (given,)}.get(name, (x,))
            getattr(kernels, name)(*ins, out, *settings)
            close(numpy_of(out), want, 1e-6, name)
            edge = around(out, base.shape)
            assert set(np.unique(edge)) == {0, 93}, name
            assert (edge == 93).sum() == base.size - want.size, name
            found.append(numpy_of(out))
        return found

    same_for_any_threads(kernels.module, call)
