"""Decode image files: JPEG by simplejpeg, everything else by Pillow (both optional extras).

Both release the GIL. Called by ImageFolder, packed files and tar shards, which locate and read the
files. If a region of a JPEG suffices, the compiled module jpeg_region decodes only the region,
with identical pixels. The module is built if libjpeg-turbo's headers are installed (NEEDLE_JPEG).

An image is rotated according to its EXIF orientation, as in every viewer, and composited on white
if it has transparency. Colour profiles are ignored; CMYK is converted to RGB by Pillow's formula.
Only the first frame of an animation is decoded. 16-bit RGB is truncated to its upper 8 bits, except
in PPM; 16-bit greyscale and floats in 0..1 are rounded to 8 bits. Greyscale images with other
ranges are refused.
"""

from __future__ import annotations

import functools
import importlib
import io
import math
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import DataError, check_choice
from ..samples.timing import measured
from .files import read_file

Pixels: TypeAlias = npt.NDArray[Any]
Content: TypeAlias = bytes | memoryview
Source: TypeAlias = "Content | str | os.PathLike[str]"
Size: TypeAlias = tuple[int, int]
Box: TypeAlias = tuple[int, int, int, int]
RegionOf: TypeAlias = Callable[[int, int], Box | None]
"""A function from height and width to the needed (top, left, bottom, right), or None for all."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""The names of files that are images, in lower case, wherever needle looks for images."""
MAX_PIXELS = 1 << 27
"""Default maximum of pixels (134 million, 400 MB as RGB), against attacks and mistakes."""
BAND = 1 << 22
"""The number of pixels that are converted at a time."""

CHANNELS = {"RGB": 3, "L": 1}
ORIENTATION = 0x0112
"""The EXIF tag of the orientation."""
TURNS = {
    2: (False, True, False),
    3: (True, True, False),
    4: (True, False, False),
    5: (False, False, True),
    6: (True, False, True),
    7: (True, True, True),
    8: (False, True, True),
}
"""Whether an EXIF orientation flips the rows and the columns, and then transposes the image."""
TURNED_BACK = {6: 8, 8: 6}
JPEG_START, JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
JPEG_SCAN, JPEG_METADATA = 0xDA, 0xE1
"""The second bytes of JPEG markers: the scan (the pixels), and EXIF or XMP metadata before it."""
JPEG_SCALES = (8, 4, 2)
LOST_PIXELS = ("remature end", "bad Huffman code", "instead of RST", "nvalid JPEG file structure")
"""Warnings of libjpeg that mean lost pixels; its other warnings are harmless."""


class Asked(NamedTuple):
    """The arguments of ``decode`` that affect the pixels."""

    mode: str
    at_least: Size | None
    max_pixels: int
    region: RegionOf | None
    oriented: bool


