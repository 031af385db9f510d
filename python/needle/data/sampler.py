"""Samplers: the order in which a loader visits a dataset; no sample is read here.

``Sampler`` yields indices, ``BatchSampler`` lists of them. The loader tells a sampler the epoch
through ``set_epoch`` before each pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from .random_source import check_seed, keyed_permutation


class Sampler:
    """Base: ``__iter__`` gives indices for one pass, ``__len__`` how many."""

    epoch = 0
    repeatable = True
    """Whether the same epoch always has the same order; a loader's position needs that."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__()")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__()")

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass; the loader calls this."""
        self.epoch = epoch


class SequentialSampler(Sampler):
    """0, 1, 2 ... len-1. ``source`` is a dataset or its length."""

    def __init__(self, source: Sized | int) -> None:
        self.length = _length("SequentialSampler", source)

    def order(self) -> npt.NDArray[np.int64]:
        """The whole pass as int64 ``(n,)``."""
        return np.arange(self.length, dtype=np.int64)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))

    def __len__(self) -> int:
        return self.length


class RandomSampler(Sampler):
    """A permutation a pass, each index once.

    Without a seed one ``np.random.permutation(n)`` from the global stream; with a seed a pure
    function of (seed, epoch), where the epoch counts the passes unless ``set_epoch`` says it.
    """

    def __init__(self, source: Sized | int, seed: int | None = None) -> None:
        self.length = _length("RandomSampler", source)
        self.seed = None if seed is None else check_seed("RandomSampler", seed)
        self.repeatable = seed is not None

    def order(self) -> npt.NDArray[np.int64]:
        """The whole next pass as int64 ``(n,)``; the epoch moves on."""
        if self.seed is None:
            return np.random.permutation(self.length)
        order = keyed_permutation(self.length, self.seed, self.epoch)
        self.epoch += 1
        return order

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def __len__(self) -> int:
        return self.length


class SubsetRandomSampler(Sampler):
    """The given indices in a new random order each pass; seed as in ``RandomSampler``."""

    def __init__(self, indices: Sequence[int], seed: int | None = None) -> None:
        self.indices = np.asarray(indices, dtype=np.int64).reshape(-1)
        self.inner = RandomSampler(len(self.indices), seed)
        self.repeatable = self.inner.repeatable

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass."""
        self.inner.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices[self.inner.order()].tolist())

    def __len__(self) -> int:
        return len(self.indices)


class BatchSampler(Sampler):
    """Lists of ``batch_size`` indices of ``sampler``; the short last one dropped or kept."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.batch_size = check_batch_size("BatchSampler", batch_size)
        self.drop_last = drop_last
        self.repeatable = getattr(sampler, "repeatable", True)

    def set_epoch(self, epoch: int) -> None:
        """Hands the number of the next pass to the inner sampler, if it takes one."""
        set_epoch(self.sampler, epoch)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        return batch_count(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]


def set_epoch(sampler: Any, epoch: int) -> None:
    """Tells ``sampler`` the epoch if it has a ``set_epoch``; any iterable of indices will do."""
    tell = getattr(sampler, "set_epoch", None)
    if tell is not None:
        tell(epoch)


def batch_count(length: int, batch_size: int, drop_last: bool) -> int:
    """How many batches ``length`` samples make."""
    return length // batch_size if drop_last else -(-length // batch_size)


def check_batch_size(op: str, batch_size: Any) -> int:
    """``batch_size`` as an int of at least 1; ValueError names the caller ``op``."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
        raise TypeError(f"{op}: batch_size must be an int, got {batch_size!r}")
    if batch_size < 1:
        raise ValueError(f"{op}: batch_size must be at least 1, got {batch_size}")
    return int(batch_size)


def _length(op: str, source: Sized | int) -> int:
    length = source if isinstance(source, int) else len(source)
    if length < 0:
        raise ValueError(f"{op}: the length must not be negative, got {length}")
    return length
