"""Dataset: the base class of data with a length and items by index.

Subclass it for your own data. arrays.py has arrays in memory, combinations.py has subsets and
concatenations, and the other files of this folder read particular formats. Loaders request whole
arrays or whole batches from a dataset that can provide them (``in_memory_of``, ``fetch_of``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy.typing as npt

from ...torch_names import PointsToAttributes
from ..samples.pytree import Field
from ..transforms.base import Compose, listed_transforms, row_fields
from .indexing import Indices

ItemTransform = Callable[[Any], Any]
"""A transform of a sample's first field: a ``transforms.Transform`` or any function."""


class RowTransforms(NamedTuple):
    """The transforms, in order, that turn a row of ``in_memory()[0]`` into a sample's first field.

    before, after: conversions around the dataset's own transforms. They draw no random numbers and
    occupy no random streams.
    """

    before: Sequence[ItemTransform] = ()
    own: Sequence[ItemTransform] = ()
    after: Sequence[ItemTransform] = ()


class Dataset(PointsToAttributes):
    """A map from 0 .. len - 1 to samples; subclasses define ``__getitem__`` and ``__len__``.

    ``transforms`` is a sequence of callables that ``apply_transforms`` runs in order; TypeError if
    it is a single callable, or contains a class.
    """

    transforms: Sequence[ItemTransform] | None = None
    layout: str | None = None
    """The order of the axes of images, "HWC" or "CHW"; None for other data."""

    def __init__(self, transforms: Sequence[ItemTransform] | None = None) -> None:
        self.transforms = listed_transforms(type(self).__name__, transforms)

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(index)")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__()")

    def apply_transforms(self, x: Any) -> Any:
        """Apply every transform to ``x`` in order, each with its own random streams."""
        return Compose(self.transforms)(x) if self.transforms else x

    # ---- optional: whole arrays and whole batches, which are faster --------------------------

    def in_memory(self) -> tuple[npt.NDArray[Any], ...] | None:
        """Return whole arrays with one row per sample, images first, or None (the default).

        With them, a batch is gathered and transformed in one native call. Sample i is the tuple of
        the arrays' rows ``rows(i)``; ``row_transforms()`` apply to the first of them.
        """
        return None

    def rows(self, indices: Indices) -> Indices:
        """Return the rows of these samples, int64 ``(n,)``, in the arrays of ``in_memory``."""
        return indices

    def row_transforms(self) -> RowTransforms:
        """Return the transforms that turn a row of ``in_memory()[0]`` into a first field."""
        return RowTransforms(own=self.transforms or ())

    def sample_spec(self) -> list[Field] | None:
        """Return shape and dtype of every array in a sample; None if they vary between samples."""
        arrays = in_memory_of(self)
        if arrays is None:
            return None
        before, own, after = self.row_transforms()
        return row_fields(arrays, (*before, *own, *after))

    def reader(self) -> Callable[[int], Any]:
        """Return the function with which the loader reads the samples of one batch."""
        return self.__getitem__

    def fetch(self, indices: Indices) -> Any | None:
        """Return the whole batch of these samples, collated, as NumPy arrays; by default None.

        If the result is None, the loader reads sample by sample. A dataset whose transforms draw
        random numbers must return None, because each sample has its own random numbers.
        """
        return None


def in_memory_of(dataset: Any) -> tuple[npt.NDArray[Any], ...] | None:
    """Return ``dataset.in_memory()``; None for other objects or if a subclass overrides items."""
    if not isinstance(dataset, Dataset) or is_replaced(dataset, "in_memory", "__getitem__"):
        return None
    return None if is_replaced(dataset, "in_memory", "apply_transforms") else dataset.in_memory()


def fetch_of(dataset: Any) -> Callable[[Indices], Any] | None:
    """Return ``dataset.fetch``; None if there is none or a subclass overrides items."""
    fetch: Callable[[Indices], Any] | None = getattr(dataset, "fetch", None)
    return None if is_replaced(dataset, "fetch", "__getitem__") else fetch


def reader_of(dataset: Any) -> Callable[[int], Any]:
    """Return the function that reads the samples of a batch: ``dataset.reader()`` or indexing."""
    if isinstance(dataset, Dataset) and not is_replaced(dataset, "reader", "__getitem__"):
        return dataset.reader()
    return dataset.__getitem__  # type: ignore[no-any-return]


def sample_spec_of(dataset: Any) -> list[Field] | None:
    """Return ``dataset.sample_spec()``; None if the object is not a Dataset."""
    return dataset.sample_spec() if isinstance(dataset, Dataset) else None


def is_replaced(dataset: Any, method: str, by: str) -> bool:
    """Return True if a subclass overrides ``by`` but not ``method``, which may then be invalid."""
    return _is_replaced(type(dataset).__mro__, method, by)


@lru_cache(maxsize=256)
def _is_replaced(kinds: tuple[type, ...], method: str, by: str) -> bool:
    for kind in kinds:
        if method in vars(kind):
            return False
        if by in vars(kind):
            return True
    return False
