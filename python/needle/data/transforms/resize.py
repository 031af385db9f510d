"""Resize a whole image, or a box drawn at random.

A row of parameters is (top, left, height, width), a box of the input in pixels. resampling.py
defines how a box is scaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends import philox
from .affine import between, each
from .arguments import check_common, height_width, interval, method_number, size_pair
from .base import Image, ImageSpec, ImageTransform, Range, Rows, Size, Sizes
from .resampling import scaled

BOX_TRIES = 10


class _Resizing(ImageTransform):
    """Base class of the resizing transforms; subclasses only choose the boxes."""

    kernel, sized = "resize", True
    antialias: bool
    method: str

    @property
    def is_smooth(self) -> bool:
        """True if pixels are averaged, False if single pixels are selected."""
        return self.method == "bilinear" and self.antialias

    def identity(self, sizes: Sizes) -> Rows | None:
        """Return boxes of the whole images if the size does not change, else None."""
        return _whole_boxes(sizes) if self.keeps_sizes(sizes) else None

    def apply(self, image: Image, row: Rows) -> Image:
        """Return the box scaled to the new size, as a new array of the same dtype."""
        name = type(self).__name__
        size: Any = self.new_size(*height_width(name, image, pixels=True))
        top, left, height, width = (int(v) for v in row)
        box = image[top : top + height, left : left + width]
        return scaled(box, size, self.antialias, method_number(name, self.method) == 0)

    def constants(self, spec: ImageSpec) -> tuple[float, ...]:
        """Return the number of the interpolation method, and 1 for antialiasing."""
        return method_number(type(self).__name__, self.method), self.antialias


@dataclass(frozen=True)
class Resize(_Resizing):
    """A resize to (height, width); one int resizes the shorter side and keeps the aspect ratio.

    method "bilinear": pixel centres lie at half-integers (PyTorch's ``align_corners=False``);
    ``antialias`` widens the triangle filter when the image shrinks. "nearest" takes the pixel whose
    area contains the centre of the new pixel. Floating images keep their dtype; integer images are
    rounded.
    """

    size: int | tuple[int, int]
    antialias: bool = True
    method: str = "bilinear"

    def __post_init__(self) -> None:
        pair = size_pair(check_common(self), "size", self.size)
        if not isinstance(self.size, int):
            object.__setattr__(self, "size", pair)

    def new_size(self, height: int | None, width: int | None) -> tuple[int | None, int | None]:
        """Return ``size``; if it is an int, the size that makes the shorter side ``size``."""
        if isinstance(self.size, tuple):
            return self.size
        if not height or not width:
            return None, None
        if height <= width:
            return self.size, int(self.size * width / height)
        return int(self.size * height / width), self.size

    def input_size(self, size: Size | None) -> Size | None:
        """Return the output's size if pixels are averaged: an image of that size suffices."""
        if not self.is_smooth:
            return None
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return boxes of the whole images."""
        return _whole_boxes(sizes)


@dataclass(frozen=True)
class RandomResizedCrop(_Resizing):
    """A resize of a box with random area, shape and position to ``size``.

    scale: (least, most) fraction of the image's area. ratio: (least, most) of width over height,
    drawn on a logarithmic scale. The first of ten drawn boxes that fits is used; if none fits, the
    largest centred box whose ratio is within the limits.
    """

    size: int | tuple[int, int]
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    antialias: bool = True
    method: str = "bilinear"
    words = 2 * BOX_TRIES + 2

    def __post_init__(self) -> None:
        op = check_common(self)
        object.__setattr__(self, "size", size_pair(op, "size", self.size))
        object.__setattr__(self, "scale", interval(op, "scale", self.scale, 1e-6, 1.0))
        object.__setattr__(self, "ratio", interval(op, "ratio", self.ratio, 1e-3, 1e3))

    def new_size(self, height: int | None, width: int | None) -> tuple[int | None, int | None]:
        """Return ``size``."""
        return self.size  # type: ignore[return-value]

    def input_size(self, size: Size | None) -> Size | None:
        """Return the size at which even the smallest box has as many pixels as the output."""
        if not self.is_smooth:
            return None
        height, width = size_pair("RandomResizedCrop", "size", self.size)
        least, (narrow, wide) = self.scale[0], self.ratio
        sides = (
            height * math.sqrt(wide / least),
            width / math.sqrt(narrow * least),
            height * narrow,  # the centred boxes, for images in which no drawn box fits
            width / wide,
        )
        # Half a pixel more, because boxes have integer sides.
        side = math.ceil(max(sides) * (1 + 0.5 / min(height, width)))
        return side, side

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the boxes. The words determine area and shape ten times, then top and left."""
        boxes, fits = random_boxes(words, sizes, self.scale, self.ratio)
        tall, wide = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
        widest = np.maximum(1.0, np.minimum(wide, np.rint(tall * self.ratio[1])))
        tallest = np.maximum(1.0, np.minimum(tall, np.rint(wide / self.ratio[0])))
        top, left = (tall - tallest) // 2, (wide - widest) // 2
        middle = np.stack((top, left, tallest, widest), axis=1)
        return np.where(fits[:, None], boxes, middle)


def random_boxes(
    words: philox.Words, sizes: Sizes, scale: Range, ratio: Range
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return a random box (top, left, height, width) per image, and True where one fits.

    words: ``(n, 22)``, area and shape of each attempt, then top and left.
    """
    tall, wide = sizes[:, :1], sizes[:, 1:]
    areas = between(words[:, 0 : 2 * BOX_TRIES : 2], scale) * (tall * wide)
    logarithms = math.log(ratio[0]), math.log(ratio[1])
    shapes = each(math.exp, between(words[:, 1 : 2 * BOX_TRIES : 2], logarithms))
    heights, widths = np.rint(np.sqrt(areas / shapes)), np.rint(np.sqrt(areas * shapes))
    good = (heights >= 1) & (widths >= 1) & (heights <= tall) & (widths <= wide)
    first = (np.arange(len(sizes)), good.argmax(axis=1))
    fits = good[first]
    height, width = np.where(fits, heights[first], 1.0), np.where(fits, widths[first], 1.0)
    room = np.stack((tall[:, 0] - height, wide[:, 0] - width), axis=1).astype(np.int64)
    place = philox.below(words[:, -2:], np.maximum(room, 0) + 1)
    return np.column_stack((place.astype(np.float64), height, width)), fits


def _whole_boxes(sizes: Sizes) -> Rows:
    return np.hstack((np.zeros_like(sizes), sizes)).astype(np.float64)
