"""Datasets that decode no more of a JPEG than transforms need.

``transforms.base.decode_size`` computes how many pixels a list of transforms can make use of: a
large JPEG is decoded at half its size or less. ``transforms.region`` computes which part of an
image the transforms read; the pixels of the part are the same. Pipelines pass both on, by
``decoded_at`` and ``decoded_in``; the decoding itself is in formats/decoding.py.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..formats.decoding import CHANNELS, RegionOf, jpeg_region
from ..transforms.base import ImageSpec, Size, decode_size
from ..transforms.region import Region, Regions
from .dataset import Dataset, ItemTransform


class ScaledDecoding(Dataset):
    """Base of datasets that decode images, at a smaller size if ``scaled_decode`` is True.

    decode_at_least: the (height, width) of which an image keeps at least as much; None decodes
    every pixel.
    """

    scaled_decode: bool
    decode_at_least: Size | None
    decode_regions: Regions | None = None

    def __init__(self, transforms: Sequence[ItemTransform] | None, scaled_decode: bool) -> None:
        super().__init__(transforms)
        self.scaled_decode = scaled_decode
        self.decode_at_least = decode_size(transforms or ()) if scaled_decode else None

    def set_decode_size(self, height: int, width: int) -> bool:
        """Set that ``height`` x ``width`` pixels of each image suffice; True if that is used."""
        if self.scaled_decode:
            self.decode_at_least = (int(height), int(width))
        return self.scaled_decode

    def set_decode_regions(self, regions: Regions) -> bool:
        """Set which part of each image suffices for the transforms that follow; return True."""
        self.decode_regions = regions
        return True

    def region_of(self, mode: str, dtype: str) -> RegionOf | None:
        """Return the function that tells which part of an image suffices; None for all images."""
        regions = self.decode_regions
        if regions is None:
            return None

        def region(height: int, width: int) -> Region | None:
            return regions.of(ImageSpec(height, width, CHANNELS[mode], np.dtype(dtype)))

        return region


def decoded_at(dataset: Any, size: Size | None) -> Any:
    """Return a copy of ``dataset`` that decodes images of ``size``; itself if it cannot.

    A copy, since other loaders of the dataset have other transforms. The transforms of the dataset
    itself run first: unless they leave the size alone, they have decided already.
    """
    own = getattr(dataset, "transforms", None) or ()
    if size is None or not hasattr(dataset, "set_decode_size"):
        return dataset
    if decode_size(own, size) is not size:
        return dataset
    made = copy.copy(dataset)
    return made if made.set_decode_size(*size) else dataset


def decoded_in(dataset: Any, regions: Regions | None) -> Any:
    """Return a copy of ``dataset`` that decodes the regions alone; itself if it cannot.

    Not if it has transforms of its own, which see the pixels before, or if its class is a user's,
    whose items may be computed from all pixels.
    """
    own = getattr(dataset, "transforms", None)
    if regions is None or own or not hasattr(dataset, "set_decode_regions"):
        return dataset
    if not type(dataset).__module__.startswith("needle.data."):
        return dataset
    made = copy.copy(dataset)
    return made if made.set_decode_regions(regions) else dataset


def decode_sizes(dataset: Any) -> set[Size]:
    """Return the sizes that the dataset, or the datasets inside it, decode at."""
    sizes = (getattr(each, "decode_at_least", None) for each in _within(dataset))
    return {size for size in sizes if size is not None}


def decodes_regions(dataset: Any) -> bool:
    """Return True if the dataset, or one inside it, decodes parts of images."""
    known = any(getattr(each, "decode_regions", None) is not None for each in _within(dataset))
    return known and jpeg_region() is not None


def _within(dataset: Any) -> Iterator[Any]:
    """Yield the dataset and the datasets inside it."""
    yield dataset
    for each in getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", None)]:
        if each is not None:
            yield from _within(each)
