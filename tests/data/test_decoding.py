"""Decoding compared with Pillow and the raw pixels: modes, scales, 16 bits, damage, huge images."""

import io
import sys

import numpy as np
import pytest

from needle.data.formats import decoding
from needle.errors import DataError

Image = pytest.importorskip("PIL.Image")
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
    # the JPEG's own luma is compared with RGB's; both are rounded
    assert abs(difference).max() <= 2


@pytest.mark.parametrize(
    "at_least, size",
    [
        ((122, 86), (122, 86)),  # less than a factor of two: decoded whole
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


def test_orientation_is_left_as_stored():
    exif = Image.Exif()
    exif[0x0112] = 6  # a viewer rotates it by 90 degrees
    content = encoded(smooth(20, 30), "JPEG", exif=exif)
    assert decoding.decode(content).shape == (20, 30, 3)


def test_greys_of_sixteen_bits():
    grey = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    content = encoded(grey)
    want = np.round(grey / 257)
    for mode, channels in (("L", 1), ("RGB", 3)):
        image = decoding.decode(content, mode)
        assert image.shape == (256, 256, channels)
        np.testing.assert_array_equal(image, np.repeat(want[..., None], channels, 2))
        floats = decoding.decode(content, mode, dtype="float32")
        np.testing.assert_allclose(floats[..., 0], grey / 65535, rtol=1e-6)


def test_paths_and_bytes(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(encoded(smooth(5, 6)))
    for source in (path, str(path), path.read_bytes(), memoryview(path.read_bytes())):
        np.testing.assert_array_equal(decoding.decode(source), smooth(5, 6))
    with pytest.raises(FileNotFoundError):
        decoding.decode(tmp_path / "none.png")
    with pytest.raises(DataError, match="must be a file, got a folder"):
        decoding.decode(tmp_path)
    with pytest.raises(ValueError, match="decode: mode must be 'RGB' or 'L', got 'BGR'"):
        decoding.decode(path, "BGR")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP"])
def test_cut_files_are_errors_that_name_the_place(library, form):
    content = encoded(smooth(64, 64), form)
    for part in (0, 3, 0.3, 0.6, 0.95):
        cut = content[: part if isinstance(part, int) else int(len(content) * part)]
        with pytest.raises(DataError, match=r"shard\.tar at byte 512: the image cannot be decoded"):
            decoding.decode(cut, name="shard.tar at byte 512")


def test_a_jpeg_with_a_hole_is_an_error():
    content = bytearray(encoded(smooth(256, 256), "JPEG", quality=95))
    middle = len(content) // 2
    content[middle : middle + 2] = b"\xff\xd9"  # an end marker amid the pixels
    with pytest.raises(DataError, match="cannot be decoded"):
        decoding.decode(bytes(content))


def test_harmless_oddities_are_not():
    """Bytes between pixels and end marker, common in published files, cost no pixel."""
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
        with pytest.raises(DataError, match=r"may have 119999 pixels, got 300 x 400; check the"):
            decoding.decode(content, max_pixels=119_999)
        assert decoding.decode(content, max_pixels=120_000).shape == (300, 400, 3)
    content = bytearray(encoded(Image.new("1", (8, 8))))
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    with pytest.raises(DataError):
        decoding.decode(bytes(content))
    header = encoded(Image.new("1", (20_000, 10_000)))
    with pytest.raises(DataError, match="an image may have 134217728 pixels, got a file that Pil"):
        decoding.decode(header)


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install 'needle\[images\]'"):
        decoding.decode(b"\x89PNG")
