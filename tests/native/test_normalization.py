"""batch_norm and layer_norm with gradients against their formulas in NumPy float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_views import FLOATS, empty_view, numpy_of, view_of
from layout_runs import close, results, same_for_any_threads

from needle.backends.base import NO_EPILOGUE, Epilogue, EpilogueGrad, View

EPS = 1e-5
BATCH_SHAPES = [(5, 3), (1, 1), (2, 7, 5, 4), (4, 9, 8, 70), (700, 3), (3, 1, 1, 65), (1000, 64)]
LAYER_SHAPES = [(5, 3), (1, 1), (2, 3, 40), (70, 5), (3, 1000), (9,), (300, 17)]


def random(shape: tuple[int, ...], dtype: str, seed: int, mean: float = 0.5) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) + mean).astype(dtype)


def normalized(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return (x - mean) / sqrt(var + eps), the mean and the biased variance, with keepdims."""
    mean = x.mean(axis=axes, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(var + EPS), mean, var


def gradients(
    grad: np.ndarray, x: np.ndarray, weight: np.ndarray, axes: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    """Return the gradients of sum(grad * (normalized(x) * weight + bias)) in x, weight and bias."""
    normal, _, var = normalized(x, axes)
    inner = grad * weight
    centered = inner - inner.mean(axis=axes, keepdims=True)
    x_grad = centered - normal * (inner * normal).mean(axis=axes, keepdims=True)
    leading = tuple(range(x.ndim - 1))
    return x_grad / np.sqrt(var + EPS), (grad * normal).sum(leading), grad.sum(leading)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", BATCH_SHAPES, ids=str)
def test_batch_norm(kernels: Any, shape: tuple[int, ...], dtype: str) -> None:
    x, weight, bias = (random(s, dtype, i) for i, s in enumerate((shape, shape[-1:], shape[-1:])))
    normal, mean, var = normalized(x.astype(np.float64), tuple(range(len(shape) - 1)))
    wanted = normal * weight + bias, mean.reshape(-1), var.reshape(-1)
    outs = [(shape, dtype), (shape[-1:], dtype), (shape[-1:], dtype)]
    for layout, got in results(kernels.batch_norm, (x, weight, bias), outs, EPS, NO_EPILOGUE):
        for one, want in zip(got, wanted, strict=True):
            close(one, want, 2e-6, layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", BATCH_SHAPES[2:], ids=str)
def test_batch_norm_gradient(kernels: Any, shape: tuple[int, ...], dtype: str) -> None:
    axes = tuple(range(len(shape) - 1))
    grad, x, weight = (random(s, dtype, i) for i, s in enumerate((shape, shape, shape[-1:])))
    exact = [a.astype(np.float64) for a in (grad, x, weight)]
    _, mean, var = normalized(exact[1], axes)
    statistics = [a.reshape(-1).astype(dtype) for a in (mean, var)]
    outs = [(shape, dtype), (shape[-1:], dtype), (shape[-1:], dtype)]
    wanted = gradients(*exact, axes)
    for layout, got in results(
        kernels.batch_norm_grad, (grad, x, weight, *statistics), outs, EPS, EpilogueGrad()
    ):
        for one, want in zip(got, wanted, strict=True):
            close(one, want, 1e-5, layout)


# Results of more than 12 MB use non-temporal stores; rows of 12 channels are merged.
@pytest.mark.parametrize("shape", [(53001, 64), (280001, 12)], ids=str)
def test_batch_norm_of_a_large_array(kernels: Any, shape: tuple[int, int]) -> None:
    grad, x = (random(shape, "float32", i) for i in range(2))
    weight, bias = (random(shape[1:], "float32", i) for i in range(2, 4))
    exact = [a.astype(np.float64) for a in (grad, x, weight)]
    normal, mean, var = normalized(exact[1], (0,))
    views = [view_of(a) for a in (x, weight, bias, grad, mean[0].astype("float32"))]
    statistics = [views[4], view_of(var[0].astype("float32"))]
    channels = shape[1:]

    def call() -> list[np.ndarray]:
        outs = [empty_view(s, "float32") for s in (shape, channels, channels) * 2]
        kernels.batch_norm(*views[:3], *outs[:3], EPS, NO_EPILOGUE)
        kernels.batch_norm_grad(views[3], *views[:2], *statistics, *outs[3:], EPS, EpilogueGrad())
        return [numpy_of(out) for out in outs]

    wanted = normal * weight + bias, mean[0], var[0], *gradients(*exact, (0,))
    for got, want in zip(call(), wanted, strict=True):
        close(got, want, 1e-5)
    same_for_any_threads(kernels.module, call)


# An outlier as the first value must not spoil the sums: their error stays within that of float32
# sums of a few hundred terms.
@pytest.mark.parametrize("first, tolerance", [(1e4, 1e-6), (2e4, 4e-6)])
@pytest.mark.parametrize("shape", [(64, 10, 10, 5), (3000, 64), (20000, 1)], ids=str)
def test_batch_norm_of_a_large_mean(
    kernels: Any, shape: tuple[int, ...], first: float, tolerance: float
) -> None:
    x = random(shape, "float32", 0, mean=1e4)
    x[0] = first
    ones, zeros = np.ones(shape[-1], np.float32), np.zeros(shape[-1], np.float32)
    axes = tuple(range(len(shape) - 1))
    normal, _, var = normalized(x.astype(np.float64), axes)
    outs = [(shape, "float32"), (shape[-1:], "float32"), (shape[-1:], "float32")]
    for layout, (got, _, got_var) in results(
        kernels.batch_norm, (x, ones, zeros), outs, EPS, NO_EPILOGUE
    ):
        np.testing.assert_allclose(got_var, var.reshape(-1), rtol=tolerance, err_msg=layout)
        close(got, normal, tolerance, layout)


def test_batch_norm_of_nothing(kernels: Any) -> None:
    x, one = np.zeros((0, 3, 3, 2), np.float32), np.ones(2, np.float32)
    outs = [(x.shape, "float32"), ((2,), "float32"), ((2,), "float32")]
    for _, (_, mean, var) in results(kernels.batch_norm, (x, one, one), outs, EPS, NO_EPILOGUE):
        assert np.isnan(mean).all() and np.isnan(var).all()
    for _, (_, dw, db) in results(
        kernels.batch_norm_grad, (x, x, one, one, one), outs, EPS, EpilogueGrad()
    ):
        assert not dw.any() and not db.any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", LAYER_SHAPES, ids=str)
def test_layer_norm(kernels: Any, shape: tuple[int, ...], dtype: str) -> None:
    x, weight, bias = (random(s, dtype, i) for i, s in enumerate((shape, shape[-1:], shape[-1:])))
    normal, mean, var = normalized(x.astype(np.float64), (-1,))
    outs = [(shape, dtype), (mean.shape, dtype), (mean.shape, dtype)]
    for layout, got in results(kernels.layer_norm, (x, weight, bias), outs, EPS):
        for one, want in zip(got, (normal * weight + bias, mean, var), strict=True):
            close(one, want, 2e-6, layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", LAYER_SHAPES[2:], ids=str)
def test_layer_norm_gradient(kernels: Any, shape: tuple[int, ...], dtype: str) -> None:
    grad, x, weight = (random(s, dtype, i) for i, s in enumerate((shape, shape, shape[-1:])))
    exact = [a.astype(np.float64) for a in (grad, x, weight)]
    _, mean, var = normalized(exact[1], (-1,))
    outs = [(shape, dtype), (shape[-1:], dtype), (shape[-1:], dtype)]
    inputs = (grad, x, weight, mean.astype(dtype), var.astype(dtype))
    wanted = gradients(*exact, (-1,))
    for layout, got in results(kernels.layer_norm_grad, inputs, outs, EPS):
        for one, want in zip(got, wanted, strict=True):
            close(one, want, 1e-5, layout)


FUSED_SHAPES = [*BATCH_SHAPES[2:], (3, 17, 31, 6), (500, 2, 256), (70, 9, 300)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", FUSED_SHAPES, ids=str)
@pytest.mark.parametrize("adds", [False, True])
def test_batch_norm_with_relu(kernels: Any, shape: Any, dtype: str, adds: bool) -> None:
    """Test forward and gradient, with no value near 0, where the gradient's mask is unclear."""
    axes, channels = tuple(range(len(shape) - 1)), shape[-1:]
    x, grad, added = (random(shape, dtype, i) for i in range(3))
    weight, bias = random(channels, dtype, 3), random(channels, dtype, 4)
    normal, mean, var = normalized(x.astype(np.float64), axes)
    y = normal * weight + bias + (added if adds else 0)
    grad[np.abs(y) < 1e-4] = 0
    statistics = [a.reshape(-1) for a in (mean, var)]
    outs = [(shape, dtype), (channels, dtype), (channels, dtype)]
    inputs = (x, weight, bias, *([added] if adds else []))

    def forward(*views: View) -> None:
        residual = views[3] if adds else None
        kernels.batch_norm(*views[:3], *views[-3:], EPS, Epilogue(None, residual, True))

    for layout, got in results(forward, inputs, outs):
        for one, want in zip(got, (np.maximum(y, 0), *statistics), strict=True):
            close(one, want, 2e-6, layout)

    masked = np.where(y > 0, grad, 0).astype(np.float64)
    exact = (masked, x.astype(np.float64), weight.astype(np.float64))
    wanted = [*gradients(*exact, axes), *([masked] if adds else [])]
    mean, var = (a.astype(dtype) for a in statistics)
    if adds:
        y = np.maximum(y, 0).astype(dtype)
        outs = [*outs, (shape, dtype)]

    def backward(*views: View) -> None:
        given, last = views[5], views[-1]
        epilogue = EpilogueGrad(None, given, last) if adds else EpilogueGrad(given)
        kernels.batch_norm_grad(*views[:5], *views[6:9], EPS, epilogue)

    inputs = (grad, x, weight, mean, var, y if adds else bias)
    for layout, got in results(backward, inputs, outs):
        for one, want in zip(got, wanted, strict=True):
            close(one, want, 1e-5, layout)


def test_batch_norm_with_relu_keeps_nan(kernels: Any) -> None:
    x = random((40, 3), "float32", 0)
    x[7, 1] = np.nan
    ones = np.ones(3, np.float32)
    outs = [(x.shape, "float32"), ((3,), "float32"), ((3,), "float32")]
    for _, (y, _, _) in results(
        kernels.batch_norm, (x, ones, ones), outs, EPS, Epilogue(relu=True)
    ):
        assert np.isnan(y[:, 1]).all() and not np.isnan(y[:, [0, 2]]).any()


@pytest.mark.parametrize("layout", ["compact", "permuted"])
@pytest.mark.parametrize("channels", [6, 24, 300])
def test_threads_do_not_change_batch_norm_with_relu(
    kernels: Any, layout: str, channels: int
) -> None:
    shape = (6, 30, 41, channels)
    x, grad, added = (view_of(random(shape, "float32", i), layout) for i in range(3))
    ones = view_of(np.ones(channels, np.float32))

    def call() -> list[np.ndarray]:
        out, dx, dr = (empty_view(shape, "float32") for _ in range(3))
        mean, var, dw, db = (empty_view((channels,), "float32") for _ in range(4))
        kernels.batch_norm(x, ones, ones, out, mean, var, EPS, Epilogue(None, added, True))
        epilogue = EpilogueGrad(None, out, dr)
        kernels.batch_norm_grad(grad, x, ones, mean, var, dx, dw, db, EPS, epilogue)
        first = [numpy_of(v) for v in (out, mean, var, dx, dw, db, dr)]
        kernels.batch_norm_grad(grad, x, ones, mean, var, dx, dw, db, EPS, EpilogueGrad(ones))
        return [*first, *(numpy_of(v) for v in (dx, dw, db))]

    same_for_any_threads(kernels.module, call)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (0, 3), (3, 0), (5, 1), (3, 5, 7, 6), (9, 300)], ids=str)
def test_bias_with_relu(kernels: Any, shape: Any, dtype: str) -> None:
    axes, channels = tuple(range(len(shape) - 1)), shape[-1:]
    a, grad, bias = random(shape, dtype, 0), random(shape, dtype, 1), random(channels, dtype, 2)
    y = np.maximum(a + bias, 0)

    def forward(a: View, bias: View, out: View) -> None:
        kernels.apply_epilogue(a, out, Epilogue(bias, relu=True))

    for layout, (got,) in results(forward, (a, bias), [(shape, dtype)]):
        np.testing.assert_array_equal(got, y, err_msg=layout)
    kept, outs = np.where(y > 0, grad, 0), [(shape, dtype), (channels, dtype)]
    for layout, (one, sums) in results(kernels.relu_grad, (grad, y), outs):
        np.testing.assert_array_equal(one, kept, err_msg=layout)
        close(sums, kept.sum(axes, dtype=np.float64), 1e-6, layout)


@pytest.mark.parametrize("layout", ["compact", "permuted"])
@pytest.mark.parametrize("channels", [6, 300])
def test_threads_do_not_change_bias_with_relu(kernels: Any, layout: str, channels: int) -> None:
    shape = (6, 30, 41, channels)
    a, grad = (view_of(random(shape, "float32", i), layout) for i in range(2))
    bias = view_of(random((channels,), "float32", 2))

    def call() -> list[np.ndarray]:
        y, kept, sums = (empty_view(s, "float32") for s in (shape, shape, (channels,)))
        kernels.apply_epilogue(a, y, Epilogue(bias, relu=True))
        kernels.relu_grad(grad, y, kept, sums)
        return [numpy_of(v) for v in (y, kept, sums)]

    same_for_any_threads(kernels.module, call)


@pytest.mark.parametrize("name", ["batch_norm", "layer_norm"])
@pytest.mark.parametrize("layout", ["compact", "permuted"])
def test_threads_do_not_change_the_result(kernels: Any, name: str, layout: str) -> None:
    shape, statistic = (6, 30, 40, 24), (24,) if name == "batch_norm" else (6, 30, 40, 1)
    x, grad = (view_of(random(shape, "float32", i), layout) for i in range(2))
    ones = view_of(np.ones(24, np.float32))

    def call() -> list[np.ndarray]:
        out, mean, var = (empty_view(s, "float32") for s in (shape, statistic, statistic))
        forward, backward = (
            ((NO_EPILOGUE,), (EpilogueGrad(),)) if name == "batch_norm" else ((), ())
        )
        getattr(kernels, name)(x, ones, ones, out, mean, var, EPS, *forward)
        dx, dw, db = (empty_view(s, "float32") for s in (shape, (24,), (24,)))
        getattr(kernels, f"{name}_grad")(grad, x, ones, mean, var, dx, dw, db, EPS, *backward)
        return [numpy_of(v) for v in (out, mean, var, dx, dw, db)]

    same_for_any_threads(kernels.module, call)
