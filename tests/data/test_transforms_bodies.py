"""Compare the definitions of the augmentations with float64 loops, Pillow and torch."""

import colorsys
import math

import numpy as np
import pytest

from needle import data
from needle.data.transforms import ImageSpec
from needle.errors import DTypeError

DTYPES = ["uint8", "float32"]


def image(height=7, width=5, channels=3, dtype="uint8", seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels))
    return pixels.astype(dtype) if dtype == "uint8" else (pixels / 255).astype(dtype)


def row(*numbers):
    return np.array(numbers, dtype=np.float64)


def test_where_the_middle_is_and_how_fill_is_rounded():
    x = image()
    np.testing.assert_array_equal(data.CenterCrop((3, 2))(x), x[2:5, 1:3])
    np.testing.assert_array_equal(data.CenterCrop(9)(x), np.pad(x, ((1, 1), (2, 2), (0, 0))))
    for fill, want in ((2.5, 2), (3.5, 4), (-7, 0), (300, 255)):
        assert (data.Pad(1, fill)(x)[0] == want).all()


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)])
def test_permute(axes):
    x, permute = image(), data.Permute(axes)
    got = permute(x)
    np.testing.assert_array_equal(got, np.einsum(x, [0, 1, 2], list(axes)))
    assert got.flags.c_contiguous
    assert permute.output(ImageSpec(7, 5, 3, "uint8")).shape == got.shape


def test_to_float_and_normalize_are_float32_arithmetic():
    x = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    want = x.astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(data.ToFloat()(x), want)
    assert data.ToFloat()(want) is want
    got = data.Normalize((127.5,), (63.75,))(x)
    expected = (x.astype(np.float32) - np.float32(127.5)) / np.float32(63.75)
    np.testing.assert_array_equal(got, expected)


def test_normalize_refuses_bytes_with_numbers_for_0_to_1():
    x = np.full((4, 4, 3), 255, np.uint8)
    rule = r"Normalize: mean 0.5 and std 0.25 are for pixels of 0..1, got bytes .* put ToFloat\(\)"
    for chain in ([data.Normalize(0.5, 0.25)], [data.RandomCrop(1), data.Normalize(0.5, 0.25)]):
        with pytest.raises(DTypeError, match=rule):
            data.Compose(chain)(x)
        images = data.ImageArrays(np.stack([x, x]), np.zeros(2), layout="HWC", dtype="uint8")
        with pytest.raises(DTypeError, match=rule):
            next(iter(data.DataLoader(images, 2, transforms=chain)))
    np.testing.assert_allclose(data.Normalize(0.5, 0.25)(data.ToFloat()(x)), 2.0)
    np.testing.assert_allclose(data.Normalize(0.0, 1.0)(x), 255.0)


def test_normalize_takes_images_of_0_to_1_with_a_small_std():
    x = np.zeros((4, 4, 1), np.float32)
    x[1, 2] = 1
    np.testing.assert_allclose(data.Normalize(0.0, 0.005)(x), x * 200)
    with pytest.raises(ValueError, match="within 400 std .* divide"):
        data.Normalize(0.0, 0.005)(x * 255)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint16"])
@pytest.mark.parametrize("std", [0.25, (0.2, 0.3, 0.25)])
def test_normalize_refuses_values_of_0_to_255_with_numbers_for_0_to_1(dtype, std):
    x = np.full((2, 4, 4, 3), 200, dtype)
    x[0] = 0
    images = [(each, 0) for each in x]
    for chain in (
        [data.Normalize(0.5, std)],
        [data.RandomFlipHorizontal(), data.Normalize(0.5, std)],
    ):
        with pytest.raises(ValueError, match="Normalize: .* 200 .* divide"):
            data.Compose(chain)(x[1])
        with pytest.raises(ValueError, match="Normalize: .* divide"):
            next(iter(data.DataLoader(images, 2, transforms=chain)))
    np.testing.assert_allclose(data.Normalize(0, 1)(x[1]), 200)
    spread = np.array([-9, 9], np.float32).reshape(1, 2, 1)
    np.testing.assert_allclose(data.Normalize(0.0, 0.5)(spread), 2 * spread)


def exact_weights(size, new_size, antialias):
    """Return the triangle filter's weights, ``(new_size, size)``, by its formula."""
    reach = max(size / new_size, 1.0) if antialias else 1.0
    centres = (np.arange(new_size) + 0.5) * size / new_size
    raw = np.maximum(0, 1 - abs(np.arange(size) + 0.5 - centres[:, None]) / reach)
    return raw / raw.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(
    "size, new_size",
    [((1, 9), (9, 1)), ((7, 7), (7, 7)), ((50, 13), (13, 50)), ((200, 4), (3, 4)), ((7, 5), (1, 1))]
    + [((7, 5), (3, 11)), ((7, 5), (20, 2)), ((7, 5), (14, 10))],
)
def test_resize_is_a_triangle_filter_with_half_pixel_centres(size, new_size, antialias):
    x = image(*size)
    down, across = (exact_weights(*pair, antialias) for pair in zip(size, new_size))
    want = np.einsum("ih,jw,hwc->ijc", down, across, x.astype(np.float64))
    for dtype, atol in (("float64", 1e-9), ("float32", 1e-3), ("uint8", 0.55)):
        got = data.Resize(new_size, antialias=antialias)(x.astype(dtype))
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, atol=atol)


