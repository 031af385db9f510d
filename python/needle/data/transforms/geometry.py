"""Transforms of one image, a NumPy array (H, W, C): small picklable values, called on it.

The random ones draw from ``random_source()``: the global NumPy stream, or the loader's keyed one.
Kernels for whole batches are not here; these bodies are the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError
from ..random_source import random_source
from .base import Image, Transform


@dataclass(frozen=True)
class RandomFlipHorizontal(Transform):
    """Mirrors left and right with probability ``p``; always one ``rand()``."""

    p: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"RandomFlipHorizontal: p must be in [0, 1], got {self.p}")

    def __call__(self, x: Image) -> Image:
        flip = random_source().rand() < self.p
        return np.flip(x, axis=1) if flip else x


@dataclass(frozen=True)
class RandomCrop(Transform):
    """A window of the image's own size, moved by up to ``padding`` pixels; zeros come in.

    One ``randint(low=-padding, high=padding + 1, size=2)`` gives the shift down and right.
    """

    padding: int = 3

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"RandomCrop: padding must not be negative, got {self.padding}")

    def __call__(self, x: Image) -> Image:
        p = self.padding
        down, right = random_source().randint(low=-p, high=p + 1, size=2)
        height, width = _height_width("RandomCrop", x)
        out = np.zeros_like(x, order="C")
        top, left = max(0, -down), max(0, -right)
        bottom, end = max(0, height + min(0, down)), max(0, width + min(0, right))
        window = x[max(0, down) : bottom, max(0, right) : end]
        out[top : top + window.shape[0], left : left + window.shape[1]] = window
        return out


@dataclass(frozen=True)
class ToCHW(Transform):
    """``(H, W, C)`` -> contiguous ``(C, H, W)``, the layout that networks take."""

    def __call__(self, x: Image) -> Image:
        _height_width("ToCHW", x)
        return np.ascontiguousarray(np.moveaxis(x, 2, 0))


@dataclass(frozen=True)
class Normalize(Transform):
    """``(x - mean) / std`` for each channel (the last axis), in float32.

    mean, std: one number, or one a channel. ShapeError if their count is not the image's.
    """

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _number_or_tuple(self.mean))
        object.__setattr__(self, "std", _number_or_tuple(self.std))
        if not np.all(np.asarray(self.std) > 0):
            raise ValueError(f"Normalize: std must be positive, got {self.std}")

    def __call__(self, x: Image) -> Image:
        for name, value in (("mean", self.mean), ("std", self.std)):
            if isinstance(value, tuple) and len(value) != x.shape[-1]:
                raise ShapeError(
                    f"Normalize: {name} has {len(value)} values, got an image {x.shape} with "
                    f"{x.shape[-1]} channels in its last axis; give one a channel"
                )
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        out: Image = (np.asarray(x, np.float32) - mean) / std
        return out


@dataclass(frozen=True)
class Pad(Transform):
    """``fill`` around the image: ``padding`` rows and columns, or (rows, columns), on each side."""

    padding: int | tuple[int, int]
    fill: float = 0.0

    def __post_init__(self) -> None:
        if min(_pair(self.padding)) < 0:
            raise ValueError(f"Pad: padding must not be negative, got {self.padding}")

    def __call__(self, x: Image) -> Image:
        _height_width("Pad", x)
        rows, columns = _pair(self.padding)
        around = ((rows, rows), (columns, columns), (0, 0))
        return np.pad(x, around, constant_values=self.fill)


@dataclass(frozen=True)
class Resize(Transform):
    """Bilinear resizing to (height, width), or of the shorter side to one int, ratio kept.

    Pixel centres lie at half-integers (PyTorch's ``align_corners=False``). ``antialias`` widens
    the triangle filter when the image shrinks. Floating images keep their dtype; integer ones
    are rounded half to even and keep theirs.
    """

    size: int | tuple[int, int]
    antialias: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.size, list):
            object.__setattr__(self, "size", tuple(self.size))
        if min(_pair(self.size)) < 1:
            raise ValueError(f"Resize: size must be at least 1, got {self.size}")

    def __call__(self, x: Image) -> Image:
        height, width = _height_width("Resize", x)
        if min(height, width) == 0:
            raise ShapeError(f"Resize: the image must have pixels, got shape {x.shape}")
        rows, columns = self._target(height, width)
        work = np.float64 if x.dtype == np.float64 else np.float32
        down = _bilinear_weights(height, rows, self.antialias).astype(work)
        across = _bilinear_weights(width, columns, self.antialias).astype(work)
        tall = (down @ x.reshape(height, -1).astype(work)).reshape(rows, width, -1)
        out = np.matmul(across, tall)
        resized: Image = (out if x.dtype.kind == "f" else np.rint(out)).astype(x.dtype)
        return resized

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.size, tuple):
            return self.size
        if height <= width:
            return self.size, int(self.size * width / height)
        return int(self.size * height / width), self.size


@lru_cache(maxsize=256)
def _bilinear_weights(size: int, new_size: int, antialias: bool) -> npt.NDArray[np.float64]:
    """The ``(new_size, size)`` matrix of a triangle filter; each row sums to 1."""
    ratio = size / new_size
    reach = max(1.0, ratio) if antialias else 1.0
    centre = (np.arange(new_size) + 0.5) * ratio - 0.5
    if not antialias:
        centre = np.clip(centre, 0, size - 1)
    distance = np.abs(np.arange(size)[None, :] - centre[:, None])
    weights = np.maximum(0.0, 1.0 - distance / reach)
    normalized: npt.NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    normalized.setflags(write=False)
    return normalized


def _height_width(name: str, x: Image) -> tuple[int, int]:
    if x.ndim != 3:
        raise ShapeError(
            f"{name}: needs an image (height, width, channels), got shape {x.shape}; "
            f"add a channel axis to a grey one"
        )
    return int(x.shape[0]), int(x.shape[1])


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _number_or_tuple(value: Any) -> float | tuple[float, ...]:
    array = np.asarray(value, dtype=np.float64)
    return float(array) if array.ndim == 0 else tuple(float(v) for v in array)
