"""Datasets made of other datasets: Subset, random_split and ConcatDataset."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import warn_caller
from ...torch_names import points_to_keywords
from ..samples.pytree import Field
from ..samples.random_source import check_seed, keyed_permutation
from ..samples.ticket import check_indices
from .dataset import (
    Dataset,
    RowTransforms,
    fetch_of,
    in_memory_of,
    reader_of,
    sample_spec_of,
)
from .decode_size import Needed, decoded_for
from .indexing import Indices, check_index, given_or_listed, several

KEPT = ("classes", "mode", "oriented", "labels", "path", "encoded")
"""Attributes and methods that programs use besides items."""


class _Combination(Dataset):
    """Base class of datasets that have the classes, labels and files of their inner datasets."""

    def _inside(self) -> Sequence[Any]:
        raise NotImplementedError

    def _located(self, index: Any) -> tuple[Any, int]:
        """Return the dataset that has the sample, and the sample's index in it."""
        raise NotImplementedError

    def _labels(self, labels: Sequence[Any]) -> npt.NDArray[Any]:
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; AttributeError for transforms, which an own class may read."""
        if name == "transforms" and value and type(self).__module__ == __name__:
            raise AttributeError(
                f"{type(self).__name__}: samples are those of the data sets inside, got "
                "transforms for it; give them to the loader, or to a data set inside"
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute in ``KEPT`` if all inner datasets agree on it."""
        inside = self._inside() if name in KEPT else [None]
        found: list[Any] = [getattr(each, name, None) for each in inside]
        if any(each is None for each in found):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if name == "labels":
            kinds = (list, tuple, np.ndarray)
            pairs = zip(found, inside, strict=True)
            if not all(isinstance(own, kinds) and len(own) == len(each) for own, each in pairs):
                raise AttributeError(f"{type(self).__name__}: there must be one label per sample")
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
    """The samples of ``dataset`` at ``indices``, in that order; other indices may be assigned.

    It has ``classes``, ``labels``, ``path`` and ``encoded`` if ``dataset`` has. Raises IndexError
    if an index is out of range. A slice or index array returns what ``dataset`` returns for an
    index array: stacked rows for datasets in memory, a list of items for image files, packed files
    and concatenations.
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        super().__init__()
        self.dataset, self.indices = dataset, indices
        self.layout = getattr(dataset, "layout", None)

    @property
    def indices(self) -> Indices:
        """The indices in ``dataset``, int64 ``(n,)``."""
        return self._indices

    @indices.setter
    def indices(self, indices: Any) -> None:
        self._indices = check_indices("Subset", np.array(indices), len(self.dataset))

    def _inside(self) -> Sequence[Any]:
        return (self.dataset,)

    def _located(self, index: Any) -> tuple[Any, int]:
        return self.dataset, int(self.indices[index])

    def _labels(self, labels: Sequence[Any]) -> npt.NDArray[Any]:
        return np.asarray(labels[0])[self.indices]

    def reader(self) -> Callable[[int], Any]:
        """Return a function that reads a sample with the inner dataset's reader."""
        read = reader_of(self.dataset)
        return lambda index: read(int(self.indices[index]))

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
        """Return the inner dataset's whole arrays; ``rows`` selects rows from them."""
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

    def set_decoding(self, needed: Needed) -> bool:
        """Set what is needed of each image; return True if the inner dataset makes use of it."""
        inner, self.dataset = self.dataset, decoded_for(self.dataset, needed)
        return self.dataset is not inner


