"""Flips, and other orders of the axes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ... import philox
from ...errors import ShapeError
from ..samples.random_source import draws, random_source
from .arguments import height_width, probability
from .base import Image, ImageSpec, Rows, Step, Transform, any_size

Sizes = npt.NDArray[np.int64]


class _Flip(Transform):
    """A row of parameters is (left-right, upside-down), each 0 or 1."""

    words = 1
    p: float
    column: int

    def __post_init__(self) -> None:
        probability(type(self).__name__, self.p)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Whether, in this one's column."""
        rows = np.zeros((len(words), 2))
        rows[:, self.column] = philox.happens(words[:, 0], self.p)
        return rows

    def identity(self, sizes: Sizes) -> Rows:
        """Neither."""
        return np.zeros((len(sizes), 2))

    def apply(self, image: Image, row: Rows) -> Image:
        """A mirrored view, or ``image`` itself."""
        axes = tuple(axis for axis, turn in ((1, row[0]), (0, row[1])) if turn)
        return np.flip(image, axes) if axes else image

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """The same."""
        return spec if spec.layout == "HWC" else None

    def step(self, spec: ImageSpec) -> Step | None:
        """``flip``."""
        return Step("flip") if spec.native else None


@dataclass(frozen=True)
class RandomFlipHorizontal(_Flip):
    """Mirrors left and right with probability ``p``; outside a keyed block by one ``rand()``."""

    p: float = 0.5
    column = 0
    input_size = any_size

    def draw(self, x: Image) -> Rows:
        """The course's draw outside a keyed block."""
        if draws().keyed:
            return super().draw(x)
        return np.array([float(random_source().rand() < self.p), 0.0])


@dataclass(frozen=True)
class RandomFlipVertical(_Flip):
    """Mirrors top and bottom with probability ``p``."""

    p: float = 0.5
    column = 1
    input_size = any_size


@dataclass(frozen=True)
class Permute(Transform):
    """The axes in another order, contiguous: ``axes`` as in ``numpy.transpose``."""

    axes: tuple[int, int, int]

    def __post_init__(self) -> None:
        axes = tuple(self.axes)
        if sorted(axes) != [0, 1, 2]:
            raise ValueError(
                f"Permute: axes must be 0, 1 and 2 in some order, got {self.axes}; (2, 0, 1) puts "
                "the channels first"
            )
        object.__setattr__(self, "axes", axes)

    def identity(self, sizes: Sizes) -> Rows | None:
        """Only if the order stays."""
        return np.empty((len(sizes), 0)) if self.axes == (0, 1, 2) else None

    def apply(self, image: Image, row: Rows) -> Image:
        """``image`` transposed, C-contiguous."""
        height_width("Permute", image)
        return np.ascontiguousarray(image.transpose(self.axes))

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Rows and columns exchanged stay height and width; else the layout says it."""
        if self.axes == (1, 0, 2) and spec.layout == "HWC":
            return replace(spec, height=spec.width, width=spec.height)
        return replace(spec, layout="".join(spec.layout[axis] for axis in self.axes))

    def step(self, spec: ImageSpec) -> Step | None:
        """``permute``."""
        return Step("permute", tuple(float(a) for a in self.axes)) if spec.native else None


@dataclass(frozen=True)
class ToCHW(Transform):
    """``(H, W, C)`` -> contiguous ``(C, H, W)``, the layout that networks take."""

    def apply(self, image: Image, row: Rows) -> Image:
        """``image`` with the channels first."""
        height_width("ToCHW", image)
        return np.ascontiguousarray(np.moveaxis(image, 2, 0))

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Layout "CHW"; ShapeError for images that have it already."""
        if spec.layout != "HWC":
            raise ShapeError(
                f"ToCHW: needs images (H, W, C), got layout {spec.layout!r}; leave it out"
            )
        return replace(spec, layout="CHW")

    def step(self, spec: ImageSpec) -> Step | None:
        """``to_chw``."""
        return Step("to_chw") if spec.native else None