def test_a_flat_image_stays_flat_at_any_size():
    for value in (0, 1, 127, 255):
        flat = np.full((9, 31, 3), value, np.uint8)
        for size in ((1, 1), (4, 7), (200, 33)):
            assert (data.Resize(size)(flat) == value).all()


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (3, 11), (14, 10)])
def test_nearest_takes_the_pixel_under_the_new_centre(size):
    x = image()
    got = data.Resize(size, method="nearest")(x)
    for i, j in np.ndindex(*size):
        assert (got[i, j] == x[int((i + 0.5) * 7 / size[0]), int((j + 0.5) * 5 / size[1])]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_resized_crop_is_a_window_resized(dtype):
    x = image(20, 30, dtype=dtype)
    got = data.RandomResizedCrop((6, 9)).apply(x, row(3, 4, 11, 15))
    np.testing.assert_array_equal(got, data.Resize((6, 9))(x[3:14, 4:19]))


def loop_affine(x, m, fill, nearest):
    """Compute a bilinear (or nearest) affine map by its formula in float64."""
    out = np.empty(x.shape)

    def at(i, j):
        inside = 0 <= i < x.shape[0] and 0 <= j < x.shape[1]
        return x[i, j].astype(np.float64) if inside else np.full(x.shape[2], float(fill))

    for i, j in np.ndindex(*x.shape[:2]):
        u, v = m[0] * j + m[1] * i + m[2], m[3] * j + m[4] * i + m[5]
        if nearest:
            out[i, j] = at(math.floor(v + 0.5), math.floor(u + 0.5))
            continue
        j0, i0 = math.floor(u), math.floor(v)
        f, g = u - j0, v - i0
        top = (1 - f) * at(i0, j0) + f * at(i0, j0 + 1)
        out[i, j] = (1 - g) * top + g * ((1 - f) * at(i0 + 1, j0) + f * at(i0 + 1, j0 + 1))
    return out


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_affine(dtype, method, seed):
    x = image(9, 8, dtype=dtype, seed=seed)
    m = np.random.default_rng(seed).normal((0.9, 0.1, 0.4, 0, 0.8, 1), 0.3)
    fill = 100 if dtype == "uint8" else 0.25
    turned = data.RandomAffine(10, fill=fill, method=method)
    want = loop_affine(x, m, fill, method == "nearest")
    # half a rounding step, plus the error of coordinates that are rounded to 2**-12 of a pixel,
    # over 255 levels
    atol = 0 if method == "nearest" else 0.5 + 2 * 255 / 4096 if dtype == "uint8" else 1e-6
    got = turned.apply(x, m)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, want, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("quarter", [0, 1, 2, 3, -1])
def test_quarter_turns_are_exact_and_counter_clockwise(dtype, quarter):
    x = image(6, 6, dtype=dtype)
    got = data.RandomRotation((90 * quarter, 90 * quarter))(x)
    np.testing.assert_allclose(got, np.rot90(x, quarter), atol=0 if dtype == "uint8" else 1e-6)


def test_affine_scales_moves_and_shears_about_the_middle():
    def matrix(**options):
        sizes, words = np.array([[5, 7]]), np.zeros((1, 7), np.uint32)
        found = data.RandomAffine(**options).parameters(words, sizes)[0]
        return np.vstack((found.reshape(2, 3), (0, 0, 1)))

    middle = np.array([3, 2, 1.0])
    np.testing.assert_allclose(matrix(scale=(2, 2)) @ (middle + [2, 2, 0]), middle + [1, 1, 0])
    np.testing.assert_allclose(matrix(translate=(0.2, 0)) @ middle, middle + [0, 1, 0])
    np.testing.assert_allclose(matrix(translate=(0, 0.2)) @ middle, middle + [1.4, 0, 0])
    forward = np.linalg.inv(matrix(shear=(30, 30)))
    t = math.tan(math.pi / 6)
    np.testing.assert_allclose(forward[:2, :2], [[1, t], [t, 1]], atol=1e-12)
    forward = np.linalg.inv(matrix(degrees=(40, 40), scale=(1.5, 1.5)))[:2, :2]
    c, s = math.cos(math.radians(40)), math.sin(math.radians(40))
    np.testing.assert_allclose(forward, [[1.5 * c, 1.5 * s], [-1.5 * s, 1.5 * c]], atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 3])
