"""Validate the arguments of transforms and the images passed to them.

Every message names the transform, the rule, the value and a remedy.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DTypeError, ShapeError, check_choice
from .base import Image, Transform

METHODS = {"nearest": 0, "bilinear": 1}
COLOUR_MARGIN = 1e-3
"""How far floats may lie outside 0..1, for rounding errors of earlier transforms."""


def check_common(transform: Transform) -> str:
    """Check ``p``, ``fill`` and ``method`` if the transform has them; return its name."""
    op = type(transform).__name__
    if hasattr(transform, "p"):
        probability(op, transform.p)
    if hasattr(transform, "fill"):
        finite(op, "fill", transform.fill)
    if hasattr(transform, "method"):
        method_number(op, transform.method)
    return op


def probability(op: str, value: Any) -> float:
    """Return ``value`` as a float; raise ValueError unless it is in [0, 1]."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{op}: p must be in [0, 1], got {value}; it is a probability")
    return float(value)


def size_pair(op: str, name: str, value: Any, least: int = 1) -> tuple[int, int]:
    """Return ``value``, an int or a pair, as two ints of at least ``least``."""
    pair = (value, value) if isinstance(value, numbers.Integral) else value
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{op}: {name} must be an int or two of them, got {value!r}; give (3, 4)")
    if not all(isinstance(v, numbers.Integral) and not isinstance(v, bool) for v in pair):
        raise TypeError(f"{op}: {name} must be ints, got {value!r}; round them")
    if min(pair) < least:
        rule = "must not be negative" if least == 0 else f"must be at least {least}"
        raise ValueError(f"{op}: {name} {rule}, got {value}; its unit is pixels")
    return int(pair[0]), int(pair[1])


def interval(
    op: str, name: str, value: Any, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float]:
    """Return ``value`` as (least, most); both must be finite, in order and within [low, high]."""
    good = isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_number, value))
    if not good or not low <= value[0] <= value[1] <= high:
        within = "" if math.isinf(low) and math.isinf(high) else f" within [{low:g}, {high:g}]"
        raise ValueError(
            f"{op}: {name} must be (least, most){within}, got {value!r}; give two finite numbers "
            "in order"
        )
    return float(value[0]), float(value[1])


def finite(op: str, name: str, value: Any) -> float:
    """Return ``value`` as a float; it must be finite."""
    if not _is_number(value):
        raise ValueError(f"{op}: {name} must be a finite number, got {value!r}; give one number")
    return float(value)


def method_number(op: str, method: str) -> int:
    """Return 0 for "nearest" and 1 for "bilinear"; raise ValueError for anything else."""
    check_choice(op, "method", method, METHODS)
    return METHODS[method]


def height_width(op: str, image: Image, *, pixels: bool = False) -> tuple[int, int]:
    """Return height and width of an image (H, W, C); raise ShapeError for another rank.

    pixels: also raise ShapeError for images without pixels.
    """
    if image.ndim != 3:
        raise ShapeError(
            f"{op}: the image must be (height, width, channels), got shape {image.shape}; add a "
            "channel axis to a grey image"
        )
    if pixels and min(image.shape[:2]) == 0:
        raise ShapeError(
            f"{op}: the image must have pixels, got shape {image.shape}; leave empty images out"
        )
    return int(image.shape[0]), int(image.shape[1])


def fill_value(dtype: npt.DTypeLike, fill: float) -> float:
    """Return ``fill`` as a pixel of this dtype; for integers it is rounded and clipped."""
    kind = np.dtype(dtype)
    if kind.kind not in "iu":
        return float(np.asarray(fill).astype(kind))
    limits = np.iinfo(kind)
    return float(min(max(round(fill), limits.min), limits.max))


def colour_range(op: str, dtype: npt.DTypeLike) -> float:
    """Return the value of white: 255 for bytes, 1 for floats; DTypeError for other dtypes."""
    kind = np.dtype(dtype)
    if kind == np.uint8:
        return 255.0
    if kind.kind == "f":
        return 1.0
    raise DTypeError(
        f"{op}: images must be uint8 (0..255) or floating (0..1), got {kind}; convert them first"
    )


def check_colours(op: str, image: Image) -> None:
    """Raise DTypeError unless ``image`` has bytes or floats, ValueError for floats outside 0..1."""
    if colour_range(op, image.dtype) == 1 and image.size:
        least, most = image.min(), image.max()
        if not in_colour_range(least, most):
            raise ValueError(
                f"{op}: floating images must be in 0..1, got {least:g} to {most:g}; divide them "
                "by their maximum value (such as 255) first, and put Normalize last"
            )


def in_colour_range(least: Any, most: Any) -> bool:
    """Return False if values are outside 0..1 by more than rounding errors."""
    return not (np.any(least < -COLOUR_MARGIN) or np.any(most > 1 + COLOUR_MARGIN))


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)
