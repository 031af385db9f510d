"""The kernels that resample and recolour: bitwise equal to the NumPy definitions, and correct.

Correctness is checked with exact rational arithmetic, other libraries and known cases. How steps
chain is not tested here.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle.data.samples import native_kernels as native
from needle.data.transforms.affine import resample
from needle.data.transforms.resampling import scaled

pytestmark = pytest.mark.skipif(not native.has("run_images"), reason="the kernels are not built")

WHOLE = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def run(image, name, constants, row, shape):
    """Run one step over one image, with guard bytes around the result that must stay intact."""
    around = np.full((3, *shape), 119, image.dtype)
    parameters = np.array([row], dtype=np.float64)
    native.run_images([(name, constants)], [parameters], [image], None, around[1:2], 1)
    assert (around[[0, 2]] == 119).all()
    return around[1]


def resize(image, size, antialias=True, bilinear=True, box=None):
    box = box or (0, 0, *image.shape[:2])
    constants = (float(size[0]), float(size[1]), float(bilinear), float(antialias))
    return run(image, "resize", constants, box, (*size, image.shape[2]))


def affine(image, row, bilinear=True, fill=0.0):
    height, width, channels = image.shape
    constants = (float(height), float(width), float(bilinear), float(fill))
    return run(image, "affine", constants, row, (height, width, channels))


def colour(image, matrix):
    return run(image, "colour", (), np.ravel(matrix), image.shape)


def pixels(shape, dtype=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == np.uint8:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    return rng.random(shape, dtype=np.float32)


def layouts(image):
    """Return the same pixels as planes, transposed, reversed and inside a larger array."""
    larger = np.zeros(np.add(image.shape, (2, 3, 0)), image.dtype)
    larger[1:-1, 1:-2] = image
    return [
        image,
        np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0),
        np.ascontiguousarray(image.transpose(1, 0, 2)).transpose(1, 0, 2),
        np.ascontiguousarray(image[::-1, ::-1])[::-1, ::-1],
        np.ascontiguousarray(image[:, ::-1])[:, ::-1],
        larger[1:-1, 1:-2],
    ]


SIDE = st.integers(1, 70)
DTYPE = st.sampled_from([np.uint8, np.float32])


@settings(max_examples=50, deadline=None)
@given(SIDE, SIDE, st.integers(1, 5), SIDE, SIDE, DTYPE, st.booleans(), st.booleans(), st.data())
def test_resizing_is_the_definition(h, w, c, rows, columns, dtype, antialias, bilinear, data):
    image = pixels((h, w, c), dtype)
    top, left = data.draw(st.integers(0, h - 1)), data.draw(st.integers(0, w - 1))
    box = (top, left, data.draw(st.integers(1, h - top)), data.draw(st.integers(1, w - left)))
    cut = image[top : top + box[2], left : left + box[3]]
    want = scaled(cut, (rows, columns), antialias, not bilinear)
    for same in layouts(image):
        got = resize(same, (rows, columns), antialias, bilinear, box)
        if dtype == np.uint8 or not bilinear:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def exact_weights(size, new_size, i, antialias):
    """Return the triangle filter's weights as exact rational numbers, from its formula alone."""
    ratio = Fraction(size, new_size)
    reach = max(ratio, Fraction(1)) if antialias else Fraction(1)
    centre = (i + Fraction(1, 2)) * ratio
    weights = [max(Fraction(0), 1 - abs(x + Fraction(1, 2) - centre) / reach) for x in range(size)]
    total = sum(weights)
    return [w / total for w in weights]


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("sizes", [(1, 5), (2, 7), (9, 9), (10, 3), (17, 4), (31, 12), (6, 11)])
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_are_exact_ones_rounded(sizes, antialias, axis):
    size, new_size = sizes
    images = np.moveaxis(np.eye(size, dtype=np.uint8)[:, :, None, None] * 255, 1, 1 + axis)
    shape = (new_size, 1) if axis == 0 else (1, new_size)
    got = np.stack([resize(one, shape, antialias).ravel() for one in images]).astype(float)
    rows = [exact_weights(size, new_size, i, antialias) for i in range(new_size)]
    want = 255 * np.array([[float(w) for w in row] for row in rows]).T
    # 1/2 for the last rounding, 1/256 for the line's, and 255 * 2**-15 per tap for the weights'
    np.testing.assert_allclose(got, want, rtol=0, atol=0.5 + 1 / 256 + 255 * 2**-15 * 8)


@pytest.mark.parametrize("value", [0, 1, 127, 254, 255])
@pytest.mark.parametrize("antialias", [False, True])
def test_a_flat_image_stays_flat(value, antialias):
    for size in [(1, 1), (5, 3), (37, 64), (300, 200)]:
        image = np.full((*size, 3), value, np.uint8)
        for new_size in [(1, 1), (2, 9), (40, 33), (224, 7)]:
            assert (resize(image, new_size, antialias) == value).all()


def test_resizing_to_the_same_size_is_a_copy():
    for dtype in (np.uint8, np.float32):
        image = pixels((13, 21, 3), dtype)
        for antialias in (False, True):
            np.testing.assert_array_equal(resize(image, (13, 21), antialias), image)


def test_far_enlargements_and_reductions_are_the_definition():
    for size, new_size in [((3, 2), (90, 401)), ((500, 731), (3, 2)), ((1, 900), (1, 31))]:
        image = pixels((*size, 3))
        for antialias in (False, True):
            want = scaled(image, new_size, antialias, False)
            np.testing.assert_array_equal(resize(image, new_size, antialias), want)


