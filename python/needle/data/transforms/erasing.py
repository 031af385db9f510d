"""Rectangles of an image painted over. A row of parameters is (top, left, height, width)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ... import philox
from .arguments import fill_value, finite, height_width, interval, probability, size_pair
from .base import Image, ImageSpec, Rows, Step, Transform
from .resize import BOX_TRIES, Range, random_boxes

Sizes = npt.NDArray[np.int64]


class _Erasing(Transform):
    """What the two have in common: everything but the rectangle."""

    fill: float

    def identity(self, sizes: Sizes) -> Rows:
        """A rectangle of no height."""
        return np.zeros((len(sizes), 4))

    def apply(self, image: Image, row: Rows) -> Image:
        """A new array; ``image`` itself if nothing is painted."""
        height_width(type(self).__name__, image)
        top, left, height, width = (int(v) for v in row)
        if height == 0:
            return image
        out = image.copy()
        out[top : top + height, left : left + width] = fill_value(image.dtype, self.fill)
        return out

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """The same."""
        return spec if spec.layout == "HWC" else None

    def step(self, spec: ImageSpec) -> Step | None:
        """``erase``."""
        return Step("erase", (fill_value(spec.dtype, self.fill),)) if spec.native else None


@dataclass(frozen=True)
class RandomErasing(_Erasing):
    """A rectangle of random area and shape becomes ``fill``, with probability ``p``.

    scale: (least, most) share of the image's area. ratio: (least, most) width over height, on a
    logarithmic scale. Where none of ten rectangles fits, nothing is painted.
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    fill: float = 0.0
    words = 1 + 2 * BOX_TRIES + 2

    def __post_init__(self) -> None:
        op = "RandomErasing"
        probability(op, self.p)
        object.__setattr__(self, "scale", interval(op, "scale", self.scale, 1e-6, 1.0))
        object.__setattr__(self, "ratio", interval(op, "ratio", self.ratio, 1e-3, 1e3))
        finite(op, "fill", self.fill)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Words: whether, then those of ``random_boxes``."""
        boxes, fits = random_boxes(words[:, 1:], sizes, self.scale, self.ratio)
        happens = philox.happens(words[:, 0], self.p) & fits
        return np.where(happens[:, None], boxes, self.identity(sizes))


@dataclass(frozen=True)
class Cutout(_Erasing):
    """A rectangle of ``size`` about any pixel becomes ``fill``; it may leave the image."""

    size: int | tuple[int, int]
    p: float = 1.0
    fill: float = 0.0
    words = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair("Cutout", "size", self.size))
        probability("Cutout", self.p)
        finite("Cutout", "fill", self.fill)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Words: row and column of the middle, and whether."""
        size = np.array([self.size], dtype=np.int64)
        start = philox.below(words[:, :2], np.maximum(sizes, 1)) - size // 2
        first, end = np.maximum(start, 0), np.minimum(start + size, sizes)
        rows = np.hstack((first, np.maximum(end - first, 0))).astype(np.float64)
        return np.where(philox.happens(words[:, 2:], self.p), rows, self.identity(sizes))
