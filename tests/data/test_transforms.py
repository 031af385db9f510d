"""Transforms: the course's exact random streams, and values against loops, torch and Pillow."""

import numpy as np
import pytest

from needle import data
from needle.errors import ShapeError


def image(height=6, width=5, channels=3, dtype="float32", seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels))
    return (pixels / 255).astype(dtype) if dtype.startswith("float") else pixels.astype(dtype)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_flip_draws_one_rand_and_mirrors_axis_1(p):
    x, flip = image(), data.RandomFlipHorizontal(p)
    np.random.seed(3)
    draws = [np.random.rand() for _ in range(20)]
    after = np.random.rand()
    np.random.seed(3)
    for draw in draws:
        np.testing.assert_array_equal(flip(x), x[:, ::-1] if draw < p else x)
    assert np.random.rand() == after


@pytest.mark.parametrize("padding", [0, 1, 3, 9])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_crop_draws_one_randint_and_takes_the_shifted_window(padding, dtype):
    x, crop = image(dtype=dtype), data.RandomCrop(padding)
    padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)))
    for seed in range(20):
        np.random.seed(seed)
        sx, sy = np.random.randint(low=-padding, high=padding + 1, size=2)
        after = np.random.rand()
        np.random.seed(seed)
        got = crop(x)
        rows, columns = slice(padding + sx, padding + sx + 6), slice(padding + sy, padding + sy + 5)
        np.testing.assert_array_equal(got, padded[rows, columns])
        assert got.dtype == x.dtype and np.random.rand() == after


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("size", [(32, 32), (3, 4), (1, 1), (8, 8), (5, 20), (13, 3)])
def test_resize_agrees_with_torch(size, antialias):
    functional = pytest.importorskip("torch.nn.functional")
    torch = pytest.importorskip("torch")
    x = image(8, 8)
    batch = torch.from_numpy(x.transpose(2, 0, 1)[None])
    want = functional.interpolate(
        batch, size=size, mode="bilinear", align_corners=False, antialias=antialias
    )
    got = data.Resize(size, antialias=antialias)(x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want[0].numpy().transpose(1, 2, 0), atol=2e-6)


@pytest.mark.parametrize("size", [(32, 32), (5, 7), (16, 8)])
def test_resize_of_bytes_agrees_with_pillow_to_one_step(size):
    pillow = pytest.importorskip("PIL.Image")
    x = image(16, 12, dtype="uint8")
    want = np.asarray(
        pillow.fromarray(x).resize((size[1], size[0]), resample=pillow.Resampling.BILINEAR)
    )
    got = data.Resize(size)(x)
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - want).max() <= 1


def test_resize_by_one_int_keeps_the_ratio_and_float64():
    assert data.Resize(4)(image(8, 6)).shape == (5, 4, 3)
    assert data.Resize(4)(image(6, 8)).shape == (4, 5, 3)
    assert data.Resize(4)(image(dtype="float64")).dtype == np.float64
    flat = np.full((7, 5, 1), 0.25, np.float32)
    np.testing.assert_allclose(data.Resize((3, 9))(flat), 0.25, rtol=1e-6)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: data.RandomFlipHorizontal(1.5), ValueError, r"p must be in \[0, 1\], got 1.5"),
        (lambda: data.RandomCrop(-1), ValueError, "RandomCrop: padding must not be negative"),
        (lambda: data.Pad((1, -1)), ValueError, "Pad: padding must not be negative"),
        (lambda: data.Resize(0), ValueError, "Resize: size must be at least 1, got 0"),
        (lambda: data.Normalize(0, (1, 0)), ValueError, "Normalize: std must be positive"),
        (lambda: data.Normalize((1, 2), 1)(image()), ShapeError, "mean has 2 values, got an"),
        (lambda: data.RandomCrop()(np.zeros((4, 4))), ShapeError, "RandomCrop: needs an image"),
        (lambda: data.ToCHW()(np.zeros(4)), ShapeError, "ToCHW: needs an image"),
        (lambda: data.Pad(1)(np.zeros((2, 2))), ShapeError, "Pad: needs an image"),
        (lambda: data.Resize(2)(np.zeros((0, 2, 1))), ShapeError, "must have pixels"),
        (lambda: data.Transform()(image()), NotImplementedError, "must define __call__"),
    ],
)
def test_bad_transforms(make, error, message):
    with pytest.raises(error, match=message):
        make()
