"""Datasets that decode no more of a JPEG than the transforms need.

``transforms.base.decode_size`` computes how many pixels a list of transforms can use, so that a
large JPEG can be decoded at half its size or less. ``transforms.region`` computes which part of an
image the transforms read; decoding only that part does not change its pixels. Pipelines pass both
as ``Needed`` to ``decoded_for``; the decoding itself is in formats/decoding.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats import decoding
from ..formats.decoding import CHANNELS, RegionOf
from ..transforms.base import ImageSpec, Size, decode_size
from ..transforms.execute import PlacedTransform
from ..transforms.region import Regions, regions_of
from .dataset import Dataset, ItemTransform


class Needed(NamedTuple):
    """The parts of an image that transforms need; None where they need all pixels.

    size: the smallest (height, width) that suffices. regions: the part of an image that is read.
    """

    size: Size | None = None
    regions: Regions | None = None


class ScaledDecoding(Dataset):
    """Base class of datasets that decode images, at a smaller size if ``scaled_decode`` is True.

    oriented: rotate images according to their EXIF orientation. decode_at_least: the smallest
    (height, width) to which an image may be reduced; None decodes every pixel.
    """

    scaled_decode: bool
    oriented: bool
    decode_at_least: Size | None
    decode_regions: Regions | None = None

    def __init__(
        self, transforms: Sequence[ItemTransform] | None, scaled_decode: bool, oriented: bool
    ) -> None:
        super().__init__(transforms)
        self.scaled_decode, self.oriented = scaled_decode, oriented
        self.decode_at_least = decode_size(self.transforms or ()) if scaled_decode else None

    def set_decoding(self, needed: Needed) -> bool:
        """Set what later transforms need of each image; return True if the dataset uses it."""
        if self.scaled_decode and needed.size is not None:
            self.decode_at_least = needed.size
        if needed.regions is not None:
            self.decode_regions = needed.regions
        return needed.regions is not None or (self.scaled_decode and needed.size is not None)

    def region_of(self, mode: str, dtype: str) -> RegionOf | None:
        """Return the function that computes the needed part of an image, or None for all of it."""
        regions = self.decode_regions
        if regions is None:
            return None
        return lambda h, w: regions.of(ImageSpec(h, w, CHANNELS[mode], np.dtype(dtype)))


def decoded_for(dataset: Any, needed: Needed) -> Any:
    """Return a copy of ``dataset`` that decodes only what is needed, or itself if it cannot.

    It must be a copy because other loaders of the dataset may have other transforms. The dataset's
    own transforms run first; if they depend on the size, they need all pixels. A user's class is
    also assumed to need all pixels.
    """
    if not hasattr(dataset, "set_decoding"):
        return dataset
    own = getattr(dataset, "transforms", None) or ()
    size, regions = needed
    if size is not None and decode_size(own, size) is not size:
        size = None
    if own or not type(dataset).__module__.startswith("needle."):
        regions = None
    if size is None and regions is None:
        return dataset
    made = copy.copy(dataset)
    return made if made.set_decoding(Needed(size, regions)) else dataset


def needed_by(parts: Sequence[PlacedTransform], next_to_it: bool) -> Needed:
    """Return what these transforms need of an image.

    next_to_it: the transforms run where the images are decoded, image by image and with the same
    random keys.
    """
    size = decode_size(part.transform for part in parts)
    return Needed(size, regions_of(parts) if next_to_it else None)


def decode_notes(dataset: Any) -> list[str]:
    """Describe, in lines of text, what the dataset and its inner datasets do not decode."""
    found = list(_within(dataset))
    sizes: set[Size] = {
        size for each in found if (size := getattr(each, "decode_at_least", None)) is not None
    }
    lines = [
        f"JPEGs are decoded at half their size or less where {height} x {width} are left"
        for height, width in sorted(sizes)
    ]
    regions = any(getattr(each, "decode_regions", None) is not None for each in found)
    if regions and decoding.jpeg_region() is not None:
        lines.append("only the part of a JPEG that the first transforms read is decoded")
    return lines


def _within(dataset: Any) -> Iterator[Any]:
    """Yield the dataset and the datasets inside it."""
    yield dataset
    for each in getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", None)]:
        if each is not None:
            yield from _within(each)
