"""How many pixels of an encoded image a list of transforms can make use of.

A dataset with ``set_decode_size`` (image files, packed files) that was opened with
``scaled_decode=True`` decodes a JPEG at half its size or less where that leaves as many. Pipelines
ask here and set it; decoding is decoding.py's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

from . import (
    ColorJitter,
    Compose,
    Normalize,
    RandomBrightnessContrast,
    RandomFlipHorizontal,
    RandomFlipVertical,
    RandomResizedCrop,
    Resize,
    ToFloat,
)

Size = tuple[int, int]

POINTWISE = (
    ColorJitter,
    Normalize,
    RandomBrightnessContrast,
    RandomFlipHorizontal,
    RandomFlipVertical,
    ToFloat,
)
"""They mean the same for an image of another size; the exact classes, a user's may not."""


def decode_size(transforms: Iterable[Any]) -> Size | None:
    """The (height, width) that suffice for these transforms in order; None: every pixel counts.

    They do where the first transform that minds the size is a smooth resize. It then shrinks what
    is at least twice as large, and so does the decoder in its stead.
    """
    for transform in _opened(transforms):
        if type(transform) not in POINTWISE:
            return _suffices(transform)
    return None


def decoded_at(dataset: Any, size: Size | None) -> Any:
    """A copy of ``dataset`` that decodes no more than that; itself where it does not do so.

    A copy, since other loaders of the dataset have other transforms. Those that it has itself
    come first and have decided already, unless they leave sizes alone.
    """
    own = _opened(getattr(dataset, "transforms", None) or ())
    if size is None or not hasattr(dataset, "set_decode_size"):
        return dataset
    if any(type(transform) not in POINTWISE for transform in own):
        return dataset
    made = copy.copy(dataset)
    return made if made.set_decode_size(*size) else dataset


def decode_sizes(dataset: Any) -> set[Size]:
    """What the dataset, or those it is made of, have been told to decode at least."""
    own: Size | None = getattr(dataset, "decode_at_least", None)
    inner = getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", None)]
    found = {size for each in inner if each is not None for size in decode_sizes(each)}
    return found if own is None else found | {own}


def _opened(transforms: Iterable[Any]) -> Iterable[Any]:
    for transform in transforms:
        if isinstance(transform, Compose):
            yield from _opened(transform.transforms)
        else:
            yield transform


def _suffices(transform: Any) -> Size | None:
    if type(transform) not in (Resize, RandomResizedCrop):
        return None
    if transform.method != "bilinear" or not transform.antialias:
        return None  # single pixels are picked, not areas
    size: int | Size = transform.size
    if isinstance(size, int):  # of the shorter side
        return size, size
    return size if isinstance(transform, Resize) else _for_boxes(transform, size)


def _for_boxes(crop: RandomResizedCrop, size: Size) -> Size:
    """So many that the smallest box which may be drawn has the pixels of the crop's size."""
    least, (narrow, wide) = crop.scale[0], crop.ratio
    sides = (
        size[0] * math.sqrt(wide / least),
        size[1] / math.sqrt(narrow * least),
        size[0] * narrow,  # the boxes in the middle, for want of one that fits
        size[1] / wide,
    )
    # Half a pixel more: boxes have whole sides.
    side = math.ceil(max(sides) * (1 + 0.5 / min(size)))
    return side, side
