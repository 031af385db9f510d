"""Convert pixels to the values that a network takes: floats in 0..1, then normalised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError
from .base import Image, ImageSpec, ImageTransform, Rows, any_size

FLOAT32 = np.dtype(np.float32)
MOST_STD, LARGEST = 100, 2.0
"""The largest distance of a value from the mean if both are for floats in 0..1, which may be many
tiny std: MOST_STD of them, or LARGEST if that is more."""


@dataclass(frozen=True)
class ToFloat(ImageTransform):
    """A conversion of bytes 0..255 to float32 in 0..1; floating images become float32."""

    kernel, needs_hwc = "to_float", False
    input_size = any_size

    def apply(self, image: Image, row: Rows) -> Image:
        """Return a new float32 array, ``float32(x) / 255``; a float32 image is returned as is."""
        if image.dtype == np.uint8:
            return image.astype(np.float32) / np.float32(255)
        if image.dtype.kind != "f":
            raise DTypeError(
                f"ToFloat: images must be uint8 or floating, got {image.dtype}; divide them by "
                "their maximum value"
            )
        return image.astype(np.float32, copy=False)

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec with dtype float32."""
        return replace(spec, dtype=FLOAT32)


@dataclass(frozen=True)
class Normalize(ImageTransform):
    """The normalisation ``(x - mean) / std`` of each channel (the last axis), in float32.

    mean, std: one number, or one per channel. Bytes are not scaled, so their mean and std must be
    in units of 0..255. Raises ShapeError for another number of channels. An std below 1 in every
    channel is meant for floats in 0..1: bytes then raise DTypeError, and other images raise
    ValueError if a value is at least 2 and at least 100 std from the mean, as in images of 0..255.
    """

    kernel = "normalize"

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    input_size = any_size

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _number_or_tuple(self.mean))
        object.__setattr__(self, "std", _number_or_tuple(self.std))
        if not np.all(np.asarray(self.std) > 0):
            raise ValueError(
                f"Normalize: std must be positive, got {self.std}; use 1 to keep the scale"
            )

    def apply(self, image: Image, row: Rows) -> Image:
        """Return a new float32 array."""
        self._check_channels(image.shape[-1] if image.ndim else 1, image.shape)
        self._check_scale(image.dtype)
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        out: Image = (np.asarray(image, np.float32) - mean) / std
        if out.size and not self.fits(out.min(), out.max()):
            raise ValueError(
                f"Normalize: values must be within {self._most:g} std of the mean, got images of "
                f"{image.min():g} to {image.max():g} for mean {self.mean} and std {self.std}; "
                "divide images of 0..255 by 255 first"
            )
        return out

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec with dtype float32."""
        return replace(spec, dtype=FLOAT32)

    def constants(self, spec: ImageSpec) -> tuple[float, ...]:
        """Return the number of channels, then the mean and std of each."""
        count = spec.channels
        self._check_channels(count, (spec.height, spec.width, count))
        self._check_scale(spec.dtype)
        both = (np.broadcast_to(np.asarray(v, np.float64), count) for v in (self.mean, self.std))
        return count, *(v for each in both for v in each)

    def fits(self, least: Any, most: Any) -> bool:
        """Return False if normalised values show that images and ``std`` have different units."""
        return not (self._for_floats and max(np.max(most), -np.min(least)) > self._most)

    @property
    def _most(self) -> float:
        return max(MOST_STD, LARGEST / float(np.min(self.std)))

    @property
    def _for_floats(self) -> bool:
        return bool(np.all(np.asarray(self.std) < 1))

    def _check_scale(self, dtype: Any) -> None:
        if dtype == np.uint8 and self._for_floats:
            raise DTypeError(
                f"Normalize: mean {self.mean} and std {self.std} are for pixels of 0..1, got bytes "
                "of 0..255; put ToFloat() before it"
            )

    def _check_channels(self, channels: int, shape: tuple[int | None, ...]) -> None:
        for name, value in (("mean", self.mean), ("std", self.std)):
            if isinstance(value, tuple) and len(value) != channels:
                raise ShapeError(
                    f"Normalize: {name} has {len(value)} values, got an image {shape} with "
                    f"{channels} channels in its last axis; give one per channel"
                )


def _number_or_tuple(value: Any) -> float | tuple[float, ...]:
    array = np.asarray(value, dtype=np.float64)
    return float(array) if array.ndim == 0 else tuple(float(v) for v in array)
