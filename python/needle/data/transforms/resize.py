"""Images of another size: the whole, or a box drawn at random, scaled.

A row of parameters is (top, left, height, width), a box of the input in pixels. How a box is
scaled is in resampling.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ... import philox
from .affine import between, each
from .arguments import height_width, interval, method_number, size_pair
from .base import Image, ImageSpec, Rows, Size, Step, Transform
from .resampling import scaled

Sizes = npt.NDArray[np.int64]
Range = tuple[float, float]

BOX_TRIES = 10


class _Resizing(Transform):
    """What the two have in common: everything but the box."""

    antialias: bool
    method: str

    @property
    def is_smooth(self) -> bool:
        """Whether areas are averaged; otherwise single pixels are picked."""
        return self.method == "bilinear" and self.antialias

    def target(self, height: int, width: int) -> tuple[int, int]:
        """The new size of an image of this one."""
        raise NotImplementedError

    def identity(self, sizes: Sizes) -> Rows | None:
        """All of the image, where its size stays."""
        if any(self.target(int(h), int(w)) != (h, w) for h, w in np.unique(sizes, axis=0)):
            return None
        return _whole(sizes)

    def apply(self, image: Image, row: Rows) -> Image:
        """The box, scaled: a new array of the same dtype."""
        name = type(self).__name__
        size = self.target(*height_width(name, image, pixels=True))
        top, left, height, width = (int(v) for v in row)
        box = image[top : top + height, left : left + width]
        return scaled(box, size, self.antialias, method_number(name, self.method) == 0)

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Of the new size."""
        height, width = self._known(spec)
        return replace(spec, height=height, width=width) if spec.layout == "HWC" else None

    def step(self, spec: ImageSpec) -> Step | None:
        """``resize``, where the new size is known."""
        height, width = self._known(spec)
        if not spec.native or height is None or width is None:
            return None
        method = method_number(type(self).__name__, self.method)
        numbers = height, width, method, self.antialias
        return Step("resize", tuple(float(v) for v in numbers))

    def _known(self, spec: ImageSpec) -> tuple[int | None, int | None]:
        size = getattr(self, "size", None)
        if isinstance(size, tuple):
            return size
        if not spec.height or not spec.width:
            return None, None
        return self.target(spec.height, spec.width)


@dataclass(frozen=True)
class Resize(_Resizing):
    """Resizing to (height, width), or of the shorter side to one int, ratio kept.

    method "bilinear": pixel centres lie at half-integers (PyTorch's ``align_corners=False``);
    ``antialias`` widens the triangle filter when the image shrinks. "nearest": the pixel whose
    area holds the new centre. Floating images keep their dtype; integer ones are rounded.
    """

    size: int | tuple[int, int]
    antialias: bool = True
    method: str = "bilinear"

    def __post_init__(self) -> None:
        pair = size_pair("Resize", "size", self.size)
        if not isinstance(self.size, int):
            object.__setattr__(self, "size", pair)
        method_number("Resize", self.method)

    def target(self, height: int, width: int) -> tuple[int, int]:
        """``size``, or the one with it as the shorter side."""
        if isinstance(self.size, tuple):
            return self.size
        if height <= width:
            return self.size, int(self.size * width / height)
        return int(self.size * height / width), self.size

    def input_size(self, size: Size | None) -> Size | None:
        """Return the output's size if areas are averaged: those of a smaller image are as good."""
        if not self.is_smooth:
            return None
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """The whole image."""
        return _whole(sizes)


@dataclass(frozen=True)
class RandomResizedCrop(_Resizing):
    """A box of random area and shape anywhere in the image, resized to ``size``.

    scale: (least, most) share of the image's area. ratio: (least, most) width over height, drawn
    on a logarithmic scale. Of ten boxes drawn the first that fits is taken; where none does, the
    largest in the middle with a ratio within the limits.
    """

    size: int | tuple[int, int]
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    antialias: bool = True
    method: str = "bilinear"
    words = 2 * BOX_TRIES + 2

    def __post_init__(self) -> None:
        op = "RandomResizedCrop"
        object.__setattr__(self, "size", size_pair(op, "size", self.size))
        object.__setattr__(self, "scale", interval(op, "scale", self.scale, 1e-6, 1.0))
        object.__setattr__(self, "ratio", interval(op, "ratio", self.ratio, 1e-3, 1e3))
        method_number(op, self.method)

    def target(self, height: int, width: int) -> tuple[int, int]:
        """``size``."""
        return self.size  # type: ignore[return-value]

    def input_size(self, size: Size | None) -> Size | None:
        """Return the size at which the smallest box has the pixels of the output."""
        if not self.is_smooth:
            return None
        height, width = self.target(0, 0)
        least, (narrow, wide) = self.scale[0], self.ratio
        sides = (
            height * math.sqrt(wide / least),
            width / math.sqrt(narrow * least),
            height * narrow,  # the boxes in the middle, where no box that was drawn fits
            width / wide,
        )
        # Half a pixel more: boxes have whole sides.
        side = math.ceil(max(sides) * (1 + 0.5 / min(height, width)))
        return side, side

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Words: ten times area and shape, then top and left."""
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
    """(top, left, height, width) of a random box in each image, and whether one fitted.

    words: ``(n, 22)``, area and shape of each try, then top and left.
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


def _whole(sizes: Sizes) -> Rows:
    return np.hstack((np.zeros_like(sizes), sizes)).astype(np.float64)
