"""Datasets that decode large JPEGs at half their size or less, where transforms need no more.

``transforms.base.decode_size`` computes how many pixels a list of transforms can make use of.
Pipelines pass it on with ``decoded_at``; the decoding itself is in formats/decoding.py.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..transforms.base import Size, decode_size
from .dataset import Dataset, ItemTransform


class ScaledDecoding(Dataset):
    """Base of datasets that decode images, at a smaller size if ``scaled_decode`` is True.

    decode_at_least: the (height, width) of which an image keeps at least as much; None decodes
    every pixel.
    """

    scaled_decode: bool
    decode_at_least: Size | None

    def __init__(self, transforms: Sequence[ItemTransform] | None, scaled_decode: bool) -> None:
        super().__init__(transforms)
        self.scaled_decode = scaled_decode
        self.decode_at_least = decode_size(transforms or ()) if scaled_decode else None

    def set_decode_size(self, height: int, width: int) -> bool:
        """Set that ``height`` x ``width`` pixels of each image suffice; True if that is used."""
        if self.scaled_decode:
            self.decode_at_least = (int(height), int(width))
        return self.scaled_decode


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


def decode_sizes(dataset: Any) -> set[Size]:
    """Return the sizes that the dataset, or the datasets inside it, decode at."""
    own: Size | None = getattr(dataset, "decode_at_least", None)
    inner = getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", None)]
    found = {size for each in inner if each is not None for size in decode_sizes(each)}
    return found if own is None else found | {own}
