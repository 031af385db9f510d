"""Rotation, translation, scaling and shear about the middle of an image, as one resampling.

A row of parameters is (a, b, c, d, e, f): the output pixel in column X and row Y takes what lies
at column ``x = aX + bY + c`` and row ``y = dX + eY + f`` of the input. Pixels are counted from 0
at their centres.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ... import philox
from .arguments import fill_value, finite, height_width, interval, method_number, probability
from .base import Image, ImageSpec, Rows, Step, Transform

Range = tuple[float, float]
Floats = npt.NDArray[np.float64]

FRACTION_BITS = 11
_FAR = 2.0**40  # places beyond are outside of any image


class _Affine(Transform):
    """What the two have in common: everything but the drawing."""

    fill: float
    method: str

    def identity(self, sizes: npt.NDArray[np.int64]) -> Rows:
        """Each pixel takes itself."""
        return np.tile(np.array([1.0, 0, 0, 0, 1, 0]), (len(sizes), 1))

    def apply(self, image: Image, row: Rows) -> Image:
        """``image`` resampled; the size stays."""
        height_width(type(self).__name__, image)
        nearest = method_number(type(self).__name__, self.method) == 0
        return resample(image, row, fill_value(image.dtype, self.fill), nearest)

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """The same."""
        return spec if spec.layout == "HWC" else None

    def step(self, spec: ImageSpec) -> Step | None:
        """``affine``, for images of one size."""
        if not spec.native or spec.height is None or spec.width is None:
            return None
        method = method_number(type(self).__name__, self.method)
        fill = fill_value(spec.dtype, self.fill)
        return Step("affine", (float(spec.height), float(spec.width), float(method), fill))


@dataclass(frozen=True)
class RandomRotation(_Affine):
    """Turned by an angle from ``degrees``, counter-clockwise, with probability ``p``.

    degrees: (least, most), or one number for (-degrees, degrees). fill: what comes in at the
    corners, in the image's own units.
    """

    degrees: float | Range
    p: float = 1.0
    fill: float = 0.0
    method: str = "bilinear"
    words = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "degrees", _symmetric("RandomRotation", "degrees", self.degrees))
        probability("RandomRotation", self.p)
        finite("RandomRotation", "fill", self.fill)
        method_number("RandomRotation", self.method)

    def parameters(
        self, words: philox.Words, sizes: npt.NDArray[np.int64], spec: ImageSpec | None = None
    ) -> Rows:
        """Words: the angle, and whether."""
        angles = between(words[:, 0], self.degrees)
        none, one = np.zeros(len(sizes)), np.ones(len(sizes))
        rows = inverse_matrices(sizes, angles, (none, none), one, (none, none))
        return np.where(philox.happens(words[:, 1:], self.p), rows, self.identity(sizes))


@dataclass(frozen=True)
class RandomAffine(_Affine):
    """Sheared, scaled, turned (counter-clockwise) about the middle, then moved.

    degrees, shear: (least, most), or one number for both signs; shear in degrees below 45, drawn
    for each axis. translate: the most, as fractions of height and width, or one for both. scale:
    (least, most), above 0.
    """

    degrees: float | Range = 0.0
    translate: float | Range = 0.0
    scale: Range = (1.0, 1.0)
    shear: float | Range = 0.0
    p: float = 1.0
    fill: float = 0.0
    method: str = "bilinear"
    words = 7

    def __post_init__(self) -> None:
        op = "RandomAffine"
        object.__setattr__(self, "degrees", _symmetric(op, "degrees", self.degrees))
        object.__setattr__(self, "shear", _symmetric(op, "shear", self.shear))
        object.__setattr__(self, "scale", interval(op, "scale", self.scale, 1e-3, 1e3))
        moved = (
            self.translate if isinstance(self.translate, (tuple, list)) else (self.translate,) * 2
        )
        if len(moved) != 2 or not all(0 <= finite(op, "translate", v) <= 1 for v in moved):
            raise ValueError(
                f"{op}: translate must be fractions in [0, 1], got {self.translate!r}; give (of "
                "the height, of the width)"
            )
        object.__setattr__(self, "translate", (float(moved[0]), float(moved[1])))
        interval(op, "shear", self.shear, -44.9, 44.9)
        probability(op, self.p)
        finite(op, "fill", self.fill)
        method_number(op, self.method)

    def parameters(
        self, words: philox.Words, sizes: npt.NDArray[np.int64], spec: ImageSpec | None = None
    ) -> Rows:
        """Words: angle, right, down, scale, shear along x, along y, and whether."""
        tall, wide = self.translate  # type: ignore[misc]
        right = between(words[:, 1], (-wide, wide)) * sizes[:, 1]
        down = between(words[:, 2], (-tall, tall)) * sizes[:, 0]
        angles, scales = between(words[:, 0], self.degrees), between(words[:, 3], self.scale)
        shears = between(words[:, 4], self.shear), between(words[:, 5], self.shear)
        rows = inverse_matrices(sizes, angles, (right, down), scales, shears)
        return np.where(philox.happens(words[:, 6:], self.p), rows, self.identity(sizes))


def inverse_matrices(
    sizes: npt.NDArray[np.int64],
    angles: Floats,
    moved: tuple[Floats, Floats],
    scales: Floats,
    shears: tuple[Floats, Floats],
) -> Rows:
    """From output to input places, ``(n, 6)``; angles and shears in degrees, moved in pixels."""
    cos, sin = each(math.cos, np.radians(angles)), each(math.sin, np.radians(angles))
    along, across = (each(math.tan, np.radians(s)) for s in shears)
    size = scales * (1.0 - along * across)
    a, b = (cos - along * sin) / size, (-sin - along * cos) / size
    d, e = (sin - across * cos) / size, (cos + across * sin) / size
    x, y = (sizes[:, 1] - 1) / 2, (sizes[:, 0] - 1) / 2
    right, down = x + moved[0], y + moved[1]
    c, f = x - (a * right + b * down), y - (d * right + e * down)
    return np.stack((a, b, c, d, e, f), axis=1)


def resample(image: Image, row: Rows, fill: float, nearest: bool) -> Image:
    """The definition: ``image`` (H, W, C) at the places that ``row`` (6,) says, same size.

    Bytes are bilinear in fixed point: places to the nearest 2**-11 of a pixel (halves up), the sum
    of 22 bits rounded, halves up. Floats: float32 (float64 for such images), along x before y.
    """
    height, width = image.shape[:2]
    a, b, c, d, e, f = (float(v) for v in row)
    columns, rows = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]
    x = np.clip((a * columns + b * rows) + c, -_FAR, _FAR)
    y = np.clip((d * columns + e * rows) + f, -_FAR, _FAR)
    if nearest:
        return _pixels(image, np.floor(y + 0.5), np.floor(x + 0.5), fill)
    if image.dtype == np.uint8:
        return _bilinear_bytes(image, y, x, fill)
    work = np.dtype(np.float64 if image.dtype == np.float64 else np.float32)
    top, left = np.floor(y), np.floor(x)
    down, across = (y - top)[..., None].astype(work), (x - left)[..., None].astype(work)
    lines: list[Image] = []
    for rows in (top, top + 1):
        first = _pixels(image, rows, left, fill).astype(work)
        second = _pixels(image, rows, left + 1, fill).astype(work)
        lines.append(first * (1 - across) + second * across)
    mixed: Image = lines[0] * (1 - down) + lines[1] * down
    return (mixed if image.dtype.kind == "f" else np.rint(mixed)).astype(image.dtype)


def _bilinear_bytes(image: Image, y: Floats, x: Floats, fill: float) -> Image:
    one = 1 << FRACTION_BITS
    y, x = np.floor(y * one + 0.5), np.floor(x * one + 0.5)
    down = (y.astype(np.int64) & (one - 1))[..., None]
    across = (x.astype(np.int64) & (one - 1))[..., None]
    top, left = np.floor(y / one), np.floor(x / one)
    lines = [
        _pixels(image, top + i, left, fill).astype(np.int64) * (one - across)
        + _pixels(image, top + i, left + 1, fill) * across
        for i in (0, 1)
    ]
    half = 1 << 2 * FRACTION_BITS - 1
    total = lines[0] * (one - down) + lines[1] * down + half
    out: Image = (total >> 2 * FRACTION_BITS).astype(np.uint8)
    return out


def _pixels(image: Image, rows: Floats, columns: Floats, fill: float) -> Image:
    """Those at whole places; ``fill`` where there is no pixel."""
    height, width = image.shape[:2]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    out: Image = np.full((*inside.shape, image.shape[2]), fill, dtype=image.dtype)
    out[inside] = image[rows[inside].astype(np.int64), columns[inside].astype(np.int64)]
    return out


def between(drawn: philox.Words, limits: float | Range) -> Floats:
    """Each word as a float64 in [least, most)."""
    least, most = limits  # type: ignore[misc]
    return least + philox.uniform(drawn) * (most - least)


def each(function: Callable[[float], float], values: Floats) -> Floats:
    """``function`` of every number by itself.

    NumPy's vectorised ones may round an element differently in arrays of other lengths, and
    slices of a batch must agree with the whole.
    """
    found = [function(v) for v in values.ravel().tolist()]
    return np.array(found, dtype=np.float64).reshape(values.shape)


def _symmetric(op: str, name: str, value: float | Range) -> Range:
    if isinstance(value, (tuple, list)):
        return interval(op, name, value)
    most = abs(finite(op, name, value))
    return -most, most
