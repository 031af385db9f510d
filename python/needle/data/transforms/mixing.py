"""Transforms of whole batches: MixUp and CutMix mix samples and labels; OnBatch calls a function.

A loader applies them last, to the collated batch. Their random numbers are keyed by the batch's
first index.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError, check_choice
from ..samples.random_source import BATCH_STREAM, draws, random_source
from .arguments import finite, probability

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class BatchTransform:
    """Base class of callables that map a whole batch of NumPy arrays to another."""

    def __call__(self, batch: Any) -> Any:
        """Return the transformed batch."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(batch)")


@dataclass(frozen=True)
class OnBatch(BatchTransform):
    """A transform that applies ``function`` to a whole batch of NumPy arrays."""

    function: Callable[[Any], Any]

    def __call__(self, batch: Any) -> Any:
        """Apply the function."""
        return self.function(batch)


class Mixing(BatchTransform):
    """Base class of transforms that mix a batch (images, labels, ...) with a permutation of itself.

    labels: integers (n,), with ``classes``, or soft labels, float (n, classes). The result has
    soft labels in float32; further fields are unchanged.
    """

    alpha: float
    classes: int | None
    p: float
    streams = 1

    def __post_init__(self) -> None:
        name = type(self).__name__
        if finite(name, "alpha", self.alpha) <= 0:
            raise ValueError(f"{name}: alpha must be positive, got {self.alpha}; try 0.2 or 1")
        if self.classes is not None and (int(self.classes) != self.classes or self.classes < 1):
            raise ValueError(
                f"{name}: classes must be at least 1, got {self.classes}; give the number of "
                "classes"
            )
        probability(name, self.p)

    def mix(self, images: Array, other: Array, share: float) -> tuple[Array, float]:
        """Mix ``1 - share`` of ``other`` into ``images``; also return the actual share."""
        raise NotImplementedError

    def __call__(self, batch: Any) -> Any:
        """Mix the batch with a permutation of itself, by a share drawn from a Beta distribution."""
        images, labels, *rest = batch
        images = np.asarray(images)
        soft = self._soft(np.asarray(labels), len(images))
        source = draws()
        stream = source.stream
        # the transforms of the first sample use the streams before this one
        source.seek(BATCH_STREAM + stream)
        random = random_source()
        applied, share = random.rand() < self.p, float(random.beta(self.alpha, self.alpha))
        order = random.permutation(len(images))
        if applied and len(images):
            images, share = self.mix(images, images[order], share)
            soft = np.float32(share) * soft + np.float32(1 - share) * soft[order]
        source.seek(stream + self.streams)
        return (images, soft, *rest)

    def _soft(self, labels: Array, count: int) -> Floats:
        name = type(self).__name__
        if len(labels) != count:
            raise ShapeError(
                f"{name}: images and labels must have the same length, got {count} and "
                f"{len(labels)}; give one label per sample"
            )
        if labels.ndim == 2:
            return labels.astype(np.float32, copy=False)
        if self.classes is None or labels.ndim != 1:
            raise ValueError(
                f"{name}: labels must be (n, classes) unless classes is given, got shape "
                f"{labels.shape}; use {name}(..., classes=10)"
            )
        found: list[int] = labels.astype(np.int64).tolist()
        if found and not (min(found) >= 0 and max(found) < self.classes):
            raise ValueError(
                f"{name}: labels must be in [0, {self.classes}), got {min(found)} to "
                f"{max(found)}; raise classes"
            )
        return np.eye(self.classes, dtype=np.float32)[found]


@dataclass(frozen=True)
class MixUp(Mixing):
    """``share * x + (1 - share) * x[order]``, with one share per batch from Beta(alpha, alpha).

    Zhang et al. (2018). Integer images become float32.
    """

    alpha: float = 0.2
    classes: int | None = None
    p: float = 1.0

    def mix(self, images: Array, other: Array, share: float) -> tuple[Array, float]:
        """Return the weighted sum."""
        if images.dtype.kind != "f":
            images, other = images.astype(np.float32), other.astype(np.float32)
        weight = images.dtype.type(share)
        return weight * images + (1 - weight) * other, share


@dataclass(frozen=True)
class CutMix(Mixing):
    """A mix that replaces a rectangle, ``1 - share`` of an image's area, by another's pixels.

    Yun et al. (2019). The rectangle is the same for the whole batch and has a random centre; labels
    are mixed by the area inside the image. layout: the axes of one image, "CHW" or "HWC".
    """

    alpha: float = 1.0
    classes: int | None = None
    p: float = 1.0
    layout: str = "CHW"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("CutMix", "layout", self.layout, ("CHW", "HWC"))

    def mix(self, images: Array, other: Array, share: float) -> tuple[Array, float]:
        """Return a copy with the rectangle replaced, and the share of area outside it."""
        if images.ndim != 4:
            raise ShapeError(
                f"CutMix: images must have four axes, got shape {images.shape}; stack images with "
                "channels"
            )
        height, width = images.shape[2:] if self.layout == "CHW" else images.shape[1:3]
        rows, columns = (_cut(size, math.sqrt(1 - share)) for size in (height, width))
        part = (..., rows, columns) if self.layout == "CHW" else (slice(None), rows, columns)
        out = images.copy()
        out[part] = other[part]
        cut = (rows.stop - rows.start) * (columns.stop - columns.start)
        return out, 1 - cut / max(1, height * width)


def _cut(size: int, share: float) -> slice:
    """Return an interval with this share of an axis around a random centre, clipped to the axis."""
    length = int(size * share)
    start = int(random_source().randint(max(size, 1))) - length // 2
    return slice(max(0, start), max(0, min(size, start + length)))
