"""Datasets made of other datasets: Subset and ConcatDataset."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
import numpy.typing as npt

from ..samples.pytree import Field
from ..samples.ticket import check_indices
from ..transforms.region import Regions
from .dataset import Dataset, RowTransforms, fetch_of, in_memory_of, sample_spec_of
from .decode_size import decoded_at, decoded_in
from .indexing import Indices, check_index, several


class Subset(Dataset):
    """The samples of ``dataset`` at ``indices``, in that order.

    Raises IndexError if one is out of range.
    A slice or index array returns what ``dataset`` returns for an index array: stacked rows for
    datasets in memory, a list of items for image files, packed files and concatenations.
    """

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


class ConcatDataset(Dataset):
    """Several datasets, one after another; a slice or index array returns a list of items."""

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
        if (places := several(index, len(self))) is not None:
            return [self[i] for i in places.tolist()]
        place = check_index("ConcatDataset", index, len(self))
        which = bisect.bisect_right(self.ends, place)
        start = int(self.ends[which - 1]) if which else 0
        return self.datasets[which][place - start]

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
