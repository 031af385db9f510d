"""Test Winograd's algorithm for conv2d and its gradients: error bounds, and when it is chosen.

Its results are tested with the other algorithms in test_conv2d. The root-mean-square error of its
float32 results against float64 is at most 4.5 times that of sequential float32 sums; the weight
gradient's is at most seven times that of the direct algorithm, whose many partial sums have small
errors. docs/internals/accuracy.md has the factors for 64 to 512 channels.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from test_conv2d import Conv
from test_kernels import same_for_any_threads

import needle as ndl
from needle import accelerated, config, ops

FACTORS = (4.5, 4.5, 7.0)  # output, input and weight gradient
FACTORS_OF_DIRECT = (3.5, 3.5, 4.5)


@pytest.fixture
def by(kernels: Any) -> Iterator[Callable[[str, Conv], list[np.ndarray]]]:
    """Return a function that computes a convolution and its gradients by an algorithm."""

    def run(algorithm: str, conv: Conv) -> list[np.ndarray]:
        kernels.module.select_conv2d(algorithm)
        return conv.run(kernels)

    yield run
    kernels.module.select_conv2d(config.conv2d_algorithm.get())


def random_conv(seed: int) -> Conv:
    rng = np.random.default_rng(seed)
    n, c, o = (int(v) for v in rng.integers(1, (5, 90, 90)))
    h, w = (int(v) for v in rng.integers(3, 21, 2))
    return Conv((n, h, w, 300 if seed == 0 else c), (3, 3), o, padding=tuple(rng.integers(0, 4, 2)))


def in_float64(conv: Conv) -> tuple[np.ndarray, ...]:
    x, weight, grad = (a.astype(np.float64) for a in conv.operands())
    return (
        accelerated.conv2d.definition(x, weight, conv.geometry),
        accelerated.conv2d_input_grad.definition(grad, weight, conv.x, conv.geometry),
        accelerated.conv2d_weight_grad.definition(grad, x, conv.weight, conv.geometry),
    )


@functools.cache
def running_sums(conv: Conv) -> tuple[np.ndarray, ...]:
    """Return the output and the input gradient, summed product by product in float32."""
    x, weight, grad = conv.operands()
    (_, h, w, channels), (ph, pw), (_, oh, ow, outputs) = conv.x, conv.padding, conv.out
    padded = np.pad(x, ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    out, dx = np.zeros(conv.out, np.float32), np.zeros_like(padded)
    for i, j in np.ndindex(3, 3):
        window = (slice(None), slice(i, i + oh), slice(j, j + ow))
        for c in range(channels):
            out += padded[window][..., c, None] * weight[i, j, c]
        for o in range(outputs):
            dx[window] += grad[..., o, None] * weight[i, j, :, o]
    return out, dx[:, ph : ph + h, pw : pw + w]


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(np.mean((got - want) ** 2)))


@pytest.mark.parametrize("seed", range(24))
def test_error_is_a_small_factor_of_the_direct_sums(by: Any, seed: int) -> None:
    conv = random_conv(seed)
    direct, fast = by("direct", conv), by("winograd", conv)
    plain = *running_sums(conv), direct[2]
    for exact, slow, quick, measure, factor in zip(
        in_float64(conv), direct, fast, plain, FACTORS, strict=True
    ):
        assert not np.array_equal(slow, quick), "the algorithm was not used"
        assert error(quick, exact) <= factor * error(measure, exact)


@pytest.mark.parametrize("channels", [64, 128, 256, 512])
def test_error_with_many_channels(by: Any, channels: int) -> None:
    conv = Conv((2, 12, 12, channels), (3, 3), channels, padding=(1, 1))
    results = zip(in_float64(conv), by("direct", conv), by("winograd", conv), strict=True)
    for (exact, slow, quick), factor in zip(results, FACTORS_OF_DIRECT, strict=True):
        assert error(quick, exact) <= factor * error(slow, exact)


@pytest.mark.parametrize("channels", [64, 128, 256])
@pytest.mark.usefixtures("kernels")
def test_a_program_can_choose_the_direct_sums(channels: int) -> None:
    """Direct convolutions use partial sums too, so their error is that of matrix products."""
    rng = np.random.default_rng(0)
    weight, *images = (
        rng.standard_normal((n, channels, side, side), "float32")
        for n, side in ((channels, 3), (2, 12), (2, 12))
    )

    def results(dtype: str) -> list[np.ndarray]:
        x, grad, w = (ndl.Tensor(a, device=ndl.cpu(), dtype=dtype) for a in (*images, weight))
        y = ops.conv2d(x, w, padding=1)
        y.backward(grad)
        return [a.numpy() for a in (y, x.grad, w.grad)]

    exact = results("float64")
    with config.conv2d_algorithm.using("direct"):
        direct = results("float32")
    for got, want, fast in zip(direct, exact, results("float32"), strict=True):
        assert not np.array_equal(got, fast)
        assert error(got, want) <= 4 * 2.0**-24 * error(want, np.zeros_like(want))


# Winograd pays if there are enough channels and tiles, and most of each tile is inside the image.
@pytest.mark.parametrize(
    ("conv", "expected"),
    [
        (Conv((2, 32, 32, 16), (3, 3), 16, padding=(1, 1)), "winograd"),
        (Conv((8, 14, 14, 64), (3, 3), 64, padding=(1, 1)), "winograd"),
        (Conv((24, 4, 4, 64), (3, 3), 64, padding=(1, 1)), "winograd"),
        (Conv((2, 32, 32, 3), (3, 3), 16, padding=(1, 1)), "direct"),
        (Conv((24, 2, 2, 64), (3, 3), 64, padding=(1, 1)), "direct"),
        (Conv((1, 4, 4, 64), (3, 3), 64, padding=(1, 1)), "direct"),
    ],
    ids=str,
)
def test_choice_by_shape(by: Any, conv: Conv, expected: str) -> None:
    assert not np.array_equal(by("direct", conv)[0], by("winograd", conv)[0])
    for got, want in zip(by("auto", conv), by(expected, conv), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "conv",
    [
        Conv((1, 9, 9, 8), (3, 3), 8, padding=(1, 1), stride=(2, 2)),
        Conv((1, 9, 9, 8), (3, 3), 8, padding=(1, 1), dilation=(2, 1)),
        Conv((1, 9, 9, 8), (3, 2), 8, padding=(1, 1)),
    ],
    ids=str,
)
def test_other_geometry_is_never_winograds(by: Any, conv: Conv) -> None:
    for got, plain in zip(by("winograd", conv), by("direct", conv), strict=True):
        np.testing.assert_array_equal(got, plain)


@pytest.mark.parametrize("channels", [24, 300])  # weights transformed all at once, and in parts
def test_threads_change_no_bit(kernels: Any, by: Any, channels: int) -> None:
    conv = Conv((3, 30, 21, channels), (3, 3), channels, padding=(1, 1))
    same_for_any_threads(kernels.module, lambda: by("winograd", conv))


def test_unknown_algorithms_are_refused(kernels: Any) -> None:
    with pytest.raises(ValueError, match="'fft' is no algorithm; use auto, direct or winograd"):
        kernels.module.select_conv2d("fft")
