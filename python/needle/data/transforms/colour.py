"""Brightness, contrast, saturation and hue: one 3x4 matrix per image.

A row of parameters is the matrix m, row by row, in the units of the images' dtype:
``out[c] = clip(((m[c,0] r + m[c,1] g) + m[c,2] b) + m[c,3])``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...backends import philox
from ...errors import DTypeError, ShapeError
from .affine import between, each
from .arguments import check_colours, check_common, colour_range, finite, height_width, interval
from .base import Floats, Image, ImageSpec, ImageTransform, Range, Rows, Sizes, Step, any_size

LUMA = (0.299, 0.587, 0.114)
# A quarter turn of (I, Q) in the YIQ colour space of 1953 (NTSC), expressed as a matrix on (R, G,
# B): inverse(T) @ [[0, 0, 0], [0, 0, -1], [0, 1, 0]] @ T. It maps grey to zero.
QUARTER_TURN = (
    (0.167703246654, 0.329268146449, -0.496971393103),
    (-0.328130813958, 0.035520928869, 0.292609885089),
    (1.249732605646, -1.046508430123, -0.203224175523),
)
IDENTITY = np.eye(3, 4, dtype=np.float32)


class _Colour(ImageTransform):
    """Base class of the colour transforms; subclasses only compute the matrices."""

    kernel, unchanged = "colour", tuple(np.eye(3, 4).ravel().tolist())

    def apply(self, image: Image, row: Rows) -> Image:
        """Return ``image`` multiplied by the matrix in float32; bytes are rounded half to even.

        Raises ValueError for floats outside 0..1, which clipping would make white.
        """
        height_width(type(self).__name__, image)
        check_colours(type(self).__name__, image)
        most = np.float32(colour_range(type(self).__name__, image.dtype))
        m = np.asarray(row, dtype=np.float32).reshape(3, 4)
        if image.shape[2] not in (1, 3):
            raise ShapeError(
                f"{type(self).__name__}: images must have 1 or 3 channels, got shape "
                f"{image.shape}; drop the others"
            )
        if np.array_equal(m, IDENTITY):
            return image.copy()
        x = image.astype(np.float32)
        if image.shape[2] == 1:
            out = m[0, 0] * x + m[0, 3]
        else:
            r, g, b = (x[..., c] for c in range(3))
            out = np.stack([((k[0] * r + k[1] * g) + k[2] * b) + k[3] for k in m], axis=-1)
        rounded = np.rint(out) if image.dtype == np.uint8 else out
        clipped: Image = np.clip(rounded, np.float32(0), most).astype(image.dtype)
        return clipped

    def step(self, spec: ImageSpec) -> Step | None:
        """Return the native step for grey and RGB images."""
        return super().step(spec) if spec.channels in (1, 3) else None

    def _white(self, spec: ImageSpec | None) -> float:
        name = type(self).__name__
        if spec is None:
            raise DTypeError(
                f"{name}: the parameters depend on the images' dtype, got no spec; pass an "
                "ImageSpec"
            )
        return colour_range(name, spec.dtype)


@dataclass(frozen=True)
class RandomBrightnessContrast(_Colour):
    """A scaling by ``contrast`` about mid-grey, then a shift by ``brightness``; probability ``p``.

    brightness: (least, most) as a fraction of white, or one number b for (-b, b). contrast:
    likewise, but the number is added to 1 to give the factor.
    """

    brightness: float | Range = 0.2
    contrast: float | Range = 0.2
    p: float = 0.5
    words = 3
    input_size = any_size

    def __post_init__(self) -> None:
        op = check_common(self)
        for name in ("brightness", "contrast"):
            value = getattr(self, name)
            pair = value if isinstance(value, (tuple, list)) else (-finite(op, name, value), value)
            least, most = (-1.0, math.inf) if name == "contrast" else (-1.0, 1.0)
            object.__setattr__(self, name, interval(op, name, pair, least, most))

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the matrices. Words: brightness, contrast, the decision by ``p``."""
        white = self._white(spec)
        factor = 1.0 + between(words[:, 1], self.contrast)
        offset = (1.0 - factor) * (white / 2) + between(words[:, 0], self.brightness) * white
        rows = _matrices(factor[:, None, None] * np.eye(3), offset)
        return np.where(philox.happens(words[:, 2:], self.p), rows, self.unchanged)


@dataclass(frozen=True)
class ColorJitter(_Colour):
    """A change of brightness, contrast, saturation and hue, in this order, with probability ``p``.

    The result is clipped once, at the end. brightness, contrast (about mid-grey), saturation: a
    number b for factors in [max(0, 1 - b), 1 + b], or (least, most). hue: the largest rotation of
    the colours in YIQ, as a fraction of a circle from 0 to 0.5, or (least, most). Saturation and
    hue leave grey images unchanged.
    """

    brightness: float | Range = 0.0
    contrast: float | Range = 0.0
    saturation: float | Range = 0.0
    hue: float | Range = 0.0
    p: float = 1.0
    words = 5
    input_size = any_size

    def __post_init__(self) -> None:
        op = check_common(self)
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            if not isinstance(value, (tuple, list)):
                if finite(op, name, value) < 0:
                    raise ValueError(
                        f"{op}: {name} must not be negative, got {value}; 0 changes nothing"
                    )
                value = (max(0.0, 1.0 - value), 1.0 + value)
            object.__setattr__(self, name, interval(op, name, value, 0.0))
        hue = self.hue
        if not isinstance(hue, (tuple, list)):
            hue = (-finite(op, "hue", hue), hue)
        object.__setattr__(self, "hue", interval(op, "hue", hue, -0.5, 0.5))

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the matrices.

        The words determine brightness, contrast, saturation, hue and the decision by ``p``.
        """
        white = self._white(spec)
        contrast = between(words[:, 1], self.contrast)
        factor = between(words[:, 0], self.brightness) * contrast
        linear = factor[:, None, None] * np.eye(3)
        if spec is not None and spec.channels != 1:
            saturation = between(words[:, 2], self.saturation)
            angle = 2 * math.pi * between(words[:, 3], self.hue)
            turned = saturation * each(math.cos, angle), saturation * each(math.sin, angle)
            linear = factor[:, None, None] * _chroma_matrices(*turned)
        rows = _matrices(linear, (1.0 - contrast) * (white / 2))
        return np.where(philox.happens(words[:, 4:], self.p), rows, self.unchanged)


def _chroma_matrices(real: Floats, imaginary: Floats) -> Floats:
    """Return the matrices ``(n, 3, 3)`` that multiply chroma, I + iQ, by a complex number.

    Luma is unchanged. The number (1, 0) gives exactly the identity matrix.
    """
    grey = np.tile(np.array(LUMA), (3, 1))
    chroma = np.eye(3) - grey
    turned: Floats = imaginary[:, None, None] * np.array(QUARTER_TURN)
    turned += grey + real[:, None, None] * chroma
    return turned


def _matrices(linear: Floats, offset: Floats) -> Rows:
    offsets = np.broadcast_to(offset[:, None, None], (len(offset), 3, 1))
    rows: Rows = np.concatenate((linear, offsets), axis=2).reshape(len(offset), 12)
    return rows
