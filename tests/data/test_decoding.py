"""Compare decoding with Pillow and raw pixels: modes, scales, 16 bits, damage, huge images."""

import io

import numpy as np
import pytest

from needle.data.formats import decoding
from needle.errors import DataError

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")
pytest.importorskip("simplejpeg")


def smooth(height, width):
    """Return an image without sharp edges, like a photograph, uint8 RGB."""
    y, x = np.mgrid[0:height, 0:width] / 20
    planes = [np.sin(x) * np.cos(y), np.sin(x + y), np.cos(x - y / 2)]
    return np.stack([127 + 120 * plane for plane in planes], -1).astype(np.uint8)


def encoded(image, form="PNG", **options):
    stream = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(
        stream, form, **options
    )
    return stream.getvalue()


def by_pillow(content, mode="RGB"):
    return np.asarray(Image.open(io.BytesIO(content)).convert(mode))


@pytest.fixture(params=["simplejpeg", "pillow"])
def library(request, monkeypatch):
    """Run a test with the separate JPEG library and without it."""
    if request.param == "pillow":
        monkeypatch.setattr(decoding, "simplejpeg", lambda: None)
    return request.param


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "LA"])
@pytest.mark.parametrize("want", ["RGB", "L"])
def test_png_of_every_mode(mode, want):
    content = encoded(Image.fromarray(smooth(9, 7)).convert(mode))
    image = decoding.decode(content, want)
    assert image.dtype == np.uint8 and image.shape == (9, 7, 3 if want == "RGB" else 1)
    np.testing.assert_array_equal(image.squeeze(), by_pillow(content, want))
    floats = decoding.decode(content, want, dtype="float32")
    np.testing.assert_array_equal(floats, image / np.float32(255))


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA", "CMYK", "1"])
def test_a_large_image_is_converted_in_bands(mode, monkeypatch):
    content = encoded(Image.fromarray(smooth(37, 50)).convert(mode), "TIFF")
    sizes = []
    crop = Image.Image.crop
    monkeypatch.setattr(Image.Image, "crop", lambda *args: sizes.append(args[1]) or crop(*args))
    monkeypatch.setattr(decoding, "BAND", 500)
    for wanted in ("RGB", "L"):
        want = by_pillow(content, wanted)
        assert (decoding.decode(content, wanted).reshape(want.shape) == want).all()
    assert sizes[:4] == [(0, 0, 50, 10), (0, 10, 50, 20), (0, 20, 50, 30), (0, 30, 50, 37)]


def test_jpeg_equals_pillow(library):
    content = encoded(smooth(61, 43), "JPEG", quality=90)
    np.testing.assert_array_equal(decoding.decode(content), by_pillow(content))
    grey = encoded(smooth(61, 43)[..., 0], "JPEG")
    np.testing.assert_array_equal(decoding.decode(grey)[..., 2], by_pillow(grey, "L"))
    luma = decoding.decode(content, "L")
    assert luma.shape == (61, 43, 1)
    difference = luma[..., 0].astype(int) - by_pillow(content, "L")
    # the JPEG's luma is compared with that computed from RGB; both are rounded
    assert abs(difference).max() <= 2


