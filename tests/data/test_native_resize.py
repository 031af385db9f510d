"""The kernels that resample and recolour: bitwise equal to the NumPy definitions, and correct.

Correctness is checked with exact rational arithmetic, other libraries and known cases. How steps
chain is not tested here.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle.data.samples import native_kernels as native
from needle.data.transforms.affine import resample
from needle.data.transforms.resampling import scaled

pytestmark = pytest.mark.skipif(not native.has("run_images"), reason="the kernels are not built")


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


def test_far_enlargements_and_reductions_are_the_definition():
    for size, new_size in [((3, 2), (90, 401)), ((500, 731), (3, 2)), ((1, 900), (1, 31))]:
        image = pixels((*size, 3))
        for antialias in (False, True):
            want = scaled(image, new_size, antialias, False)
            np.testing.assert_array_equal(resize(image, new_size, antialias), want)


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
