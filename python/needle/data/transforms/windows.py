"""Windows of an image: crops at random or in the middle, and margins.

A row of parameters is (top, left): where the window lies in the image, which it may leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ... import philox
from ..samples.random_source import draws, random_source
from .arguments import fill_value, finite, height_width, probability, size_pair
from .base import Image, ImageSpec, Rows, Step, Transform

Sizes = npt.NDArray[np.int64]


class _Window(Transform):
    """What crops and margins have in common: everything but where the window lies."""

    fill: float

    def window_size(self, height: int, width: int) -> tuple[int, int]:
        """Of the window, for an image of this size."""
        raise NotImplementedError

    def identity(self, sizes: Sizes) -> Rows | None:
        """The whole image, where the window is as large."""
        same = all(self.window_size(int(h), int(w)) == (h, w) for h, w in np.unique(sizes, axis=0))
        return np.zeros((len(sizes), 2)) if same else None

    def apply(self, image: Image, row: Rows) -> Image:
        """A new array: the window, ``fill`` where it leaves the image."""
        size = self.window_size(*height_width(type(self).__name__, image))
        fill = fill_value(image.dtype, self.fill)
        return window(image, int(row[0]), int(row[1]), size, fill)

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Of the window's size."""
        size = self._known_size(spec)
        return None if spec.layout != "HWC" else replace(spec, height=size[0], width=size[1])

    def step(self, spec: ImageSpec) -> Step | None:
        """``crop``, where the window's size is known."""
        height, width = self._known_size(spec)
        if not spec.native or height is None or width is None:
            return None
        fill = fill_value(spec.dtype, self.fill)
        return Step("crop", (float(height), float(width), fill))

    def _known_size(self, spec: ImageSpec) -> tuple[int | None, int | None]:
        size: tuple[int, int] | None = getattr(self, "size", None)
        if size is not None:
            return size
        if spec.height is None or spec.width is None:
            return None, None
        return self.window_size(spec.height, spec.width)


@dataclass(frozen=True)
class RandomCrop(_Window):
    """A window of ``size`` anywhere in the image with ``padding`` pixels of ``fill`` around it.

    size None: the image's own, moved by up to ``padding`` (3 if None; 0 if there is a size); an
    image smaller than the window lies anywhere in it. p: for a window of the image's own size.
    Outside a keyed block a crop of the image's own size draws its shift down and right by one
    ``randint(low=-padding, high=padding + 1, size=2)``.
    """

    padding: int | None = None
    size: int | tuple[int, int] | None = None
    fill: float = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        padding = (3 if self.size is None else 0) if self.padding is None else self.padding
        object.__setattr__(self, "padding", size_pair("RandomCrop", "padding", padding, 0)[0])
        if self.size is not None:
            object.__setattr__(self, "size", size_pair("RandomCrop", "size", self.size))
        finite("RandomCrop", "fill", self.fill)
        if probability("RandomCrop", self.p) < 1 and self.size is not None:
            raise ValueError(
                f"RandomCrop: p must be 1 with a size, got {self.p}; images that are not cropped "
                "would have another size"
            )

    @property
    def words(self) -> int:
        """Top and left, and whether if that is in doubt."""
        return 2 if self.p == 1 else 3

    def window_size(self, height: int, width: int) -> tuple[int, int]:
        """``size``, or the image's."""
        return self.size or (height, width)  # type: ignore[return-value]

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Every place of the window alike."""
        padding = int(self.padding or 0)
        if self.size is None:
            places = philox.below(words[:, :2], 2 * padding + 1) - padding
        else:
            room = sizes - np.array([self.size], dtype=np.int64) + padding
            low, high = np.minimum(-padding, room), np.maximum(-padding, room)
            places = low + philox.below(words[:, :2], high - low + 1)
        rows: Rows = places.astype(np.float64)
        if self.p == 1:
            return rows
        return np.where(philox.happens(words[:, 2:], self.p), rows, 0.0)

    def draw(self, x: Image) -> Rows:
        """The course's draw outside a keyed block."""
        if draws().keyed or self.size is not None or self.p < 1:
            return super().draw(x)
        limit = int(self.padding or 0)
        return random_source().randint(low=-limit, high=limit + 1, size=2).astype(np.float64)


@dataclass(frozen=True)
class CenterCrop(_Window):
    """The window of ``size`` in the middle; ``fill`` around an image that is smaller."""

    size: int | tuple[int, int]
    fill: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair("CenterCrop", "size", self.size))
        finite("CenterCrop", "fill", self.fill)

    def window_size(self, height: int, width: int) -> tuple[int, int]:
        """``size``."""
        return self.size  # type: ignore[return-value]

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """The middle; of two, the upper and left one."""
        rows: Rows = ((sizes - np.array([self.size])) // 2).astype(np.float64)
        return rows


@dataclass(frozen=True)
class Pad(_Window):
    """``fill`` around the image: ``padding`` rows and columns, or (rows, columns), on each side."""

    padding: int | tuple[int, int]
    fill: float = 0.0

    def __post_init__(self) -> None:
        size_pair("Pad", "padding", self.padding, 0)
        finite("Pad", "fill", self.fill)

    def window_size(self, height: int, width: int) -> tuple[int, int]:
        """The image's and both margins."""
        rows, columns = size_pair("Pad", "padding", self.padding, 0)
        return height + 2 * rows, width + 2 * columns

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """The margins, above and left of the image."""
        margins = size_pair("Pad", "padding", self.padding, 0)
        return np.tile(-np.array([margins], dtype=np.float64), (len(sizes), 1))


def window(image: Image, top: int, left: int, size: tuple[int, int], fill: float) -> Image:
    """The definition: a new array ``(*size, C)``, ``fill`` where there is no image."""
    ### BEGIN YOUR SOLUTION [crop-window]
    height, width = size
    out: Image = np.full((height, width, image.shape[2]), fill, dtype=image.dtype)
    down, right = max(0, -top), max(0, -left)
    inside = image[max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    out[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
    return out
    ### END YOUR SOLUTION