@pytest.mark.parametrize(
    "at_least, size",
    [
        ((122, 86), (122, 86)),  # less than a factor of two, so decoded whole
        ((62, 20), (122, 86)),
        ((61, 43), (61, 43)),
        ((31, 10), (61, 43)),
        ((30, 20), (31, 22)),
        ((1, 1), (16, 11)),
        ((500, 1), (122, 86)),
    ],
)
def test_a_jpeg_is_decoded_no_smaller_than_asked(library, at_least, size):
    content = encoded(smooth(122, 86), "JPEG", quality=95)
    image = decoding.decode(content, "RGB", at_least)
    assert image.shape == (*size, 3)
    scale = round(122 / size[0])
    whole = smooth(122, 86)[: 122 // scale * scale, : 86 // scale * scale].astype(float)
    want = whole.reshape(122 // scale, scale, 86 // scale, scale, 3).mean((1, 3))
    have = image[: want.shape[0], : want.shape[1]]
    assert abs(have - want).mean() < 4


def test_a_png_is_not_scaled():
    assert decoding.decode(encoded(smooth(40, 40)), "RGB", (5, 5)).shape == (40, 40, 3)


def test_cmyk_is_pillows():
    content = encoded(Image.fromarray(smooth(20, 30)).convert("CMYK"), "JPEG")
    np.testing.assert_array_equal(decoding.decode(content), by_pillow(content))


FORMS = {"JPEG": {"quality": 95}, "MPO": {"quality": 95}, "PNG": {}, "TIFF": {}}
FORMS["WEBP"] = {"lossless": True}


def turned(image, form, turn, **options):
    """Return a file of the stored image with this EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = turn
    return encoded(image, form, exif=exif, **options)


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("form", FORMS)
def test_an_image_is_turned_as_a_viewer_turns_it(library, form, turn):
    stored = smooth(24, 40)
    content = turned(stored, form, turn, **FORMS[form])
    image = decoding.decode(content)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(image, np.asarray(upright))
    assert image.shape == ((40, 24, 3) if turn > 4 else (24, 40, 3))
    raw = decoding.decode(content, oriented=False)
    assert raw.shape == stored.shape and abs(raw.astype(int) - stored).mean() < 4
    height, width = image.shape[:2]
    half = decoding.decode(content, "RGB", (height // 2, width // 4)).shape
    assert half == ((height // 2, width // 2, 3) if form in ("JPEG", "MPO") else image.shape)


@pytest.mark.parametrize("turn", [0, 9, 300])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_an_orientation_without_a_meaning_is_the_usual_one(library, form, turn):
    content = turned(smooth(8, 5), form, turn)
    assert decoding.decode(content).shape == (8, 5, 3)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_metadata_is_no_damaged_image(library):
    content = turned(smooth(8, 5), "JPEG", 6)
    place = content.index(b"Exif") + 6
    for damage in (b"", b"MM", b"MM\0*\0\0\xff\xff", b"\xff" * 12):
        odd = content[:place] + damage + content[place + len(damage) :]
        assert decoding.decode(odd).shape in ((8, 5, 3), (5, 8, 3))


def with_alpha(mode):
    """Return an image of the mode that is transparent, half transparent and opaque in thirds."""
    image = Image.fromarray(smooth(9, 12)).convert(mode.removesuffix("A"))
    alpha = np.repeat(np.array([[0, 128, 255]], np.uint8), 4, 1).repeat(9, 0)
    image = image.convert(mode)
    image.putalpha(Image.fromarray(alpha))
    return image, alpha


@pytest.mark.parametrize("want", ["RGB", "L"])
@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_put_on_white(mode, form, want, monkeypatch):
    image, alpha = with_alpha(mode)
    content = encoded(image, form, **({"lossless": True} if form == "WEBP" else {}))
    share = alpha[..., None] / 255
    colours = np.asarray(image.convert("RGB")).astype(float)
    exact = colours * share + 255 * (1 - share)
    exact = exact if want == "RGB" else exact @ [[0.299], [0.587], [0.114]]
    found = decoding.decode(content, want)
    assert (found[:, :4] == 255).all() and abs(found - exact).max() <= 1
    monkeypatch.setattr(decoding, "BAND", 24)
    np.testing.assert_array_equal(decoding.decode(content, want), found)


@pytest.mark.parametrize(
    "mode, form", [("P", "GIF"), *((mode, "PNG") for mode in ("P", "L", "RGB", "1", "I;16"))]
)
def test_one_transparent_colour_is_white(mode, form):
    black = np.zeros((2, 3), np.uint16 if mode == "I;16" else np.uint8)
    black[0] = 40_000 if mode == "I;16" else 200
    image = Image.fromarray(black) if mode == "I;16" else Image.fromarray(black).convert(mode)
    clear = (0, 0, 0) if mode == "RGB" else int(image.getpixel((0, 1)))
    image = decoding.decode(encoded(image, form, transparency=clear))
    assert (image[1] == 255).all() and (image[0] < 256).all()
    assert (image[0] == {"1": 255, "I;16": 156}.get(mode, 200)).all()


def test_a_palette_with_degrees_of_transparency():
    image = Image.new("P", (2, 1))
    image.putpalette([100, 50, 0, 0, 0, 250])
    image.putdata([0, 1])
    found = decoding.decode(encoded(image, transparency=bytes([51, 255])))
    assert found.tolist() == [[[224, 214, 204], [0, 0, 250]]]


def pgm(grey, most):
    height, width = grey.shape
    return b"P5 %d %d %d\n" % (width, height, most) + grey.astype(">u2").tobytes()


DEEP = np.arange(65536, dtype=np.uint16).reshape(256, 256)
DEEP_FILES = {
    "pgm": (pgm(DEEP, 65535), DEEP / 65535),
    "pgm of 12 bits": (pgm(DEEP >> 4, 4095), (DEEP >> 4) / 4095),
    "plain pgm": (b"P2 2 1 1000\n1000 300\n", np.array([[1, 0.3]])),
    "png": (encoded(DEEP), DEEP / 65535),
    "tiff": (encoded(DEEP, "TIFF"), DEEP / 65535),
    "tiff of 32 bits": (encoded(DEEP.astype(np.int32), "TIFF"), DEEP / 65535),
    "tiff of floats": (encoded(DEEP.astype(np.float32) / 65535, "TIFF"), DEEP / 65535),
}


@pytest.mark.parametrize("content, exact", DEEP_FILES.values(), ids=DEEP_FILES)
def test_greys_of_more_than_eight_bits_are_rounded(content, exact):
    found = decoding.decode(content, "L")[..., 0]
    assert found.dtype == np.uint8 and abs(found - exact * 255).max() <= 0.5 + 255 / 65535
    floats = decoding.decode(content, "L", dtype="float32")[..., 0]
    np.testing.assert_allclose(floats, exact, atol=0.51 / 65535)
    np.testing.assert_array_equal(decoding.decode(content), found[..., None].repeat(3, 2))


@pytest.mark.parametrize(
    "grey", [np.float32([[0, 255]]), np.float32([[0, np.nan]]), np.int32([[0, 65536]])]
)
def test_greys_of_an_unknown_range_are_no_damage(grey):
    with pytest.raises(
        DataError, match="greyscale pixels deeper than 8 bits must be integers in"
    ) as caught:
        decoding.decode(encoded(grey, "TIFF"))
    assert "damaged" not in str(caught.value)


def test_paths_and_bytes(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(encoded(smooth(5, 6)))
    for source in (path, str(path), path.read_bytes(), memoryview(path.read_bytes())):
        np.testing.assert_array_equal(decoding.decode(source), smooth(5, 6))
    with pytest.raises(FileNotFoundError):
        decoding.decode(tmp_path / "none.png")
    with pytest.raises(ValueError, match="dtype must be 'uint8' or 'float32', got 'float64'"):
        decoding.decode(path, dtype="float64")
    with pytest.raises(ValueError, match="decode: mode must be 'RGB' or 'L', got 'BGR'"):
        decoding.decode(path, "BGR")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP"])
def test_cut_files_are_errors_that_name_the_place(library, form):
    content = encoded(smooth(64, 64), form)
    for part in (0, 3, 0.3, 0.6, 0.95):
        cut = content[: part if isinstance(part, int) else int(len(content) * part)]
        with pytest.raises(DataError, match=r"shard\.tar at byte 512: the image cannot be decoded"):
            decoding.decode(cut, name="shard.tar at byte 512")


def test_harmless_oddities_are_not():
    """Bytes between the pixels and the end marker, common in published files, are harmless."""
    content = encoded(smooth(32, 32), "JPEG")
    want = by_pillow(content)
    odd = content[:-2] + b"\x00" * 9 + content[-2:]
    with pytest.raises(ValueError, match="extraneous"):
        decoding.simplejpeg().decode_jpeg(odd)
    np.testing.assert_array_equal(decoding.decode(odd), want)
    np.testing.assert_array_equal(decoding.decode(content + b"tail"), want)


def test_giants_are_refused_before_memory_is_taken(library):
    for form in ("PNG", "JPEG"):
        content = encoded(Image.new("L", (400, 300)), form)
        with pytest.raises(
            DataError, match=r"may have at most 119999 pixels, got 300 x 400; check the"
        ):
            decoding.decode(content, max_pixels=119_999)
        assert decoding.decode(content, max_pixels=120_000).shape == (300, 400, 3)
    content = bytearray(encoded(Image.new("1", (8, 8))))
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    with pytest.raises(DataError):
        decoding.decode(bytes(content))
    header = encoded(Image.new("1", (20_000, 10_000)))
    with pytest.raises(
        DataError, match="an image may have at most 134217728 pixels, got a file that Pil"
    ):
        decoding.decode(header)
