"""Datasets made of other datasets: Subset and ConcatDataset."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import warn_caller
from ..samples.pytree import Field
from ..samples.ticket import check_indices
from ..transforms.region import Regions
from .dataset import Dataset, RowTransforms, fetch_of, in_memory_of, sample_spec_of
from .decode_size import decoded_at, decoded_in
from .indexing import Indices, check_index, given_or_listed, several

KEPT = ("classes", "mode", "labels", "path", "encoded")
"""Attributes and methods that programs use besides items."""


class _Combination(Dataset):
    """Base class of datasets that have the classes, labels and files of the datasets inside."""

    def _inside(self) -> Sequence[Any]:
        raise NotImplementedError

    def _located(self, index: Any) -> tuple[Any, int]:
        """Return the dataset that has the sample, and the sample's index in it."""
        raise NotImplementedError

    def _labels(self, labels: Sequence[Any]) -> npt.NDArray[Any]:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Return ``classes``, ``mode``, ``labels``, ``path`` or ``encoded`` if all inside agree."""
        inside = self._inside() if name in KEPT else [None]
        found: list[Any] = [getattr(each, name, None) for each in inside]
        if any(each is None for each in found):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if name == "labels":
            kinds = (list, tuple, np.ndarray)
            pairs = zip(found, inside, strict=True)
            if not all(isinstance(own, kinds) and len(own) == len(each) for own, each in pairs):
                raise AttributeError(f"{type(self).__name__}: labels are not one a sample inside")
            return self._labels(found)
        if callable(found[0]):
            return partial(self._of_sample, name)
        if not all(np.array_equal(each, found[0]) for each in found):
            raise AttributeError(f"{type(self).__name__}: the datasets differ in {name}: {found}")
        return found[0]

    def _of_sample(self, method: str, index: Any) -> Any:
        dataset, place = self._located(index)
        return getattr(dataset, method)(place)


class Subset(_Combination):
    """The samples of ``dataset`` at ``indices``, in that order.

    It has ``classes``, ``labels``, ``path`` and ``encoded`` if ``dataset`` has. Raises IndexError
    if an index is out of range. A slice or index array returns what ``dataset`` returns for an
    index array: stacked rows for datasets in memory, a list of items for image files, packed files
    and concatenations.
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        super().__init__()
        self.dataset = dataset
        self.indices = check_indices("Subset", np.array(indices), len(dataset))
        self.layout = getattr(dataset, "layout", None)

    def _inside(self) -> Sequence[Any]:
        return (self.dataset,)

    def _located(self, index: Any) -> tuple[Any, int]:
        return self.dataset, int(self.indices[index])

    def _labels(self, labels: Sequence[Any]) -> npt.NDArray[Any]:
        return np.asarray(labels[0])[self.indices]

    def __len__(self) -> int:
        return int(self.indices.shape[0])

    def __getitem__(self, index: Any) -> Any:
        chosen = self.indices[index]
        return self.dataset[chosen if isinstance(chosen, np.ndarray) else int(chosen)]

    def fetch(self, indices: Indices) -> Any | None:
        """Return the batch from the inner dataset's ``fetch``, or None if it has none."""
        fetch = fetch_of(self.dataset)
        return None if fetch is None else fetch(self.indices[indices])

    def in_memory(self) -> tuple[npt.NDArray[Any], ...] | None:
        """Return the inner dataset's whole arrays, from which ``rows`` selects."""
        return in_memory_of(self.dataset)

    def rows(self, indices: Indices) -> Indices:
        """Return the rows of these samples in the inner dataset's arrays."""
        return self.dataset.rows(self.indices[indices])  # type: ignore[no-any-return]

    def row_transforms(self) -> RowTransforms:
        """Return the inner dataset's row transforms."""
        inner = self.dataset
        return inner.row_transforms() if isinstance(inner, Dataset) else RowTransforms()

    def sample_spec(self) -> list[Field] | None:
        """Return the inner dataset's sample spec."""
        return sample_spec_of(self.dataset)

    def set_decode_size(self, height: int, width: int) -> bool:
        """Set how many pixels of each image suffice; return True if the inner dataset uses that."""
        inner, self.dataset = self.dataset, decoded_at(self.dataset, (height, width))
        return self.dataset is not inner

    def set_decode_regions(self, regions: Regions) -> bool:
        """Set which part of each image suffices; return True if the inner dataset uses that."""
        inner, self.dataset = self.dataset, decoded_in(self.dataset, regions)
        return self.dataset is not inner


class ConcatDataset(_Combination):
    """Several datasets, or a list of them, one after another.

    A slice or index array returns a list of items. It has ``classes``, ``labels``, ``path`` and
    ``encoded`` if all datasets have; UserWarning if their classes differ, since a label then means
    several classes. Raises TypeError for what has no length or no items.
    """

    def __init__(self, *datasets: Any) -> None:
        super().__init__()
        datasets = given_or_listed(datasets)
        if not datasets:
            raise ValueError("ConcatDataset: needs at least one dataset, got none")
        for each in datasets:
            whole = hasattr(each, "__len__") and hasattr(each, "__getitem__")
            if not whole or isinstance(each, type):
                raise TypeError(
                    f"ConcatDataset: a dataset must have a length and items, got "
                    f"{type(each).__name__}; give datasets, or one list of them"
                )
        self.datasets = datasets
        classes: list[Any] = [getattr(dataset, "classes", None) for dataset in datasets]
        classes = [each for each in classes if each is not None]
        other = [each for each in classes if not np.array_equal(each, classes[0])]
        if other:
            warn_caller(
                f"ConcatDataset: a label must mean the same class in all datasets, got classes "
                f"{classes[0]!s:.200} and {other[0]!s:.200}; map the labels of both",
                UserWarning,
            )
        layouts = {getattr(dataset, "layout", None) for dataset in datasets}
        self.layout = layouts.pop() if len(layouts) == 1 else None

    @property
    def ends(self) -> list[int]:
        """The running sums of the lengths, any of which may change between epochs."""
        return list(accumulate(map(len, self.datasets)))

    def _inside(self) -> Sequence[Any]:
        return self.datasets

    def _located(self, index: Any) -> tuple[Any, int]:
        ends = self.ends
        place = check_index("ConcatDataset", index, ends[-1])
        which = bisect.bisect_right(ends, place)
        return self.datasets[which], place - (ends[which - 1] if which else 0)

    def _labels(self, labels: Sequence[Any]) -> npt.NDArray[Any]:
        return np.concatenate(labels)

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: Any) -> Any:
        if (places := several(index, len(self))) is not None:
            return [self[i] for i in places.tolist()]
        dataset, place = self._located(index)
        return dataset[place]

    def sample_spec(self) -> list[Field] | None:
        """Return the sample spec if all datasets agree on it, else None."""
        first, *others = (sample_spec_of(dataset) for dataset in self.datasets)
        return first if all(other == first for other in others) else None

    def set_decode_size(self, height: int, width: int) -> bool:
        """Set how many pixels of each image suffice; return True if a dataset uses that."""
        inner, size = self.datasets, (height, width)
        self.datasets = tuple(decoded_at(dataset, size) for dataset in inner)
        return any(new is not old for new, old in zip(self.datasets, inner))

    def set_decode_regions(self, regions: Regions) -> bool:
        """Set which part of each image suffices; return True if a dataset uses that."""
        inner = self.datasets
        self.datasets = tuple(decoded_in(dataset, regions) for dataset in inner)
        return any(new is not old for new, old in zip(self.datasets, inner))
