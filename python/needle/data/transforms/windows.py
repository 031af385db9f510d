# Trail 27 of 30: RandomCrop: parameters for a whole batch, apply for one image.
# Next: src/data/run.cc
"""Crop and pad images: random crops, centre crops and padding.

A row of parameters is (top, left), the position of the window in the image. A window may extend
beyond the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import philox
from ..samples.random_source import draws, random_source
from .arguments import check_common, fill_value, height_width, size_pair
from .base import Image, ImageSpec, ImageTransform, Rows, Sizes


class _Window(ImageTransform):
    """Base class of crops and padding; subclasses only choose the window's position."""

    kernel, sized, unchanged = "crop", True, (0.0, 0.0)
    fill: float

    def identity(self, sizes: Sizes) -> Rows | None:
        """Return rows that select the whole images if the window has their size, else None."""
        return super().identity(sizes) if self.keeps_sizes(sizes) else None

    def apply(self, image: Image, row: Rows) -> Image:
        """Return the window as a new array, with ``fill`` where it is out of bounds."""
        size: Any = self.new_size(*height_width(type(self).__name__, image))
        fill = fill_value(image.dtype, self.fill)
        return window(image, int(row[0]), int(row[1]), size, fill)

    def constants(self, spec: ImageSpec) -> tuple[float, ...]:
        """Return the fill value."""
        return (fill_value(spec.dtype, self.fill),)


@dataclass(frozen=True)
class RandomCrop(_Window):
    """A random crop: a window of ``size`` from the image padded with ``fill``.

    padding: pixels on each side; 3 by default without a size, 0 with one. size: None means the size
    of the image; the window is then shifted by up to ``padding``. An image smaller than the window
    is placed at random inside it. p: the probability of a shift, if there is no size. Without a
    seed, a crop of the image's own size draws its shift down and right by one
    ``randint(low=-padding, high=padding + 1, size=2)`` from the global NumPy stream.
    """

    padding: int | None = None
    size: int | tuple[int, int] | None = None
    fill: float = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        op = check_common(self)
        padding = (3 if self.size is None else 0) if self.padding is None else self.padding
        object.__setattr__(self, "padding", size_pair(op, "padding", padding, 0)[0])
        if self.size is not None:
            object.__setattr__(self, "size", size_pair(op, "size", self.size))
        if self.p < 1 and self.size is not None:
            raise ValueError(
                f"RandomCrop: p must be 1 with a size, got {self.p}; images that are not cropped "
                "would have another size"
            )

    @property
    def words(self) -> int:  # type: ignore[override]
        """The number of words: top and left, and one for the decision by ``p`` unless it is 1."""
        return 2 if self.p == 1 else 3

    def new_size(self, height: int | None, width: int | None) -> tuple[int | None, int | None]:
        """Return ``size``, or the size of the image if it is None."""
        return self.size or (height, width)  # type: ignore[return-value]

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return window positions, drawn uniformly."""
        ### BEGIN YOUR SOLUTION [random-crop]
        padding = int(self.padding or 0)
        if self.size is None:
            places = philox.below(words[:, :2], 2 * padding + 1) - padding
        else:
            room = sizes - np.array([self.size], dtype=np.int64) + padding
            low, high = np.minimum(-padding, room), np.maximum(-padding, room)
            places = low + philox.below(words[:, :2], high - low + 1)
        rows: Rows = places.astype(np.float64)
        ### END YOUR SOLUTION
        if self.p == 1:
            return rows
        return np.where(philox.happens(words[:, 2:], self.p), rows, 0.0)

    def draw(self, x: Image) -> Rows:
        """Draw as the course does if the sample has no random streams."""
        if draws().keyed or self.size is not None or self.p < 1:
            return super().draw(x)
        limit = int(self.padding or 0)
        return random_source().randint(low=-limit, high=limit + 1, size=2).astype(np.float64)


@dataclass(frozen=True)
class CenterCrop(_Window):
    """A centre crop: the centred window of ``size``, with ``fill`` around a smaller image."""

    size: int | tuple[int, int]
    fill: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair(check_common(self), "size", self.size))

    def new_size(self, height: int | None, width: int | None) -> tuple[int | None, int | None]:
        """Return ``size``."""
        return self.size  # type: ignore[return-value]

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the centred position, rounded towards the top left."""
        rows: Rows = ((sizes - np.array([self.size])) // 2).astype(np.float64)
        return rows


@dataclass(frozen=True)
class Pad(_Window):
    """Padding by ``padding`` rows and columns, or (rows, columns), of ``fill`` on each side."""

    padding: int | tuple[int, int]
    fill: float = 0.0

    def __post_init__(self) -> None:
        size_pair(check_common(self), "padding", self.padding, 0)

    def new_size(self, height: int | None, width: int | None) -> tuple[int | None, int | None]:
        """Return the size of the image plus the padding on both sides."""
        if height is None or width is None:
            return None, None
        rows, columns = size_pair("Pad", "padding", self.padding, 0)
        return height + 2 * rows, width + 2 * columns

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the position of the window, which begins above and to the left of the image."""
        margins = size_pair("Pad", "padding", self.padding, 0)
        return np.tile(-np.array([margins], dtype=np.float64), (len(sizes), 1))


def window(image: Image, top: int, left: int, size: tuple[int, int], fill: float) -> Image:
    """Return the window as a new array ``(*size, C)``, with ``fill`` where it is out of bounds."""
    ### BEGIN YOUR SOLUTION [crop-window]
    height, width = size
    out: Image = np.full((height, width, image.shape[2]), fill, dtype=image.dtype)
    down, right = max(0, -top), max(0, -left)
    inside = image[max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    out[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
    return out
    ### END YOUR SOLUTION
