"""Samplers of a whole dataset or of selected indices, in order or shuffled.

With a seed, each position of a long shuffled order is computed, not stored, so that a large
dataset needs no memory and a loader resumes at any position without delay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from functools import lru_cache
from typing import Any

import numpy as np

from ...backends.philox import SORTED_LENGTH
from ..samples.native_kernels import permutation
from ..samples.random_source import check_seed, keyed_permutation
from ..samples.ticket import flat_ints
from .sampler import Indices, SourceSampler, check_again

CHUNK = 2**16


class SequentialSampler(SourceSampler):
    """A sampler of the indices 0, 1, 2 ... len-1. ``source``: a dataset or its length."""

    def order(self) -> Indices:
        """Return the indices of the whole epoch as int64 ``(n,)``."""
        return np.arange(self.length, dtype=np.int64)

    def positions(self, start: int, stop: int) -> Indices:
        """Return the indices ``start`` to ``stop`` - 1."""
        return np.arange(start, stop, dtype=np.int64)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class RandomSampler(SourceSampler):
    """A sampler that permutes the indices randomly in each epoch.

    Without a seed the permutation is ``np.random.permutation(n)`` from the global stream. With a
    seed it is a pure function of (seed, epoch), where the epoch advances by itself unless
    ``set_epoch`` sets it.
    """

    def __init__(self, source: Sized | int, seed: int | None = None) -> None:
        super().__init__(source)
        self.seed = None if seed is None else check_seed("RandomSampler", seed)

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        """True with a seed."""
        return self.seed is not None

    def order(self) -> Indices:
        """Return the next epoch's indices as int64 ``(n,)`` and advance the epoch."""
        if self.seed is None:
            return np.random.permutation(self.length)
        length = self.length
        order = shuffled(np.arange(length), length, self.seed, self.epoch)
        self.epoch += 1
        return order

    def positions(self, start: int, stop: int) -> Indices | None:
        """Return the indices at these positions of the epoch, or None without a seed."""
        if self.seed is None:
            return None
        return shuffled(np.arange(start, stop), self.length, self.seed, self.epoch)

    def __iter__(self) -> Iterator[int]:
        if self.seed is None:
            return iter(self.order().tolist())
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._walk(self.seed, epoch)

    def _walk(self, seed: int, epoch: int) -> Iterator[int]:
        length = self.length
        for start in range(0, length, CHUNK):
            places = np.arange(start, min(start + CHUNK, length))
            yield from shuffled(places, length, seed, epoch).tolist()


class SubsetRandomSampler(RandomSampler):
    """A sampler of given indices, in a new random order in each epoch; see ``RandomSampler``."""

    def __init__(self, indices: Sequence[int], seed: int | None = None) -> None:
        self.indices = indices
        super().__init__(self.indices, seed)

    @property
    def indices(self) -> Indices:
        """The indices, int64 ``(n,)``; others may be assigned."""
        return self._indices

    @indices.setter
    def indices(self, indices: Any) -> None:
        check_again("SubsetRandomSampler", "indices", indices)
        self._indices = flat_ints("SubsetRandomSampler", indices).astype(np.int64)

    @property
    def length(self) -> int:
        """The number of ``indices``."""
        return len(self.indices)

    def order(self) -> Indices:
        """Return the next epoch's indices as int64 ``(n,)`` and advance the epoch."""
        return self._indices[super().order()]

    def positions(self, start: int, stop: int) -> Indices | None:
        """Return the indices at these positions of the epoch, or None without a seed."""
        places = super().positions(start, stop)
        return None if places is None else self._indices[places]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())


def shuffled(places: Indices, length: int, seed: int, epoch: int) -> Indices:
    """Return the indices at these positions of the epoch's shuffled order of ``range(length)``.

    Short orders are sorted once and cached; each position of a long order is computed separately.
    """
    if length <= SORTED_LENGTH:
        return _kept_order(length, seed, epoch)[places]
    return permutation(places, length, seed, epoch)


@lru_cache(maxsize=8)
def _kept_order(length: int, seed: int, epoch: int) -> Indices:
    return keyed_permutation(length, seed, epoch)
