"""The region of an image that a list of transforms reads, so that decoders can skip the rest.

A crop after a resize, or a random box that is resized, uses only part of the image. The random
numbers are functions of (seed, epoch, sample), so this part is known before the image is decoded.
batching/pipeline.py passes ``Regions`` to the dataset, which queries them while it decodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..samples.random_source import draws
from .base import ImageSpec, Step, Transform
from .compile import MOST_PLANS
from .execute import PlacedTransform, varies
from .resampling import places_read
from .resize import RandomResizedCrop
from .windows import CenterCrop, RandomCrop

CUTS = (CenterCrop, RandomCrop, RandomResizedCrop)
MOVES = ("crop", "flip", "resize")
"""Steps that move pixels."""
KEEPS = ("to_float", "normalize", "colour")
"""Pointwise steps: a pixel depends only on the pixel at the same position."""

Row = tuple[float, ...]
KnownStep = tuple[PlacedTransform, Step, "Row | None", ImageSpec, ImageSpec]
"""A transform, its native step, its parameters if it draws none, and the specs around it."""


class Region(NamedTuple):
    """Rows ``top`` to ``bottom`` and columns ``left`` to ``right``; the ends are exclusive."""

    top: int
    left: int
    bottom: int
    right: int


@dataclass(frozen=True)
class Move:
    """A step that moves pixels, its parameters, and the size of its input."""

    step: Step
    row: Row
    height: int
    width: int

    def input_region(self, of: Region) -> Region:
        """Return the region of the input that is needed to compute a region of the output."""
        across, down = (of.left, of.right), (of.top, of.bottom)
        if self.step.name == "flip":
            across = (self.width - of.right, self.width - of.left) if self.row[0] else across
            down = (self.height - of.bottom, self.height - of.top) if self.row[1] else down
        elif self.step.name == "crop":
            top, left = (int(value) for value in self.row)
            down = max(0, of.top + top), min(self.height, of.bottom + top)
            across = max(0, of.left + left), min(self.width, of.right + left)
        else:
            top, left, tall, wide = (int(value) for value in self.row)
            height, width, method, antialias = self.step.constants
            options = bool(antialias), method == 0
            begin, end = places_read(*down, tall, int(height), *options)
            down = top + begin, top + end
            begin, end = places_read(*across, wide, int(width), *options)
            across = left + begin, left + end
        return Region(down[0], across[0], down[1], across[1])


@dataclass(frozen=True, eq=False)
class Regions:
    """The leading transforms of a list up to the last one that crops; made by ``regions_of``."""

    parts: tuple[PlacedTransform, ...]

    def of(self, spec: ImageSpec) -> Region | None:
        """Return the region of an image of this size that they read; None for the whole image.

        The random numbers come from the caller's ``random_source.keyed`` block.
        """
        moves: list[Move] = []
        made = spec
        for part, step, row, before, after in _known_steps(self, spec):
            if step.name in MOVES:
                row = row or _row(part, before)
                if row is None:
                    break
                moves.append(Move(step, row, int(before.height or 0), int(before.width or 0)))
            made = after
        region = whole = Region(0, 0, int(made.height or 0), int(made.width or 0))
        for move in reversed(moves):
            region = move.input_region(region)
            if region.top >= region.bottom or region.left >= region.right:
                return Region(0, 0, 1, 1)  # the window lies entirely outside the image
            whole = Region(0, 0, move.height, move.width)
        return None if region == whole else region


@lru_cache(maxsize=MOST_PLANS)
def _known_steps(regions: Regions, spec: ImageSpec) -> tuple[KnownStep, ...]:
    """Return the leading transforms whose steps and sizes are known for such images."""
    known: list[KnownStep] = []
    for part in regions.parts:
        step, after = part.transform.step(spec), part.transform.output(spec)
        if step is None or after is None or varies(after) or step.name not in (*MOVES, *KEEPS):
            break
        row = None if part.transform.words else _row(part, spec)
        known.append((part, step, row, spec, after))
        spec = after
    return tuple(known)


def regions_of(parts: Sequence[PlacedTransform]) -> Regions | None:
    """Return the transforms that determine which part of an image is read; None for all of it.

    A user's transform, and everything after it, is assumed to read the whole image.
    """
    own = next((i for i, part in enumerate(parts) if not _is_own(part.transform)), len(parts))
    cuts = [i for i in range(own) if isinstance(parts[i].transform, CUTS)]
    return Regions(tuple(parts[: cuts[-1] + 1])) if cuts else None


def _is_own(transform: object) -> bool:
    return isinstance(transform, Transform) and type(transform).__module__.startswith(__package__)


def _row(part: PlacedTransform, spec: ImageSpec) -> Row | None:
    """Return the parameters of a transform for the current sample; None if they are unknown."""
    source, transform = draws(), part.transform
    if transform.words and not source.keyed:
        return None
    words = source.words(part.stream, transform.words)[None]
    sizes = np.array([[spec.height, spec.width]], np.int64)
    return tuple(transform.parameters(words, sizes, spec)[0].tolist())
