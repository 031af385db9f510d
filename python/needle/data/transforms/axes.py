"""Transforms that flip or permute the axes of an image."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...backends import philox
from ...errors import ShapeError
from ..samples.random_source import draws, random_source
from .arguments import check_common, height_width
from .base import Image, ImageSpec, ImageTransform, Rows, Sizes, any_size


class _Flip(ImageTransform):
    """Base class of flips; a row of parameters is (left-right, upside-down), each 0 or 1."""

    kernel, unchanged, words = "flip", (0.0, 0.0), 1
    p: float
    column: int

    def __post_init__(self) -> None:
        check_common(self)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return rows with 1 in ``column`` for the images to flip; the words decide by ``p``."""
        ### BEGIN YOUR SOLUTION [flip]
        rows = np.zeros((len(words), 2))
        rows[:, self.column] = philox.happens(words[:, 0], self.p)
        return rows
        ### END YOUR SOLUTION

    def apply(self, image: Image, row: Rows) -> Image:
        """Return a mirrored view, or ``image`` itself."""
        ### BEGIN YOUR SOLUTION [flip]
        axes = tuple(axis for axis, turn in ((1, row[0]), (0, row[1])) if turn)
        return np.flip(image, axes) if axes else image
        ### END YOUR SOLUTION


@dataclass(frozen=True)
class RandomFlipHorizontal(_Flip):
    """A left-right flip with probability ``p``.

    Without a seed, the decision is one ``rand()`` of the global NumPy stream.
    """

    p: float = 0.5
    column = 0
    input_size = any_size

    def draw(self, x: Image) -> Rows:
        """Draw as the course does if the sample has no random streams."""
        if draws().keyed:
            return super().draw(x)
        return np.array([float(random_source().rand() < self.p), 0.0])


@dataclass(frozen=True)
class RandomFlipVertical(_Flip):
    """An upside-down flip with probability ``p``."""

    p: float = 0.5
    column = 1
    input_size = any_size


class _Permutation(ImageTransform):
    """Base class of permutations of the axes; the result is contiguous."""

    kernel = "permute"
    axes: tuple[int, int, int]

    def identity(self, sizes: Sizes) -> Rows | None:
        """Return empty rows if the permutation is the identity, else None."""
        return np.empty((len(sizes), 0)) if self.axes == (0, 1, 2) else None

    def apply(self, image: Image, row: Rows) -> Image:
        """Return ``image`` transposed, C-contiguous."""
        height_width(type(self).__name__, image)
        return np.ascontiguousarray(image.transpose(self.axes))

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec of the result, with its axes permuted."""
        if self.axes == (1, 0, 2) and spec.layout == "HWC":
            return replace(spec, height=spec.width, width=spec.height)
        return replace(spec, layout="".join(spec.layout[axis] for axis in self.axes))

    def constants(self, spec: ImageSpec) -> tuple[float, ...]:
        """Return the axes."""
        return self.axes


@dataclass(frozen=True)
class Permute(_Permutation):
    """A permutation of the axes as in ``numpy.transpose``; the result is contiguous."""

    axes: tuple[int, int, int]

    def __post_init__(self) -> None:
        axes = tuple(self.axes)
        if sorted(axes) != [0, 1, 2]:
            raise ValueError(
                f"Permute: axes must be 0, 1 and 2 in some order, got {self.axes}; (2, 0, 1) puts "
                "the channels first"
            )
        object.__setattr__(self, "axes", axes)


@dataclass(frozen=True)
class ToCHW(_Permutation):
    """A conversion of ``(H, W, C)`` to contiguous ``(C, H, W)``, the layout that networks take."""

    axes = (2, 0, 1)

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec with layout "CHW"; raise ShapeError if the images already have it."""
        if spec.layout != "HWC":
            raise ShapeError(
                f"ToCHW: images must be (H, W, C), got layout {spec.layout!r}; leave ToCHW out"
            )
        return super().output(spec)