@points_to_keywords
def random_split(dataset: Any, lengths: Sequence[float], seed: int | None = None) -> list[Subset]:
    """Partition ``dataset`` at random into Subsets of these lengths.

    lengths: whole numbers that sum to the length of the dataset, or fractions that sum to 1. Each
    fraction is rounded down, and the samples that remain go to the first subsets, one each. seed:
    the same seed gives the same subsets on every machine; None draws from NumPy's global stream.
    ValueError for invalid lengths; UserWarning if a fraction is too small for one sample.

    >>> train, validation = random_split(range(10), [0.75, 0.25], seed=0)
    >>> len(train), len(validation)
    (8, 2)
    """
    sizes = _sizes(lengths, len(dataset))
    seed = None if seed is None else check_seed("random_split", seed)
    total = len(dataset)
    order = np.random.permutation(total) if seed is None else keyed_permutation(total, seed, 0)
    return [Subset(dataset, part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def _sizes(lengths: Sequence[float], total: int) -> list[int]:
    """Return the numbers of samples of the parts; ValueError unless they sum to ``total``."""
    given = list(lengths)
    if given and all(isinstance(n, Integral) and n >= 0 for n in given):
        sizes = [int(n) for n in given]
    elif not all(isinstance(n, Real) and 0 <= n <= 1 for n in given):
        sizes = []
    elif math.isclose(math.fsum(given), 1.0, rel_tol=1e-6):  # float32's rounding
        sizes = [math.floor(total * n) for n in given]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = []
    if not sizes or sum(sizes) != total:
        raise ValueError(
            f"random_split: lengths must be whole numbers that sum to the {total} samples, or "
            f"fractions that sum to 1, got {given}; give [0.8, 0.2], for example"
        )
    if any(n and not size for n, size in zip(given, sizes, strict=True)):
        warn_caller(
            f"random_split: a fraction must be enough for one sample, got {given} of {total} "
            "samples; one of the subsets is empty",
        )
    return sizes


class ConcatDataset(_Combination):
    """The concatenation of several datasets, given one by one or as a list.

    A slice or index array returns a list of items. It has ``classes``, ``labels``, ``path`` and
    ``encoded`` if all datasets have; UserWarning if their classes differ, since a label then stands
    for several classes. Raises TypeError for an object without a length or items.
    """

    def __init__(self, *datasets: Any) -> None:
        super().__init__()
        datasets = given_or_listed(datasets)
        if not datasets:
            raise ValueError("ConcatDataset: there must be at least one dataset, got none")
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
            )
        layouts = {getattr(dataset, "layout", None) for dataset in datasets}
        self.layout = layouts.pop() if len(layouts) == 1 else None

    @property
    def ends(self) -> list[int]:
        """The cumulative lengths, which may change between epochs."""
        return list(accumulate(map(len, self.datasets)))

    def _inside(self) -> Sequence[Any]:
        return self.datasets

    def _located(self, index: Any) -> tuple[Any, int]:
        return self._locate(index, self.ends)

    def _locate(self, index: Any, ends: list[int]) -> tuple[Any, int]:
        place = check_index("ConcatDataset", index, ends[-1])
        which = bisect.bisect_right(ends, place)
        return self.datasets[which], place - (ends[which - 1] if which else 0)

    def _labels(self, labels: Sequence[Any]) -> npt.NDArray[Any]:
        return np.concatenate(labels)

    def reader(self) -> Callable[[int], Any]:
        """Return a function that reads a sample, valid while no dataset changes its length."""
        ends = self.ends

        def read(index: int) -> Any:
            dataset, place = self._locate(index, ends)
            return dataset[place]

        return read

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: Any) -> Any:
        read = self.reader()
        listed = isinstance(index, (slice, list, np.ndarray))  # len() calls every dataset
        places = several(index, len(self)) if listed else None
        return read(index) if places is None else [read(i) for i in places.tolist()]

    def sample_spec(self) -> list[Field] | None:
        """Return the sample spec if all datasets agree on it, else None."""
        first, *others = (sample_spec_of(dataset) for dataset in self.datasets)
        return first if all(other == first for other in others) else None

    def set_decoding(self, needed: Needed) -> bool:
        """Set what is needed of each image; return True if a dataset makes use of it."""
        inner = self.datasets
        self.datasets = tuple(decoded_for(dataset, needed) for dataset in inner)
        return any(new is not old for new, old in zip(self.datasets, inner))
