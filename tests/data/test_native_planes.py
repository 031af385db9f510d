"""The pass from bytes to planes of floats: widths, margins, directions and source layouts."""

import numpy as np
import pytest

from needle.data.samples import native_kernels as native
from needle.data.transforms import Normalize, RandomCrop, RandomFlipHorizontal, ToCHW, ToFloat

pytestmark = pytest.mark.skipif(not native.has("run_images"), reason="no compiled kernels")

LAYOUTS = {
    "pixels": lambda x: x,
    "planes": lambda x: np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1),
    "columns first": lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    "a window": lambda x: np.pad(x, ((0, 0), (1, 2), (3, 1), (0, 0)))[:, 1:-2, 3:-1],
}
NORMALIZATION = Normalize((0.2, 0.4, 0.6), (0.5, 0.25, 2.0))


def check(images, size, places, turned, values):
    """Assert that the kernel crops, flips, maps ``values`` and transposes to CHW as defined."""
    count, channels = len(places), images.shape[3]
    crop, flip = RandomCrop(size=size, fill=9), RandomFlipHorizontal()
    order = np.arange(count)[::-1] % len(images)
    turns = np.stack((turned, np.zeros(count)), axis=1).astype(np.float64)
    steps = [("crop", (*map(float, size), 9.0)), ("flip", ())]
    named = {ToFloat: ("to_float", ()), Normalize: ("normalize", None)}
    for value in values:
        name, constants = named[type(value)]
        if constants is None:
            constants = (float(channels), *value.mean[:channels], *value.std[:channels])
        steps.append((name, constants))
    steps.append(("to_chw", ()))
    none = np.zeros((count, 0))
    rows = [places.astype(np.float64), turns, *[none] * (len(values) + 1)]
    out = np.full((count, channels, *size), np.nan, np.float32)
    native.run_images(steps, rows, images, order, out, 1)
    for i, index in enumerate(order):
        image = flip.apply(crop.apply(images[index], rows[0][i]), rows[1][i])
        for value in values:
            image = value.apply(image, none[i])
        np.testing.assert_array_equal(out[i], ToCHW().apply(image, none[i]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "values", [[ToFloat()], [NORMALIZATION], [ToFloat(), NORMALIZATION]], ids=["f", "n", "fn"]
)
def test_every_width_and_margin(layout, values):
    rng = np.random.default_rng(3)
    for width in (1, 2, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 64):
        images = LAYOUTS[layout](rng.integers(0, 256, (5, 6, width, 3), dtype=np.uint8))
        for size in ((6, width), (4, max(1, width - 3)), (9, width + 11)):
            places = np.stack(
                (rng.integers(-7, 8, 12), rng.integers(-width - 2, width + 3, 12)), axis=1
            )
            places[:3] = [[0, 0], [0, 4], [0, -4]]
            check(images, size, places, rng.integers(0, 2, 12), values)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_longer_than_the_buffers(layout):
    rng = np.random.default_rng(4)
    for width in (2000, 4095, 4096, 4097, 9000):
        images = LAYOUTS[layout](rng.integers(0, 256, (2, 5, width, 3), dtype=np.uint8))
        places = np.array([[0, 0], [1, -5], [-1, 3], [0, 0]])
        check(images, (5, width), places, np.array([0, 1, 1, 1]), [ToFloat(), NORMALIZATION])


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_other_counts_of_channels(channels):
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (4, 7, 21, channels), dtype=np.uint8)
    places, turned = rng.integers(-4, 5, (8, 2)), rng.integers(0, 2, 8)
    check(images, (7, 21), places, turned, [ToFloat()])


def test_runs_of_neighbouring_rows():
    source = np.random.default_rng(6).integers(0, 255, (5000, 40), dtype=np.uint8)
    runs = [
        np.arange(3, 900),
        np.arange(10)[::-1],
        np.array([7, 7, 8, 9, 9]),
        np.arange(4000, 5000),
    ]
    indices = np.concatenate(runs * 20)  # enough work for several threads
    for part in (source, source[:, :33], source[::2][:2500], source[:, ::-1]):
        chosen = indices % len(part)
        np.testing.assert_array_equal(native.gather_rows(part, chosen), part[chosen])
        wide = np.zeros((len(chosen), 50), np.uint8)
        native.gather_rows(part, chosen, wide[:, : part.shape[1]])
        np.testing.assert_array_equal(wide[:, : part.shape[1]], part[chosen])
        assert not wide[:, part.shape[1] :].any()
