"""Datasets of arrays in memory: ArrayDataset, and ImageArrays for images with labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...dtypes import unmasked
from ...errors import DTypeError, ShapeError, check_choice
from ..transforms.axes import ToCHW
from ..transforms.base import contains
from ..transforms.values import Normalize, ToFloat
from .dataset import Dataset, ItemTransform, RowTransforms
from .indexing import Indices, given_or_listed

PIXELS = ("float32", "uint8")
"""The dtypes of images."""


class ArrayDataset(Dataset):
    """Rows of one or more arrays of equal length; an item is a tuple of rows, even for one array.

    arrays: anything that NumPy can convert to an array with at least one axis; not copied if that
    can be avoided. ``transforms`` receive the row of the first array. An index is an int, a slice
    or an index array. Raises ShapeError if there is no array, if one is a scalar, or if the lengths
    differ, and TypeError for a single list of arrays, which could mean several arrays or the rows
    of one.
    """

    def __init__(self, *arrays: Any, transforms: Sequence[ItemTransform] | None = None) -> None:
        super().__init__(transforms)
        listed = given_or_listed(arrays)
        if listed is not arrays and any(getattr(each, "ndim", 0) for each in listed):
            raise TypeError(
                "ArrayDataset: arrays must be given one by one, got a list of arrays; unpack it "
                "with *, or stack it if its items are rows of one array"
            )
        self.arrays = tuple(unmasked("ArrayDataset", array) for array in arrays)
        lengths = [array.shape[0] if array.ndim else None for array in self.arrays]
        if not lengths or None in lengths or len(set(lengths)) != 1:
            shapes = ", ".join(str(array.shape) for array in self.arrays) or "none"
            raise ShapeError(
                "ArrayDataset: the first axes of all arrays must have the same size, got shapes "
                f"{shapes}; give one row per sample in each"
            )

    def __len__(self) -> int:
        ### BEGIN YOUR SOLUTION [array-dataset]
        return int(self.arrays[0].shape[0])
        ### END YOUR SOLUTION

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        ### BEGIN YOUR SOLUTION [array-dataset]
        first, *others = (array[index] for array in self.arrays)
        return (_map_rows(self.apply_transforms, first, index, self.transforms), *others)
        ### END YOUR SOLUTION

    def fetch(self, indices: Indices) -> tuple[npt.NDArray[Any], ...] | None:
        """Gather the batch from each array; return None if there are transforms."""
        if self.transforms:
            return None
        return tuple(array[indices] for array in self.arrays)

    def in_memory(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the arrays."""
        return self.arrays


NDArrayDataset = ArrayDataset
"""The course's name for ``ArrayDataset``."""


class ImageArrays(Dataset):
    """Images and labels in memory; images come as float32 in 0..1 or as uint8.

    images: uint8 ``(N, H, W, C)``, or any numbers if a ``scale`` other than 255 is given. labels:
    ``(N,)`` or ``(N, 1)``, returned as int64 ``(N,)``. ``scale`` is the pixel value that becomes 1.
    ``transforms`` receive one ``(H, W, C)`` image; an item is ``(image,
    label)`` with the transformed image in ``layout``: "CHW" for networks, or "HWC" unchanged (then
    end the transforms, here or in the loader, with ``ToCHW()``). dtype: "float32", or "uint8" for
    unconverted bytes. Augmentation is fastest with "uint8" and layout "HWC", followed by
    ``ToFloat()`` or ``Normalize()``.
    """

    def __init__(
        self,
        images: npt.NDArray[Any],
        labels: npt.NDArray[Any],
        transforms: Sequence[ItemTransform] | None = None,
        *,
        layout: str = "CHW",
        scale: float = 255.0,
        dtype: str = "float32",
    ) -> None:
        super().__init__(transforms)
        scaled = dtype == "float32" and scale != 255
        self.images, self.labels = _checked(type(self).__name__, images, labels, scaled)
        self.layout = check_layout(type(self).__name__, layout, self.transforms)
        check_choice(type(self).__name__, "dtype", dtype, PIXELS)
        self.scale, self.dtype = np.float32(scale), dtype

    def __len__(self) -> int:
        return int(self.images.shape[0])

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        image = self._pixels(self.images[index])
        return _map_rows(self._finish, image, index, True), self.labels[index]

    def fetch(self, indices: Indices) -> tuple[npt.NDArray[Any], ...] | None:
        """Gather the batch and convert it in one pass; return None if there are transforms."""
        if self.transforms:
            return None
        images = self.images[indices]
        if self.layout == "CHW":
            images = images.transpose(0, 3, 1, 2)
        if self.dtype == "uint8":
            return np.ascontiguousarray(images), self.labels[indices]
        return np.divide(images, self.scale, dtype=np.float32, order="C"), self.labels[indices]

    def in_memory(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the images as they are stored, and the labels."""
        return self.images, self.labels

    def row_transforms(self) -> RowTransforms:
        """Return the conversion to floats, the transforms, and the change of layout."""
        to_float = ToFloat() if self.scale == 255 else Normalize(0.0, float(self.scale))
        before = () if self.dtype == "uint8" else (to_float,)
        after = (ToCHW(),) if self.layout == "CHW" else ()
        return RowTransforms(before, self.transforms or (), after)

    def _pixels(self, image: Any) -> Any:
        if self.dtype == "uint8":
            return image.copy()  # a transform may modify its argument
        return image.astype(np.float32) / self.scale

    def _finish(self, image: Any) -> Any:
        image = self.apply_transforms(image)
        return to_chw(image) if self.layout == "CHW" else image


def _checked(
    owner: str, images: npt.NDArray[Any], labels: npt.NDArray[Any], scaled: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return images and labels; raise an error unless they are pixels and as many classes.

    scaled: the images need not be uint8, since the caller has given their scale.
    """
    pixels = images.dtype == np.uint8 or (scaled and images.dtype.kind in "uif")
    labels = labels[:, 0] if labels.shape == (*images.shape[:1], 1) else labels
    if not pixels or labels.shape != images.shape[:1]:
        raise ShapeError(
            f"{owner}: images must be uint8 (N, H, W, C), with N labels, got {images.dtype} "
            f"{images.shape} and labels {labels.shape}; give the scale of other images, such as "
            "scale=1, or use ArrayDataset"
        )
    with np.errstate(invalid="ignore"):
        whole = labels.astype(np.int64) if labels.dtype.kind in "biuf" else None
    if whole is None or not np.array_equal(whole, labels):
        raise DTypeError(
            f"{owner}: labels must be whole numbers of int64, got {labels.dtype}; give the number "
            "of each class"
        )
    return images, whole


def to_chw(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``(H, W, C)`` as a contiguous ``(C, H, W)``."""
    moved: npt.NDArray[Any] = ToCHW()(image)
    return moved


def check_layout(owner: str, layout: str, transforms: Sequence[ItemTransform] | None) -> str:
    """Return ``layout``; raise ValueError if it is unknown or a transform moves the axes."""
    check_choice(owner, "layout", layout, ("CHW", "HWC"))
    if layout == "CHW" and contains(transforms, ToCHW):
        raise ValueError(
            f"{owner}: layout='CHW' moves the axes after the transforms, but these include "
            "ToCHW(); leave it out, or give layout='HWC'"
        )
    return layout


def _map_rows(function: ItemTransform, rows: Any, index: Any, wanted: Any) -> Any:
    """Apply ``function`` to one row (int index), or to each row and stack the results."""
    if not wanted:
        return rows
    if isinstance(index, (slice, np.ndarray, list)):
        return np.stack([function(row) for row in rows]) if len(rows) else rows
    return function(rows)
