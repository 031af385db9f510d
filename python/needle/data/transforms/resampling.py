"""The definition of scaling: a triangle filter with half-pixel centres, or nearest neighbour.

The vertical pass comes before the horizontal one. Bytes are scaled in fixed point, so that all
backends agree to the bit (src/data/resize.cc); floats are summed in float32 in the order of the
taps.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .base import Floats, Image

Integers = npt.NDArray[np.int64]

WEIGHT_BITS, LINE_SHIFT = 14, 7
OUT_SHIFT = 2 * WEIGHT_BITS - LINE_SHIFT


def scaled(image: Image, size: tuple[int, int], antialias: bool, nearest: bool) -> Image:
    """Return ``image`` (H, W, C), of at least one pixel, scaled to ``(*size, C)``."""
    if nearest:
        rows, columns = (nearest_places(*pair) for pair in zip(image.shape, size))
        return image[rows[:, None], columns]
    down, across = (axis_taps(*pair, antialias) for pair in zip(image.shape, size))
    if image.dtype == np.uint8:
        return _scaled_bytes(image, down, across)
    work: type[np.floating[Any]] = np.float64 if image.dtype == np.float64 else np.float32
    (rows, weights), (columns, beside) = down, across
    line = _summed(image.astype(work), rows, weights.astype(work), 0)
    out = _summed(line, columns, beside.astype(work), 1)
    return (out if image.dtype.kind == "f" else np.rint(out)).astype(image.dtype)


def _scaled_bytes(
    image: Image, down: tuple[Integers, Floats], across: tuple[Integers, Floats]
) -> Image:
    half = 1 << LINE_SHIFT - 1
    line = _summed(image.astype(np.int64), down[0], fixed_point(down[1]), 0, half) >> LINE_SHIFT
    half = 1 << OUT_SHIFT - 1
    out = _summed(line, across[0], fixed_point(across[1]), 1, half) >> OUT_SHIFT
    clipped: Image = np.clip(out, 0, 255).astype(np.uint8)
    return clipped


def _summed(x: Image, places: Integers, weights: Image, axis: int, start: int = 0) -> Image:
    """Add weights * x at the indices of ``axis`` to ``start``, tap by tap in order."""
    shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    total: Image = np.full((1, 1, 1), start, dtype=x.dtype)
    for tap in range(weights.shape[1]):
        taken = np.take(x, places[:, tap], axis=axis)
        total = total + taken * weights[:, tap].reshape(shape)
    return total


@lru_cache(maxsize=256)
def axis_taps(size: int, new_size: int, antialias: bool) -> tuple[Integers, Floats]:
    """Return the input indices that each output index reads and their weights: ``(new_size, t)``.

    Weights are float64 with sum 1; an unused tap has weight 0 and an arbitrary valid index.
    """
    ratio = size / new_size
    reach = ratio if antialias and ratio > 1 else 1.0
    centre = (np.arange(new_size) + 0.5) * ratio
    first = np.maximum(0, np.floor(centre - reach + 0.5)).astype(np.int64)
    end = np.minimum(size, np.floor(centre + reach + 0.5)).astype(np.int64)
    places = first[:, None] + np.arange((end - first).max())
    weights = 1.0 - np.abs((places + 0.5 - centre[:, None]) / reach)
    weights[(weights < 0) | (places >= end[:, None])] = 0.0
    total = np.zeros(new_size)
    for tap in weights.T:  # summed in order here, since NumPy's sum reorders the terms
        total = total + tap
    weights = weights / total[:, None]
    places = np.minimum(places, size - 1)
    places.setflags(write=False)
    weights.setflags(write=False)
    return places, weights


def fixed_point(weights: Floats) -> Integers:
    """Return the weights as int64 with sum 2**14, rounded halves to even.

    The (first) largest weight absorbs the rounding error of the sum.
    """
    whole = np.rint(weights * (1 << WEIGHT_BITS)).astype(np.int64)
    largest = whole.argmax(axis=1)
    whole[np.arange(len(whole)), largest] += (1 << WEIGHT_BITS) - whole.sum(axis=1)
    return whole


def nearest_places(size: int, new_size: int) -> Integers:
    """Return floor((i + 1/2) * size / new_size) for each output index i, in integer arithmetic."""
    return (2 * np.arange(new_size, dtype=np.int64) + 1) * size // (2 * new_size)


def places_read(
    begin: int, end: int, size: int, new_size: int, antialias: bool, nearest: bool
) -> tuple[int, int]:
    """Return the half-open range of input indices that outputs ``begin`` to ``end - 1`` read."""
    if nearest:
        return (2 * begin + 1) * size // (2 * new_size), (2 * end - 1) * size // (2 * new_size) + 1
    ratio = size / new_size
    reach = ratio if antialias and ratio > 1 else 1.0
    first = math.floor((begin + 0.5) * ratio - reach + 0.5)
    last = math.floor((end - 0.5) * ratio + reach + 0.5)
    return max(0, first), min(size, last)