def decode(
    source: Source,
    mode: str = "RGB",
    at_least: Size | None = None,
    *,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
    dtype: str = "uint8",
    region: RegionOf | None = None,
    oriented: bool = True,
) -> npt.NDArray[Any]:
    """Return the image as ``(H, W, C)``, with three channels for mode "RGB" and one for "L" (grey).

    source: the content of the file, or its path. at_least: a sufficient ``(height, width)``; a
    JPEG at least twice as large is decoded at a half, quarter or eighth of its size, but never
    smaller than at_least. name: the name used in error messages, for content from a container.
    max_pixels: the maximum number of pixels. dtype: "uint8", or "float32" with values in 0..1,
    which keeps all bits of 16-bit greyscale. region: a function from the result's height and width
    to the needed region; pixels of a JPEG outside the region are undefined, and damage below it may
    go undetected if the file has its end marker. oriented: rotate the image according to its EXIF
    orientation; False returns it as stored. Raises DataError if the file is damaged, truncated, too
    large, or in an unknown format or range, FileNotFoundError if it does not exist, and ImportError
    if Pillow is needed and not installed.
    """
    check_choice("decode", "mode", mode, CHANNELS)
    check_choice("decode", "dtype", dtype, ("uint8", "float32"))
    if isinstance(source, (bytes, memoryview)):
        content, name = source, name or "image"
    else:
        content, name = read_file(source), name or os.fspath(source)
    try:
        with measured("decode"):
            pixels = _pixels(content, Asked(mode, at_least, max_pixels, region, oriented))
    except (MemoryError, ImportError):
        raise
    except _Unreadable as error:
        raise DataError(f"{name}: {error}") from None
    except Exception as error:
        raise DataError(
            f"{name}: the image cannot be decoded: it is damaged, truncated or in an unknown "
            f"format ({type(error).__name__}: {error}); replace or remove it"
        ) from error
    image = _channels(pixels, CHANNELS[mode])
    if dtype == "float32":
        if image.dtype != np.float32:
            full = np.float32(np.iinfo(image.dtype).max)
            image = np.divide(image, full, dtype=np.float32)
    elif image.dtype == np.uint16:
        image = ((image.astype(np.uint32) + 128) // 257).astype(np.uint8)
    elif image.dtype == np.float32:
        image = np.rint(image * np.float32(255)).astype(np.uint8)
    return image


def pillow(owner: str) -> ModuleType:
    """Return Pillow's Image module; raise ImportError, which names ``owner``, if not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            f"{owner}: decoding images needs Pillow, which is not installed; "
            f"pip install 'needle[images]' or pip install pillow"
        ) from error
    return Image


@functools.lru_cache(maxsize=1)
def simplejpeg() -> ModuleType | None:
    """Return the simplejpeg module, or None if not installed; Pillow then decodes JPEGs as well."""
    try:
        import simplejpeg as module
    except ImportError:
        return None
    return module  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=1)
def jpeg_region() -> ModuleType | None:
    """Return the module that decodes a region of a JPEG, or None if it was not built."""
    try:
        return importlib.import_module("needle.backend_ndarray.jpeg_region")
    except ImportError:
        return None


def _pixels(content: Content, asked: Asked) -> Pixels:
    if bytes(content[:3]) == JPEG_START and simplejpeg() is not None:
        turn = _turn_of_jpeg(content) if asked.oriented else 1
        pixels = _by_simplejpeg(content, asked, turn)
        if pixels is not None:
            return _turned(pixels, turn)
    return _by_pillow(pillow("decode"), content, asked)


class _Unreadable(Exception):
    """An error for a file that is not damaged; its message gives the reason and the remedy."""


def _check_size(what: str, pixels: float, max_pixels: int) -> None:
    if pixels > max_pixels:
        raise _Unreadable(
            f"an image may have at most {max_pixels} pixels, got {what}; check the file, and raise "
            "max_pixels (and Pillow's Image.MAX_IMAGE_PIXELS) if it is meant to be this large"
        )


def _scale(height: int, width: int, at_least: Size | None) -> int:
    """Return the factor by which a JPEG can be downscaled while decoding; 1 for full size."""
    if at_least is None:
        return 1
    room = min(height // max(1, at_least[0]), width // max(1, at_least[1]))
    return next((scale for scale in JPEG_SCALES if scale <= room), 1)


# ---- orientation ---------------------------------------------------------------------------------


def _turn_of_jpeg(content: Content) -> int:
    """Return the EXIF orientation, which Pillow reads if the file has metadata."""
    place = 2
    while bytes(content[place : place + 1]) == b"\xff":
        marker, size = content[place + 1], int.from_bytes(content[place + 2 : place + 4], "big")
        if marker == JPEG_SCAN:
            return 1
        if marker == JPEG_METADATA or size < 2:
            break
        place += 2 + size
    try:
        with pillow("decode").open(io.BytesIO(content)) as image:
            return _turn_of(image)
    except ImportError:
        raise
    except Exception:
        return 1  # decoding will report the error


def _turn_of(image: Any) -> int:
    """Return the EXIF orientation, or 1 (upright) if it is missing or its metadata is damaged."""
    try:
        turn = image.getexif().get(ORIENTATION)
    except Exception:
        return 1
    return turn if turn in TURNS else 1


def _turned_size(size: Size | None, turn: int) -> Size | None:
    """Convert the size of an upright image to its stored size, or vice versa."""
    return size[::-1] if size is not None and turn in TURNS and TURNS[turn][2] else size


def _turned(pixels: Pixels, turn: int) -> Pixels:
    """Return the image ``(H, W, ...)`` rotated or flipped to EXIF orientation ``turn``."""
    if turn not in TURNS:
        return pixels
    rows, columns, swapped = TURNS[turn]
    pixels = pixels[:: -1 if rows else 1, :: -1 if columns else 1]
    return np.ascontiguousarray(pixels.swapaxes(0, 1) if swapped else pixels)


def _stored_box(box: Box, size: Size, turn: int) -> Box:
    """Return the region of the stored image that becomes ``box``; ``size`` is the stored size."""
    top, left, bottom, right = box
    rows, columns, swapped = TURNS.get(turn, (False, False, False))
    if swapped:
        top, left, bottom, right = left, top, right, bottom
    if rows:
        top, bottom = size[0] - bottom, size[0] - top
    if columns:
        left, right = size[1] - right, size[1] - left
    return top, left, bottom, right


# ---- libraries -----------------------------------------------------------------------------------


def _by_simplejpeg(content: Content, asked: Asked, turn: int) -> Pixels | None:
    """Return the stored pixels; None if Pillow must decode: CMYK, or an unusual file."""
    library: Any = simplejpeg()
    try:
        height, width, colours, _ = library.decode_jpeg_header(content)
        _check_size(f"{height} x {width}", height * width, asked.max_pixels)
        if colours not in ("YCbCr", "RGB", "Gray"):
            return None
        scale = _scale(height, width, _turned_size(asked.at_least, turn))
        size = -(-height // scale), -(-width // scale)
        part = _part(content, asked, scale, size, turn)
        if part is not None:
            return part
        smaller = {"min_height": size[0], "min_width": size[1]} if scale > 1 else {}
        space = "RGB" if asked.mode == "RGB" else "GRAY"
        pixels: Pixels = library.decode_jpeg(content, space, **smaller)
        return pixels
    except ValueError as error:
        if any(words in str(error) for words in LOST_PIXELS):
            raise
        return None


def _part(content: Content, asked: Asked, scale: int, size: Size, turn: int) -> Pixels | None:
    """Return an image of ``size`` with only the region decoded; None if all must be decoded.

    A file that looks truncated or unusual must be decoded completely, so that errors are the same.
    """
    library, region = jpeg_region(), asked.region
    if library is None or region is None or bytes(content[-2:]) != JPEG_END:
        return None
    box = region(*(_turned_size(size, turn) or size))
    if box is None:
        return None
    pixels = np.empty((*size, CHANNELS[asked.mode]), np.uint8)
    stored = _stored_box(box, size, turn)
    return pixels if library.decode_region(content, pixels, scale, *stored) else None


def _by_pillow(opener: Any, content: Content, asked: Asked) -> Pixels:
    try:
        image = opener.open(io.BytesIO(content))
    except opener.DecompressionBombError as error:
        _check_size(f"a file that Pillow refuses ({error})", math.inf, asked.max_pixels)
        raise
    with image:
        width, height = image.size
        _check_size(f"{height} x {width}", height * width, asked.max_pixels)
        if image.format == "PNG":  # a PNG's metadata may follow the pixels
            image.load()
        turn = _turn_of(image)
        if image.format in ("JPEG", "MPO"):
            at_least = _turned_size(asked.at_least, turn if asked.oriented else 1)
            scale = _scale(height, width, at_least)
            size = (width // scale, height // scale) if scale > 1 else None
            image.draft(asked.mode if image.mode in ("RGB", "L", "YCbCr") else None, size)
        image.load()
        left = _turn_of(image)  # Pillow rotates a TIFF while loading it
        if not asked.oriented:
            left = 1 if left == turn else TURNED_BACK.get(turn, turn)
        return _turned(_pixels_of(opener, image, asked.mode), left)


def _pixels_of(opener: Any, image: Any, mode: str) -> Pixels:
    """Return the pixels; greyscale deeper than 8 bits bypasses Pillow's conversion, which clips."""
    if image.mode[0] in "IF":
        return _deep_grey(image)
    width, height = image.size
    rows = max(1, BAND // max(width, 1))
    if rows >= height:
        return np.array(_converted(opener, image, mode))
    pixels = np.empty((height, width, CHANNELS[mode]), np.uint8)
    for top in range(0, height, rows):  # converting a whole image would double the memory
        band = image.crop((0, top, width, min(top + rows, height)))
        converted = np.asarray(_converted(opener, band, mode))
        pixels[top : top + rows] = _channels(converted, CHANNELS[mode])
    return pixels


def _deep_grey(image: Any) -> Pixels:
    """Return integers as uint16 and floats in 0..1 as float32; refuse values of other ranges."""
    pixels = np.asarray(image)
    least, most = (pixels.min(), pixels.max()) if pixels.size else (0, 0)
    full = 1 if image.mode == "F" else 65535
    if not 0 <= least <= most <= full:
        raise _Unreadable(
            "greyscale pixels deeper than 8 bits must be integers in 0..65535 or floats in 0..1, "
            f"got {pixels.dtype} from {least} to {most}; convert the file to 8 or 16 bits"
        )
    if image.mode == "F":
        return np.array(pixels, np.float32)
    clear = image.info.get("transparency")  # the grey level that is transparent
    return np.where(pixels == (-1 if clear is None else clear), full, pixels).astype(np.uint16)


def _converted(opener: Any, image: Any, mode: str) -> Any:
    """Return Pillow's image in ``mode``, on white where it is transparent."""
    try:
        if image.has_transparency_data:
            clear = image.convert("RGBA")
            image = opener.new("RGB", image.size, "white")
            image.paste(clear, mask=clear)
        return image.convert(mode)
    except ValueError as error:
        raise _Unreadable(
            f"colours of mode {image.mode} cannot be converted to {mode} ({error}); convert the "
            "file"
        ) from None


def _channels(pixels: npt.NDArray[Any], channels: int) -> npt.NDArray[Any]:
    """Return ``(H, W)`` or ``(H, W, 1)`` as ``(H, W, channels)``; return other shapes unchanged."""
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.shape[2] != channels:
        pixels = np.repeat(pixels, channels, axis=2)
    return pixels