def test_colour_through_a_matrix(dtype, channels):
    x = image(9, 8, channels, dtype=dtype)
    white = 255 if dtype == "uint8" else 1
    m = np.random.default_rng(1).normal(0.3, 0.5, (3, 4)) * [1, 1, 1, white / 3]
    m[0, 0], m[0, 3] = 1.9, -0.3 * white  # so that results reach both ends of the range
    got = data.ColorJitter().apply(x, m.ravel())
    linear = m[:channels, :channels]
    want = np.clip(x.astype(np.float64) @ linear.T + m[:channels, 3], 0, white)
    np.testing.assert_allclose(got, want, atol=0.5001 if dtype == "uint8" else 2e-6)
    assert got.dtype == x.dtype and (got == 0).any() and (got == white).any()


def jitter_row(words=(0, 0, 0, 0, 0), dtype="uint8", channels=3, **options):
    spec = ImageSpec(4, 4, channels, dtype)
    drawn = np.array([words], dtype=np.uint32)
    made = data.ColorJitter(**options).parameters(drawn, np.array([[4, 4]]), spec)
    return made.reshape(3, 4)


def test_jitter_is_brightness_contrast_saturation_and_hue():
    np.testing.assert_allclose(jitter_row(brightness=(1.5, 1.5)), np.eye(3, 4) * 1.5)
    want = np.eye(3, 4) * 0.5 + np.eye(4)[3] * 63.75
    np.testing.assert_allclose(jitter_row(contrast=(0.5, 0.5)), want)
    want = np.eye(3, 4) * 0.5 + np.eye(4)[3] * 0.25
    np.testing.assert_allclose(jitter_row(contrast=(0.5, 0.5), dtype="float32"), want)
    grey = jitter_row(saturation=(0, 0))
    np.testing.assert_allclose(grey, [[0.299, 0.587, 0.114, 0]] * 3, atol=1e-15)
    every = jitter_row(brightness=(2, 2), contrast=(3, 3), saturation=(0.5, 0.5), hue=(0.1, 0.1))
    np.testing.assert_allclose(every[:, :3].sum(axis=1), 6)  # grey pixels stay grey
    np.testing.assert_allclose(every[:, 3], -2 * 127.5)
    alone = jitter_row(brightness=(2, 2), contrast=(3, 3), hue=(0.1, 0.1), channels=1)
    np.testing.assert_allclose(alone[:, :3], np.eye(3) * 6)


def test_hue_is_a_turn_in_yiq():
    from_rgb = np.array(
        [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]
    )
    for part in (-0.5, -0.2, 0.0, 0.1, 0.25):
        c, s = math.cos(2 * math.pi * part), math.sin(2 * math.pi * part)
        turn = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
        want = np.linalg.inv(from_rgb) @ turn @ from_rgb
        np.testing.assert_allclose(jitter_row(hue=(part, part))[:, :3], want, atol=1e-11)
    red = colorsys.rgb_to_yiq(0.6, 0.4, 0.4)
    third = jitter_row(hue=(0.5, 0.5))[:, :3] @ [0.6, 0.4, 0.4]
    opposite = colorsys.rgb_to_yiq(*third)
    np.testing.assert_allclose(opposite, [red[0], -red[1], -red[2]], atol=2e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_brightness_and_contrast(dtype):
    x, white = image(dtype=dtype), 255 if dtype == "uint8" else 1
    t = data.RandomBrightnessContrast((0.1, 0.1), (0.5, 0.5), p=1)
    want = np.clip((x.astype(np.float64) - white / 2) * 1.5 + white / 2 + 0.1 * white, 0, white)
    np.testing.assert_allclose(t(x), want, atol=0.5001 if dtype == "uint8" else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_erasing(dtype):
    x = image(dtype=dtype)
    got = data.RandomErasing(fill=1).apply(x, row(2, 1, 3, 4))
    want = x.copy()
    want[2:5, 1:5] = 1
    np.testing.assert_array_equal(got, want)
    assert data.Cutout(3).apply(x, row(0, 0, 0, 5)) is x
    assert not (x == got).all()


# ---- as in the course and in Pillow


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_flip_draws_one_rand_and_mirrors_axis_1(p):
    x, flip = image(6), data.RandomFlipHorizontal(p)
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
    x, crop = image(6, dtype=dtype), data.RandomCrop(padding)
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


@pytest.mark.parametrize("size", [(32, 32), (5, 7), (16, 8)])
def test_resize_of_bytes_agrees_with_pillow_to_one_step(size):
    pillow = pytest.importorskip("PIL.Image")
    x = image(16, 12)
    want = np.asarray(
        pillow.fromarray(x).resize((size[1], size[0]), resample=pillow.Resampling.BILINEAR)
    )
    got = data.Resize(size)(x)
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - want).max() <= 1


def test_resize_by_one_int_keeps_the_ratio():
    assert data.Resize(4)(image(8, 6)).shape == (5, 4, 3)
    assert data.Resize(4)(image(6, 8)).shape == (4, 5, 3)
