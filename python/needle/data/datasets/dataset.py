"""Datasets: what ``DataLoader`` reads. The base, in-memory arrays, images, subset, concatenation.

A dataset has a length and items by index. Readers of particular files are in ``datasets/``.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError
from ..samples.pytree import Field
from ..transforms import Compose, Normalize, ToCHW, ToFloat, contains
from ..transforms.compile import Chain, placed, row_fields
from ..transforms.decode_size import decoded_at
from ..transforms.execute import PlacedTransform

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
        """``x`` after every transform in order, each with the random streams of its place."""
        return Compose(self.transforms)(x) if self.transforms else x

    def in_memory(self) -> tuple[npt.NDArray[Any], ...] | None:
        """Whole arrays, the first of images, whose rows make the samples; None: there are none.

        With them a batch is gathered and transformed in one native call. Sample i is a tuple of
        the arrays' rows ``rows(i)``, the first of them after ``row_chain()``.
        """
        return None

    def rows(self, indices: Indices) -> Indices:
        """Where in the arrays of ``in_memory`` these samples, int64 ``(n,)`` from 0 on, are."""
        return indices

    def row_chain(self) -> tuple[PlacedTransform, ...]:
        """The transforms from a row of ``in_memory()[0]`` to a sample's first field."""
        return placed(self.transforms)

    def sample_spec(self) -> list[Field] | None:
        """Shape and dtype of every array in a sample, where all samples have the same."""
        arrays = in_memory_of(self)
        return None if arrays is None else row_fields(arrays, Chain(self.row_chain()))

    def fetch(self, indices: Indices) -> Any | None:
        """The whole batch of these samples at once, collated, as NumPy arrays.

        Optional: None (the default) has the loader read sample by sample. A dataset whose
        transforms draw random numbers must answer None, for those belong to one sample each.
        """
        return None


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

    def in_memory(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays."""
        return self.arrays


NDArrayDataset = ArrayDataset
"""The course's name for ``ArrayDataset``."""


class ImageArrays(Dataset):
    """Images and labels in memory, given out as float32 in 0..1 or as they are.

    images: uint8 ``(N, H, W, C)``. labels: ``(N,)``, given out as int64. ``scale`` is the pixel
    value that becomes 1. ``transforms`` see one ``(H, W, C)`` image; afterwards the item
    is ``(image, label)`` with the image as ``layout`` says: "CHW" for networks, or "HWC" as it is
    (then end the transforms, here or in the loader, with ``ToCHW()``). dtype: "float32", or
    "uint8" for the bytes themselves, which augmentation is quickest with, best in layout "HWC"
    and with ``ToFloat()`` or ``Normalize()`` after it.
    """

    def __init__(
        self,
        images: npt.NDArray[np.uint8],
        labels: npt.NDArray[Any],
        transforms: Sequence[Transform] | None = None,
        *,
        layout: str = "CHW",
        scale: float = 255.0,
        dtype: str = "float32",
    ) -> None:
        super().__init__(transforms)
        self.images, self.labels = images, labels.astype(np.int64)
        self.layout = check_layout(type(self).__name__, layout, transforms)
        self.scale, self.dtype = np.float32(scale), check_pixels(type(self).__name__, dtype)

    def __len__(self) -> int:
        return int(self.images.shape[0])

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        image = self._pixels(self.images[index])
        return map_rows(self._finish, image, index, True), self.labels[index]

    def fetch(self, indices: Indices) -> tuple[npt.NDArray[Any], ...] | None:
        """One gather and one conversion for the batch, unless there are transforms."""
        if self.transforms:
            return None
        images = self.images[indices]
        if self.layout == "CHW":
            images = images.transpose(0, 3, 1, 2)
        if self.dtype == "uint8":
            return np.ascontiguousarray(images), self.labels[indices]
        return np.divide(images, self.scale, dtype=np.float32, order="C"), self.labels[indices]

    def in_memory(self) -> tuple[npt.NDArray[Any], ...]:
        """The images as they are held, and the labels."""
        return self.images, self.labels

    def row_chain(self) -> tuple[PlacedTransform, ...]:
        """To floats, the transforms, to the layout; what surrounds them draws nothing."""
        to_float = ToFloat() if self.scale == 255 else Normalize(0.0, float(self.scale))
        before = [] if self.dtype == "uint8" else [PlacedTransform(to_float, 0)]
        after = [PlacedTransform(ToCHW(), 0)] if self.layout == "CHW" else []
        return (*before, *placed(self.transforms), *after)

    def _pixels(self, image: Any) -> Any:
        if self.dtype == "uint8":
            return image.copy()  # a transform may change what it is given
        return image.astype(np.float32) / self.scale

    def _finish(self, image: Any) -> Any:
        image = self.apply_transforms(image)
        return to_chw(image) if self.layout == "CHW" else image


class Subset(Dataset):
    """The samples of ``dataset`` at ``indices``, in that order. IndexError for one out of range."""

    def __init__(self, dataset: Any, indices: Any) -> None:
        super().__init__()
        self.dataset = dataset
        self.indices = check_indices("Subset", np.array(indices), len(dataset))
        self.layout = getattr(dataset, "layout", None)

    def __len__(self) -> int:
        return int(self.indices.shape[0])

    def __getitem__(self, index: Any) -> Any:
        chosen = self.indices[index]
        return self.dataset[chosen if isinstance(chosen, np.ndarray) else int(chosen)]

    def fetch(self, indices: Indices) -> Any | None:
        """The inner dataset's own batched fetch, if it has one."""
        fetch = fetch_of(self.dataset)
        return None if fetch is None else fetch(self.indices[indices])

    def in_memory(self) -> tuple[npt.NDArray[Any], ...] | None:
        """The inner dataset's whole arrays; ``rows`` says which of their rows are chosen."""
        return in_memory_of(self.dataset)

    def rows(self, indices: Indices) -> Indices:
        """Those of the chosen samples in the inner dataset's arrays."""
        return self.dataset.rows(self.indices[indices])  # type: ignore[no-any-return]

    def row_chain(self) -> tuple[PlacedTransform, ...]:
        """The inner dataset's."""
        return self.dataset.row_chain() if isinstance(self.dataset, Dataset) else ()

    def sample_spec(self) -> list[Field] | None:
        """The inner dataset's."""
        return sample_spec_of(self.dataset)

    def set_decode_size(self, height: int, width: int) -> bool:
        """Says that so many pixels of each image suffice; whether the inner dataset uses that."""
        inner, self.dataset = self.dataset, decoded_at(self.dataset, (height, width))
        return self.dataset is not inner


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

    def sample_spec(self) -> list[Field] | None:
        """That of the datasets, if all have the same."""
        first, *others = (sample_spec_of(dataset) for dataset in self.datasets)
        return first if all(other == first for other in others) else None

    def set_decode_size(self, height: int, width: int) -> bool:
        """Says that so many pixels of each image suffice; whether any of the datasets uses that."""
        inner, size = self.datasets, (height, width)
        self.datasets = tuple(decoded_at(dataset, size) for dataset in inner)
        return any(new is not old for new, old in zip(self.datasets, inner))


def in_memory_of(dataset: Any) -> tuple[npt.NDArray[Any], ...] | None:
    """``dataset.in_memory()``; None for one that is no Dataset or makes its items otherwise."""
    if not isinstance(dataset, Dataset) or is_replaced(dataset, "in_memory", "__getitem__"):
        return None
    return None if is_replaced(dataset, "in_memory", "apply_transforms") else dataset.in_memory()


def fetch_of(dataset: Any) -> Callable[[Indices], Any] | None:
    """``dataset.fetch``; None where there is none, or it does not know how items are made."""
    fetch: Callable[[Indices], Any] | None = getattr(dataset, "fetch", None)
    return None if is_replaced(dataset, "fetch", "__getitem__") else fetch


def is_replaced(dataset: Any, method: str, by: str) -> bool:
    """Whether a subclass defines ``by`` anew and leaves ``method`` as its base has it."""
    return _is_replaced(type(dataset).__mro__, method, by)


@lru_cache(maxsize=256)
def _is_replaced(kinds: tuple[type, ...], method: str, by: str) -> bool:
    for kind in kinds:
        if method in vars(kind):
            return False
        if by in vars(kind):
            return True
    return False


def sample_spec_of(dataset: Any) -> list[Field] | None:
    """``dataset.sample_spec()``; None for one that is no Dataset."""
    return dataset.sample_spec() if isinstance(dataset, Dataset) else None


def map_rows(function: Transform, rows: Any, index: Any, wanted: Any) -> Any:
    """``function`` of one row for an int index, of each row, stacked, for a slice or indices."""
    if not wanted:
        return rows
    if isinstance(index, (slice, np.ndarray, list)):
        return np.stack([function(row) for row in rows]) if len(rows) else rows
    return function(rows)


def to_chw(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``(H, W, C)`` as a contiguous ``(C, H, W)``."""
    moved: npt.NDArray[Any] = ToCHW()(image)
    return moved


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


def check_pixels(owner: str, dtype: str) -> str:
    """``dtype`` if it is one that images are given out in."""
    if dtype not in ("float32", "uint8"):
        raise ValueError(f"{owner}: dtype must be 'float32' or 'uint8', got {dtype!r}")
    return dtype


def check_index(owner: str, index: SupportsIndex, length: int) -> int:
    """``index`` counted from the front; IndexError where it is out of range."""
    place = int(index)
    if not -length <= place < length:
        raise IndexError(f"{owner}: index must be in [-{length}, {length}), got {place}")
    return place % length


def highest(indices: Indices) -> int:
    """The highest of some indices, 0 of none; very large where one is negative."""
    return int(indices.view(np.uint64).max(initial=0))


def check_indices(owner: str, indices: npt.NDArray[Any], length: int) -> Indices:
    """``indices`` as int64 ``(n,)`` counted from the front, each in range."""
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ShapeError(
            f"{owner}: indices must be a flat list of ints, got shape {indices.shape} of "
            f"{indices.dtype}; for a mask give np.flatnonzero(mask)"
        )
    if indices.dtype == np.int64 and indices.size and highest(indices) < length:
        return indices
    outside = (indices < -length) | (indices >= length)
    if outside.any():
        raise IndexError(
            f"{owner}: each index must be in [-{length}, {length}), got {indices[outside][0]}"
        )
    return np.where(indices < 0, indices + length, indices).astype(np.int64)
