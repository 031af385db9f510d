"""Rotate, translate, scale and shear an image about its centre, in one resampling.

A row of parameters is (a, b, c, d, e, f): the output pixel in column X and row Y is the value of
the input at column ``x = aX + bY + c`` and row ``y = dX + eY + f``. Coordinates are 0 at the
centre of the first pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...backends import philox
from .arguments import check_common, fill_value, finite, height_width, interval, method_number
from .base import Floats, Image, ImageSpec, ImageTransform, Range, Rows, Sizes

FRACTION_BITS = 11
_FAR = 2.0**40  # coordinates beyond this limit lie outside any image


class _Affine(ImageTransform):
    """Base class of the affine transforms; subclasses only draw the parameters."""

    kernel, sized = "affine", True
    unchanged = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    fill: float
    method: str

    def apply(self, image: Image, row: Rows) -> Image:
        """Return ``image`` resampled to the same size."""
        height_width(type(self).__name__, image)
        nearest = method_number(type(self).__name__, self.method) == 0
        return resample(image, row, fill_value(image.dtype, self.fill), nearest)

    def constants(self, spec: ImageSpec) -> tuple[float, ...]:
        """Return the number of the interpolation method and the fill value."""
        method = method_number(type(self).__name__, self.method)
        return method, fill_value(spec.dtype, self.fill)


@dataclass(frozen=True)
class RandomRotation(_Affine):
    """Counter-clockwise rotation by an angle in ``degrees``, with probability ``p``.

    degrees: (least, most), or one number for (-degrees, degrees). fill: the value of pixels outside
    the image, in the image's units.
    """

    degrees: float | Range
    p: float = 1.0
    fill: float = 0.0
    method: str = "bilinear"
    words = 2

    def __post_init__(self) -> None:
        op = check_common(self)
        object.__setattr__(self, "degrees", _symmetric(op, "degrees", self.degrees))

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the matrices. The words determine the angle and the decision by ``p``."""
        angles = between(words[:, 0], self.degrees)
        none, one = np.zeros(len(sizes)), np.ones(len(sizes))
        rows = inverse_matrices(sizes, angles, (none, none), one, (none, none))
        return np.where(philox.happens(words[:, 1:], self.p), rows, self.unchanged)


@dataclass(frozen=True)
class RandomAffine(_Affine):
    """Shear, scaling and counter-clockwise rotation about the centre, followed by translation.

    degrees, shear: (least, most), or one number d for (-d, d); the shear must be below 45 degrees
    and is drawn separately for each axis. translate: the largest translation as fractions of height
    and width, or one fraction for both. scale: (least, most), above 0.
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
        op = check_common(self)
        object.__setattr__(self, "degrees", _symmetric(op, "degrees", self.degrees))
        object.__setattr__(self, "shear", _symmetric(op, "shear", self.shear))
        object.__setattr__(self, "scale", interval(op, "scale", self.scale, 1e-3, 1e3))
        moved = (
            self.translate if isinstance(self.translate, (tuple, list)) else [self.translate] * 2
        )
        if len(moved) != 2 or not all(0 <= finite(op, "translate", v) <= 1 for v in moved):
            raise ValueError(
                f"{op}: translate must be fractions in [0, 1], got {self.translate!r}; give "
                "(fraction of the height, fraction of the width)"
            )
        object.__setattr__(self, "translate", (float(moved[0]), float(moved[1])))
        interval(op, "shear", self.shear, -44.9, 44.9)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the matrices.

        The words determine the angle, translation to the right, translation down, scale, shear
        along x, shear along y, and the decision by ``p``.
        """
        tall, wide = self.translate  # type: ignore[misc]
        right = between(words[:, 1], (-wide, wide)) * sizes[:, 1]
        down = between(words[:, 2], (-tall, tall)) * sizes[:, 0]
        angles, scales = between(words[:, 0], self.degrees), between(words[:, 3], self.scale)
        shears = between(words[:, 4], self.shear), between(words[:, 5], self.shear)
        rows = inverse_matrices(sizes, angles, (right, down), scales, shears)
        return np.where(philox.happens(words[:, 6:], self.p), rows, self.unchanged)


def inverse_matrices(
    sizes: Sizes,
    angles: Floats,
    moved: tuple[Floats, Floats],
    scales: Floats,
    shears: tuple[Floats, Floats],
) -> Rows:
    """Return the matrices that map output to input coordinates, float64 ``(n, 6)``.

    angles, shears: in degrees. moved: the translation to the right and down, in pixels.
    """
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
    """Return ``image`` (H, W, C) resampled by the matrix ``row`` (6,); this defines the result.

    Bytes are interpolated bilinearly in fixed point: coordinates are rounded to multiples of 2**-11
    of a pixel (halves up), and the sum, with 22 fractional bits, is rounded in the same way. Floats
    are computed in float32 (float64 images in float64), along x before y.
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
    """Return the pixels at integer coordinates, and ``fill`` for those out of bounds."""
    height, width = image.shape[:2]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    out: Image = np.full((*inside.shape, image.shape[2]), fill, dtype=image.dtype)
    out[inside] = image[rows[inside].astype(np.int64), columns[inside].astype(np.int64)]
    return out


def between(drawn: philox.Words, limits: float | Range) -> Floats:
    """Map each word to a float64 in [least, most)."""
    least, most = limits  # type: ignore[misc]
    return least + philox.uniform(drawn) * (most - least)


def each(function: Callable[[float], float], values: Floats) -> Floats:
    """Apply ``function`` to each number separately.

    NumPy's vectorised functions may round an element differently if the array has another length,
    but a slice of a batch must give the same result as the whole batch.
    """
    found = [function(v) for v in values.ravel().tolist()]
    return np.array(found, dtype=np.float64).reshape(values.shape)


def _symmetric(op: str, name: str, value: float | Range) -> Range:
    if isinstance(value, (tuple, list)):
        return interval(op, name, value)
    most = abs(finite(op, name, value))
    return -most, most
