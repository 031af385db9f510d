"""Erase rectangles. A row of parameters is (top, left, height, width)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import philox
from .arguments import check_common, fill_value, height_width, interval, size_pair
from .base import Image, ImageSpec, ImageTransform, Range, Rows, Sizes
from .resize import BOX_TRIES, random_boxes


class _Erasing(ImageTransform):
    """Base class of the erasing transforms; subclasses only draw the rectangles."""

    kernel, unchanged = "erase", (0.0, 0.0, 0.0, 0.0)
    fill: float

    def apply(self, image: Image, row: Rows) -> Image:
        """Return a copy with the rectangle filled, or ``image`` itself if the height is 0."""
        height_width(type(self).__name__, image)
        top, left, height, width = (int(v) for v in row)
        if height == 0:
            return image
        out = image.copy()
        out[top : top + height, left : left + width] = fill_value(image.dtype, self.fill)
        return out

    def constants(self, spec: ImageSpec) -> tuple[float, ...]:
        """Return the fill value."""
        return (fill_value(spec.dtype, self.fill),)


@dataclass(frozen=True)
class RandomErasing(_Erasing):
    """A transform that erases a rectangle of random area and shape, with probability ``p``.

    scale: (least, most) fraction of the image's area. ratio: (least, most) of width over height,
    drawn on a logarithmic scale. If none of ten rectangles fits, the image is left unchanged.
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    fill: float = 0.0
    words = 1 + 2 * BOX_TRIES + 2

    def __post_init__(self) -> None:
        op = check_common(self)
        object.__setattr__(self, "scale", interval(op, "scale", self.scale, 1e-6, 1.0))
        object.__setattr__(self, "ratio", interval(op, "ratio", self.ratio, 1e-3, 1e3))

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the rectangles. Words: the decision by ``p``, then those of ``random_boxes``."""
        boxes, fits = random_boxes(words[:, 1:], sizes, self.scale, self.ratio)
        happens = philox.happens(words[:, 0], self.p) & fits
        return np.where(happens[:, None], boxes, self.unchanged)


@dataclass(frozen=True)
class Cutout(_Erasing):
    """A transform that erases a rectangle around a random pixel, clipped at the borders."""

    size: int | tuple[int, int]
    p: float = 1.0
    fill: float = 0.0
    words = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair(check_common(self), "size", self.size))

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the rectangles. Words: the row and column of the centre, the decision by ``p``."""
        size = np.array([self.size], dtype=np.int64)
        start = philox.below(words[:, :2], np.maximum(sizes, 1)) - size // 2
        first, end = np.maximum(start, 0), np.minimum(start + size, sizes)
        rows = np.hstack((first, np.maximum(end - first, 0))).astype(np.float64)
        return np.where(philox.happens(words[:, 2:], self.p), rows, self.unchanged)
