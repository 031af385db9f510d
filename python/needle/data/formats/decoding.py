"""Decoding of image files: JPEG by simplejpeg, everything else by Pillow (both optional extras).

Both release the GIL. Called by ImageFolder, packed files and tar shards, which locate and read the
files. If a region of a JPEG suffices, the compiled module jpeg_region decodes only the region,
with identical pixels. The module is built if libjpeg-turbo's headers are installed (NEEDLE_JPEG).

EXIF orientation is not applied (pixels are returned as stored) and colour profiles are ignored.
CMYK is converted to RGB by Pillow's formula without profiles. Only the first frame of an animation
is decoded. 16-bit RGB is truncated to its upper 8 bits; 16-bit greys are rounded to 8 bits.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ..samples.timing import measured
from .files import read_file

Pixels: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
Source: TypeAlias = "bytes | memoryview | str | os.PathLike[str]"
RegionOf: TypeAlias = Callable[[int, int], "tuple[int, int, int, int] | None"]
"""A function from height and width to the needed (top, left, bottom, right), or None for all."""

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""The names of files that are images, in lower case, wherever needle looks for images."""
MAX_PIXELS = 1 << 27
"""Default maximum of pixels (134 million, 400 MB as RGB), against attacks and mistakes."""
BAND = 1 << 22
"""The number of pixels that are converted at a time."""

CHANNELS = {"RGB": 3, "L": 1}
JPEG_START, JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
JPEG_SCALES = (8, 4, 2)
LOST_PIXELS = ("remature end", "bad Huffman code", "instead of RST", "nvalid JPEG file structure")
"""Warnings of libjpeg that mean lost pixels; its other warnings are harmless."""


