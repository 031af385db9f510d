"""Datasets: what ``DataLoader`` reads. The base, in-memory arrays, images, subset, concatenation.

A dataset has a length and items by index. Readers of particular files are in ``datasets/``.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ..errors import ShapeError
from .transforms import ToCHW, contains

Transform = Callable[[Any], Any]
Indices = npt.NDArray[np.int64]


class Dataset:
    """A map from 0 .. len-1 to samples; subclasses define ``__getitem__`` and ``__len__``.

    ``transforms`` is a sequence of callables that ``apply_transforms`` runs in order; TypeError
    for a single one.
    """

    transforms: Sequence[Transform] | None = None
    layout: str | None = None
    """For images the order of their axes, "HWC" or "CHW"; None where that says nothing."""

    def __init__(self, transforms: Sequence[Transform] | None = None) -> None:
        if callable(transforms):
            raise TypeError(
                f"{type(self).__name__}: transforms must be a list, got "
                f"{type(transforms).__name__}; put it in brackets"
            )
        self.transforms = transforms

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(index)")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__()")

    def apply_transforms(self, x: Any) -> Any:
        """``x`` after every transform in order."""
        for transform in self.transforms or ():
            x = transform(x)
        return x

    def fetch(self, indices: Indices) -> Any | None:
        """The whole batch of these samples at once, collated, as NumPy arrays.

        Optional: None (the default) has the loader read sample by sample. A dataset whose
        transforms draw random numbers must answer None, for those belong to one sample each.
        """
        return None


class IterableDataset:
    """A stream of samples without indices; subclasses define ``__iter__`` or ``iter_shard``.

    shards: into how many pieces the stream is cut. Each is read by one worker at a time, so that
    workers beyond their number have nothing to do; the batches depend on the shards alone, not on
    the workers.
    """

    shards: int = 1
    layout: str | None = None

    def __iter__(self) -> Iterator[Any]:
        for shard in range(self.shards):
            yield from self.iter_shard(shard, 0, 0)

    def iter_shard(self, shard: int, epoch: int, start: int) -> Iterator[Any]:
        """The samples of one shard in this epoch, from its sample number ``start`` on.

        The default goes over ``__iter__`` and drops what comes before ``start``; define it to
        seek, and wherever ``shards`` is more than 1.
        """
        if type(self).__iter__ is IterableDataset.__iter__ or self.shards != 1:
            raise NotImplementedError(
                f"{type(self).__name__} must define __iter__() for one shard, or "
                f"iter_shard(shard, epoch, start) for {self.shards}"
            )
        return islice(iter(self), start, None)


class ArrayDataset(Dataset):
    """Rows of one or more arrays of equal length; an item is a tuple of rows, also for one array.

    arrays: anything NumPy can see as an array with at least one axis; held without a copy where
    possible. ``transforms`` see the row of the first array. Items by int, slice or index array.
    Raises ShapeError for no array, a scalar, or lengths that differ.
    """

    def __init__(self, *arrays: Any, transforms: Sequence[Transform] | None = None) -> None:
        super().__init__(transforms)
        self.arrays = tuple(np.asarray(array) for array in arrays)
        lengths = [array.shape[0] if array.ndim else None for array in self.arrays]
        if not lengths or None in lengths or len(set(lengths)) != 1:
            shapes = ", ".join(str(array.shape) for array in self.arrays) or "none"
            raise ShapeError(
                f"ArrayDataset: needs arrays with the same first axis, got shapes {shapes}; "
                f"give one row a sample in each"
            )

    def __len__(self) -> int:
        return int(self.arrays[0].shape[0])

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        first, *others = (array[index] for array in self.arrays)
        return (map_rows(self.apply_transforms, first, index, self.transforms), *others)

    def fetch(self, indices: Indices) -> tuple[npt.NDArray[Any], ...] | None:
        """One gather per array, unless there are transforms."""
        if self.transforms:
            return None
        return tuple(array[indices] for array in self.arrays)


NDArrayDataset = ArrayDataset
"""The course's name for ``ArrayDataset``."""


