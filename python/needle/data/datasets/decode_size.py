"""Datasets that decode no more of a JPEG than the transforms need.

``transforms.base.decode_size`` computes how many pixels a list of transforms can use: a large JPEG
is decoded at half its size or less. ``transforms.region`` computes which part of an image the
transforms read; decoding only that part does not change its pixels. Pipelines pass both on through
``decoded_for``; the decoding itself is in formats/decoding.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..formats import decoding
from ..formats.decoding import CHANNELS, RegionOf
from ..transforms.base import ImageSpec, Size, decode_size
from ..transforms.execute import PlacedTransform
from ..transforms.region import Region, Regions, regions_of
from .dataset import Dataset, ItemTransform


class ScaledDecoding(Dataset):
    """Base class of datasets that decode images, at a smaller size if ``scaled_decode`` is True.

    oriented: images are turned as their EXIF orientation says. decode_at_least: the smallest
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

    def set_decode_size(self, height: int, width: int) -> bool:
        """Set that ``height`` x ``width`` pixels of an image suffice; return True if used."""
        if self.scaled_decode:
            self.decode_at_least = (int(height), int(width))
        return self.scaled_decode

    def set_decode_regions(self, regions: Regions) -> bool:
        """Set which part of each image the transforms that follow will read; return True."""
        self.decode_regions = regions
        return True

    def region_of(self, mode: str, dtype: str) -> RegionOf | None:
        """Return the function that gives the part of an image that suffices; None: all of it."""
        regions = self.decode_regions
        if regions is None:
            return None

        def region(height: int, width: int) -> Region | None:
            return regions.of(ImageSpec(height, width, CHANNELS[mode], np.dtype(dtype)))

        return region


def decoded_at(dataset: Any, size: Size | None) -> Any:
    """Return a copy of ``dataset`` that decodes images of ``size``, or itself if it cannot.

    It must be a copy because other loaders of the dataset may have other transforms. The dataset's
    own transforms run first: if they depend on the size, they have already decided it.
    """
    own = getattr(dataset, "transforms", None) or ()
    if size is None or not hasattr(dataset, "set_decode_size"):
        return dataset
    if decode_size(own, size) is not size:
        return dataset
    made = copy.copy(dataset)
    return made if made.set_decode_size(*size) else dataset


def decoded_in(dataset: Any, regions: Regions | None) -> Any:
    """Return a copy of ``dataset`` that decodes only the regions, or itself if it cannot.

    It cannot if it has transforms of its own, which receive the pixels first, or if its class is a
    user's, whose items may be computed from all pixels.
    """
    own = getattr(dataset, "transforms", None)
    if regions is None or own or not hasattr(dataset, "set_decode_regions"):
        return dataset
    if not type(dataset).__module__.startswith("needle.data."):
        return dataset
    made = copy.copy(dataset)
    return made if made.set_decode_regions(regions) else dataset


def decoded_for(dataset: Any, parts: Sequence[PlacedTransform], next_to_it: bool) -> Any:
    """Return a copy of ``dataset`` that decodes what these transforms need, or itself.

    next_to_it: the transforms run where the images are decoded, image by image and with the same
    random keys.
    """
    dataset = decoded_at(dataset, decode_size(part.transform for part in parts))
    return decoded_in(dataset, regions_of(parts) if next_to_it else None)


def decode_notes(dataset: Any) -> list[str]:
    """Return lines that say what the dataset, and the datasets inside it, do not decode."""
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