@pytest.mark.parametrize("antialias", [False, True])
def test_resizing_is_torchs_but_for_rounding(antialias):
    torch = pytest.importorskip("torch")
    for size, new_size in [((40, 53), (20, 61)), ((64, 48), (17, 16)), ((9, 9), (30, 30))]:
        image = pixels((*size, 3))
        x = torch.tensor(image).permute(2, 0, 1)[None].double()
        want = torch.nn.functional.interpolate(
            x, new_size, mode="bilinear", align_corners=False, antialias=antialias
        )
        got = resize(image, new_size, antialias).astype(float)
        np.testing.assert_allclose(got, want[0].permute(1, 2, 0).numpy(), rtol=0, atol=0.55)


@settings(max_examples=50, deadline=None)
@given(SIDE, SIDE, st.integers(1, 4), DTYPE, st.booleans(), st.integers(0, 2**32), st.booleans())
def test_affine_maps_are_the_definition(h, w, c, dtype, bilinear, seed, halves):
    rng = np.random.default_rng(seed)
    image = pixels((h, w, c), dtype, seed)
    row = rng.normal(size=6) * (1, 1, w, 1, 1, h)
    if halves:  # positions exactly on the border between two fractions
        row = np.round(row * 4096) / 4096
    fill = float(rng.integers(0, 256)) if dtype == np.uint8 else float(np.float32(rng.random()))
    want = resample(image, row, fill, not bilinear)
    for same in layouts(image):
        got = affine(same, row, bilinear, fill)
        if dtype == np.uint8 or not bilinear:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bilinear", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_affine_maps_that_are_known(bilinear, dtype):
    image = pixels((8, 8, 3), dtype)
    np.testing.assert_array_equal(affine(image, WHOLE, bilinear), image)
    turned = affine(image, (0.0, -1.0, 7.0, 1.0, 0.0, 0.0), bilinear)  # x = 7 - Y, y = X
    np.testing.assert_array_equal(turned, np.rot90(image))
    moved = affine(image, (1.0, 0.0, 3.0, 0.0, 1.0, -2.0), bilinear, fill=1.0)
    np.testing.assert_array_equal(moved[2:, :5], image[:6, 3:])
    assert (moved[:2] == 1).all() and (moved[:, 5:] == 1).all()
    far = affine(image, (1.0, 0.0, 1e300, 0.0, 1.0, -1e300), bilinear, fill=1.0)
    assert (far == 1).all()


def test_half_a_pixel_is_the_mean_of_two():
    image = np.array([10, 20, 40, 255], np.uint8).reshape(1, 4, 1)
    got = affine(image, (1.0, 0.0, 0.5, 0.0, 1.0, 0.0), fill=1.0).ravel()
    assert got.tolist() == [15, 30, 148, 128]  # halves round up


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(1, 300), st.sampled_from([1, 3]), DTYPE, st.booleans(),
       st.integers(0, 2**32))  # fmt: skip
def test_colours_are_the_float32_formula(h, w, c, dtype, diagonal, seed):
    rng = np.random.default_rng(seed)
    m = rng.normal(size=(3, 4)).astype(np.float32)
    m[:, 3] *= 100 if dtype == np.uint8 else 1
    if diagonal:
        m[:, :3] *= np.eye(3, dtype=np.float32)
    image = pixels((h, w, c), dtype, seed)
    x = image.astype(np.float32)
    if c == 1:
        want = m[0, 0] * x + m[0, 3]
    else:
        r, g, b = np.moveaxis(x, 2, 0)
        want = np.stack([((k[0] * r + k[1] * g) + k[2] * b) + k[3] for k in m], axis=-1)
    whole = np.clip(np.rint(want), 0, 255) if dtype == np.uint8 else np.clip(want, 0, 1)
    for same in layouts(image):
        np.testing.assert_array_equal(colour(same, m), whole.astype(dtype))


def test_colours_round_halves_to_even_and_saturate():
    image = np.arange(256, dtype=np.uint8).reshape(4, 64, 1)
    half = [[0.5, 0, 0, 0]] * 3
    want = np.rint(np.arange(256) / 2).reshape(4, 64, 1)
    np.testing.assert_array_equal(colour(image, half), want)
    rgb = np.repeat(image, 3, axis=2)
    np.testing.assert_array_equal(colour(rgb, np.eye(3, 4) / 2), np.repeat(want, 3, axis=2))
    for scale, offset in [(1e30, 0.0), (0.0, 1e30), (-1e30, 0.0), (0.0, -1e30)]:
        every = [[scale, scale, scale, offset]] * 3
        wanted = np.where(scale * rgb.astype(float) + offset > 0, 255, 0)
        np.testing.assert_array_equal(colour(rgb, every), wanted)
        single = np.eye(3, 4) * scale + np.eye(4)[3] * offset
        np.testing.assert_array_equal(colour(rgb, single), wanted)


def test_a_permutation_matrix_exchanges_channels():
    for dtype in (np.uint8, np.float32):
        image = pixels((5, 77, 3), dtype)
        swapped = np.eye(3, 4)[[2, 0, 1]]
        np.testing.assert_array_equal(colour(image, swapped), image[:, :, [2, 0, 1]])