def decode(
    source: Source,
    mode: str = "RGB",
    at_least: tuple[int, int] | None = None,
    *,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
    dtype: str = "uint8",
    region: RegionOf | None = None,
) -> npt.NDArray[Any]:
    """Return the image as ``(H, W, C)``, with three channels for mode "RGB" and one for "L" (grey).

    source: the content of the file, or its path. at_least: a sufficient ``(height, width)``; a
    JPEG at least twice as large is decoded at a half, quarter or eighth of its size, but never
    smaller than at_least. name: the name in error messages, for content from a container.
    max_pixels: the maximum number of pixels. dtype: "uint8", or "float32" with values in 0..1,
    which keeps all bits of 16-bit greys. region: a function from the height and width of the
    result to the needed region; pixels of a JPEG outside the region are undefined, and damage
    below it may go undetected if the file has its end marker. Raises DataError if the file is
    damaged, truncated, too large or of an unknown format, FileNotFoundError if it does not exist,
    and ImportError if Pillow is needed and not installed.
    """
    if mode not in CHANNELS:
        raise ValueError(f"decode: mode must be 'RGB' or 'L', got {mode!r}")
    if isinstance(source, (bytes, memoryview)):
        content, name = source, name or "image"
    else:
        content, name = read_file(source), name or os.fspath(source)
    try:
        with measured("decode"):
            pixels = _pixels(content, mode, at_least, max_pixels, region)
    except (MemoryError, ImportError):
        raise
    except _TooLarge as error:
        raise DataError(
            f"{name}: an image may have {max_pixels} pixels, got {error}; check the file, and "
            f"give a larger max_pixels (and Pillow a larger Image.MAX_IMAGE_PIXELS) if it is "
            f"meant to be so large"
        ) from None
    except Exception as error:
        raise DataError(
            f"{name}: the image cannot be decoded, it is damaged, cut short or of an unknown "
            f"format ({type(error).__name__}: {error}); replace or remove it"
        ) from error
    image = _channels(pixels, CHANNELS[mode])
    if dtype == "float32":
        full = np.float32(np.iinfo(image.dtype).max)
        image = np.divide(image, full, dtype=np.float32)
    elif image.dtype == np.uint16:
        image = ((image.astype(np.uint32) + 128) // 257).astype(np.uint8)
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


def _pixels(
    content: bytes | memoryview,
    mode: str,
    at_least: tuple[int, int] | None,
    max_pixels: int,
    region: RegionOf | None,
) -> Pixels:
    if bytes(content[:3]) == JPEG_START:
        pixels = _by_simplejpeg(content, mode, at_least, max_pixels, region)
        if pixels is not None:
            return pixels
    return _by_pillow(pillow("decode"), content, mode, at_least, max_pixels)


class _TooLarge(Exception):
    """An error raised if an image has more pixels than allowed; the message is the image's size."""


def _check_size(height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise _TooLarge(f"{height} x {width}")


def _scale(height: int, width: int, at_least: tuple[int, int] | None) -> int:
    """Return the factor by which a JPEG can be downscaled while decoding; 1 for full size."""
    if at_least is None:
        return 1
    room = min(height // max(1, at_least[0]), width // max(1, at_least[1]))
    return next((scale for scale in JPEG_SCALES if scale <= room), 1)


def _by_simplejpeg(
    content: bytes | memoryview,
    mode: str,
    at_least: tuple[int, int] | None,
    max_pixels: int,
    region: RegionOf | None,
) -> Pixels | None:
    """Return the pixels, or None if Pillow must decode: no simplejpeg, CMYK, or an unusual file."""
    library = simplejpeg()
    if library is None:
        return None
    try:
        height, width, colours, _ = library.decode_jpeg_header(content)
        _check_size(height, width, max_pixels)
        if colours not in ("YCbCr", "RGB", "Gray"):
            return None
        scale = _scale(height, width, at_least)
        size = -(-height // scale), -(-width // scale)
        part = None if region is None else _part(content, mode, scale, size, region)
        if part is not None:
            return part
        smaller = {"min_height": size[0], "min_width": size[1]} if scale > 1 else {}
        space = "RGB" if mode == "RGB" else "GRAY"
        pixels: Pixels = library.decode_jpeg(content, space, **smaller)
        return pixels
    except ValueError as error:
        if any(words in str(error) for words in LOST_PIXELS):
            raise
        return None


def _part(
    content: bytes | memoryview, mode: str, scale: int, size: tuple[int, int], region: RegionOf
) -> Pixels | None:
    """Return an image of ``size`` with only the region decoded; None if all must be decoded.

    A file that looks truncated or unusual must be decoded whole, so that errors are the same.
    """
    library = jpeg_region()
    if library is None or bytes(content[-2:]) != JPEG_END:
        return None
    box = region(*size)
    if box is None:
        return None
    pixels = np.empty((*size, CHANNELS[mode]), np.uint8)
    return pixels if library.decode_region(content, pixels, scale, *box) else None


def _by_pillow(
    opener: Any,
    content: bytes | memoryview,
    mode: str,
    at_least: tuple[int, int] | None,
    max_pixels: int,
) -> Pixels:
    try:
        image = opener.open(io.BytesIO(content))
    except opener.DecompressionBombError as error:
        raise _TooLarge(f"a file that Pillow refuses ({error})") from None
    with image:
        width, height = image.size
        _check_size(height, width, max_pixels)
        if image.format == "JPEG":
            scale = _scale(height, width, at_least)
            size = (width // scale, height // scale) if scale > 1 else None
            image.draft(mode if image.mode in ("RGB", "L", "YCbCr") else None, size)
        return _pixels_of(image, mode)


def _pixels_of(image: Any, mode: str) -> Pixels:
    """Return the pixels; 16-bit greys bypass Pillow's conversion, which would clip them at 255."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        return np.asarray(image).astype(np.uint16)
    if image.mode in ("I", "F"):
        raise ValueError("pixels of 32 bits have no range that is known")
    width, height = image.size
    rows = max(1, BAND // max(width, 1))
    if rows >= height:
        return np.array(image.convert(mode))
    pixels = np.empty((height, width, CHANNELS[mode]), np.uint8)
    for top in range(0, height, rows):  # converting a whole image would double the memory
        band = image.crop((0, top, width, min(top + rows, height)))
        pixels[top : top + rows] = _channels(np.asarray(band.convert(mode)), CHANNELS[mode])
    return pixels


def _channels(pixels: npt.NDArray[Any], channels: int) -> npt.NDArray[Any]:
    """Return ``(H, W)`` or ``(H, W, 1)`` as ``(H, W, channels)``; return other shapes unchanged."""
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.shape[2] != channels:
        pixels = np.repeat(pixels, channels, axis=2)
    return pixels