class ImageArrays(Dataset):
    """Images and labels in memory: uint8 pixels, given out as float32 in 0..1.

    images: uint8 ``(N, H, W, C)``. labels: ``(N,)``, given out as int64. ``scale`` is the pixel
    value that becomes 1. ``transforms`` see one float32 ``(H, W, C)`` image; afterwards the item
    is ``(image, label)`` with the image as ``layout`` says: "CHW" for networks, or "HWC" as it is
    (then end the transforms, here or in the loader, with ``ToCHW()``).
    """

    def __init__(
        self,
        images: npt.NDArray[np.uint8],
        labels: npt.NDArray[Any],
        transforms: Sequence[Transform] | None = None,
        *,
        layout: str = "CHW",
        scale: float = 255.0,
    ) -> None:
        super().__init__(transforms)
        self.images, self.labels = images, labels.astype(np.int64)
        self.layout = check_layout(type(self).__name__, layout, transforms)
        self.scale = np.float32(scale)

    def __len__(self) -> int:
        return int(self.images.shape[0])

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        image = self.images[index].astype(np.float32) / self.scale
        return map_rows(self._finish, image, index, True), self.labels[index]

    def fetch(self, indices: Indices) -> tuple[npt.NDArray[Any], ...] | None:
        """One gather and one conversion for the batch, unless there are transforms."""
        if self.transforms:
            return None
        images = self.images[indices]
        if self.layout == "CHW":
            images = images.transpose(0, 3, 1, 2)
        return np.divide(images, self.scale, dtype=np.float32, order="C"), self.labels[indices]

    def _finish(self, image: Any) -> Any:
        image = self.apply_transforms(image)
        return to_chw(image) if self.layout == "CHW" else image


class Subset(Dataset):
    """The samples of ``dataset`` at ``indices``, in that order. IndexError for one out of range."""

    def __init__(self, dataset: Any, indices: Any) -> None:
        super().__init__()
        self.dataset = dataset
        self.indices = check_indices("Subset", np.asarray(indices), len(dataset))
        self.layout = getattr(dataset, "layout", None)

    def __len__(self) -> int:
        return int(self.indices.shape[0])

    def __getitem__(self, index: Any) -> Any:
        chosen = self.indices[index]
        return self.dataset[chosen if isinstance(chosen, np.ndarray) else int(chosen)]

    def fetch(self, indices: Indices) -> Any | None:
        """The inner dataset's own batched fetch, if it has one."""
        fetch = getattr(self.dataset, "fetch", None)
        return None if fetch is None else fetch(self.indices[indices])


class ConcatDataset(Dataset):
    """Datasets one after another. Items by int; slices give a list of items."""

    def __init__(self, *datasets: Any) -> None:
        super().__init__()
        if not datasets:
            raise ValueError("ConcatDataset: needs at least one dataset, got none")
        self.datasets = datasets
        self.ends = np.cumsum([len(dataset) for dataset in datasets])
        layouts = {getattr(dataset, "layout", None) for dataset in datasets}
        self.layout = layouts.pop() if len(layouts) == 1 else None

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = check_index("ConcatDataset", index, len(self))
        which = bisect.bisect_right(self.ends, place)
        start = int(self.ends[which - 1]) if which else 0
        return self.datasets[which][place - start]


def map_rows(function: Transform, rows: Any, index: Any, wanted: Any) -> Any:
    """``function`` of one row for an int index, of each row, stacked, for a slice or indices."""
    if not wanted:
        return rows
    if isinstance(index, (slice, np.ndarray, list)):
        return np.stack([function(row) for row in rows]) if len(rows) else rows
    return function(rows)


def to_chw(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``(H, W, C)`` as a contiguous ``(C, H, W)``."""
    return ToCHW()(image)


def check_layout(owner: str, layout: str, transforms: Sequence[Transform] | None) -> str:
    """``layout`` if it is one of the two and the transforms leave the axes to it."""
    if layout not in ("CHW", "HWC"):
        raise ValueError(f"{owner}: layout must be 'CHW' or 'HWC', got {layout!r}")
    if layout == "CHW" and contains(transforms, ToCHW):
        raise ValueError(
            f"{owner}: layout='CHW' moves the axes after the transforms, and ToCHW() is among "
            f"them; leave it out, or give layout='HWC'"
        )
    return layout


def check_index(owner: str, index: SupportsIndex, length: int) -> int:
    """``index`` counted from the front; IndexError where it is out of range."""
    place = int(index)
    if not -length <= place < length:
        raise IndexError(f"{owner}: index must be in [-{length}, {length}), got {place}")
    return place % length


def check_indices(owner: str, indices: npt.NDArray[Any], length: int) -> Indices:
    """``indices`` as int64 ``(n,)`` counted from the front, each in range."""
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ShapeError(
            f"{owner}: indices must be a flat list of ints, got shape {indices.shape} of "
            f"{indices.dtype}; for a mask give np.flatnonzero(mask)"
        )
    outside = (indices < -length) | (indices >= length)
    if outside.any():
        raise IndexError(
            f"{owner}: each index must be in [-{length}, {length}), got {indices[outside][0]}"
        )
    return np.where(indices < 0, indices + length, indices).astype(np.int64)
