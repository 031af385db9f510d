# Trail 25 of 30: Ticket: the samples of one batch and the key of their random numbers.
# Next: src/core/philox.h
"""The ticket, which identifies one batch of an epoch on its way to the kernels and back.

sampling/epoch_order.py makes tickets, the engines in workers/ queue them, batching/pipeline.py
fetches the samples that a ticket names, and transforms/execute.py draws their random numbers from
it. workers/work_queue.py encodes tickets in shared memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...backends import philox
from ...errors import ShapeError
from . import native_kernels

Indices = npt.NDArray[np.int64]

NO_INDICES: Indices = np.empty(0, np.int64)

NO_SAMPLE = -(1 << 63)
"""Reported instead of an index while several samples are read at once."""
SERIALS = itertools.count()
"""The serial numbers of tickets; each submission to an engine takes the next one."""
SHARD_SAMPLES = 2**40
"""Sample i in shard s of a stream uses the random numbers of index ``s * 2**40 + i``."""


class IndexRun:
    """The indices of consecutive batches, int64 ``(n,)``, with a cache of values for all of them.

    A NumPy call takes as long for one batch of small images as for a dozen such batches.
    """

    __slots__ = ("_cache", "indices")

    def __init__(self, indices: Indices) -> None:
        self.indices = indices
        self._cache: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value of ``make()`` for this key, computed by the first call and then cached.

        The value must be a function of the indices and the key alone, since two threads may both
        compute it.
        """
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = make()
        return found


class Ticket(NamedTuple):
    """The samples of a batch, or of part of one, and the key for their random numbers.

    place: the position of the batch in its epoch; for a stream, ``cycle * shards + shard``.
    seed: the key of the random numbers; None means the global NumPy stream.
    indices: int64 ``(n,)``, the samples of a map dataset in the order of the batch.
    shard, start, size: the samples ``start`` to ``start + size`` of a stream's shard, whose indices
    are known once they have been read; shard is -1 for a map dataset.
    serial: identifies one submission to an engine and is never used twice.
    valid: bool ``(n,)``, False for padding; None if all samples are valid.
    run: the run of batches whose rows from ``row`` on are ``indices``; None if it is unknown.
    """

    place: int
    seed: int | None
    epoch: int
    indices: Indices = NO_INDICES
    serial: int = -1
    shard: int = -1
    start: int = 0
    size: int = 0
    valid: npt.NDArray[np.bool_] | None = None
    run: IndexRun | None = None
    row: int = 0

    @property
    def is_stream(self) -> bool:
        """True if the ticket requests samples of a stream's shard."""
        return self.shard >= 0

    @property
    def samples(self) -> int:
        """The number of samples that the ticket requests."""
        return self.size if self.is_stream else len(self.indices)

    @property
    def first(self) -> int:
        """The index of the first sample, which keys the random numbers of the whole batch."""
        if self.is_stream:
            return self.shard * SHARD_SAMPLES + self.start
        return int(self.indices[0]) if len(self.indices) else 0

    def rows(self, rows: slice) -> Ticket:
        """Return the ticket for some rows of the batch; a batch of a stream is not split."""
        if self.is_stream or rows == slice(None):
            return self
        return self._replace(indices=self.indices[rows], row=self.row + (rows.start or 0))

    def of(self, indices: Indices) -> Ticket:
        """Return a ticket for other samples, without a run, with the same key of random numbers."""
        return self._replace(indices=indices, run=None, row=0)

    def words(self, stream: int, count: int) -> philox.Words:
        """Return the first words of a random stream for each sample, uint32 ``(n, count)``."""
        if count == 0:
            return np.empty((len(self.indices), 0), np.uint32)
        assert self.seed is not None, "whole batches draw random words only with a seed"
        return native_kernels.words(self.seed, self.epoch, self.indices, stream, count)


NO_TICKET = Ticket(-1, None, 0)
"""Stands for the ticket in a worker's answer, since the parent knows the ticket."""


def flat_ints(owner: str, values: Any) -> npt.NDArray[Any]:
    """Return the values as an array ``(n,)`` of integers; raise ShapeError for any others."""
    indices = np.asarray(values)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ShapeError(
            f"{owner}: indices must be a 1-D list of ints, got shape {indices.shape} of "
            f"{indices.dtype}; for a mask, give np.flatnonzero(mask)"
        )
    return indices


def check_indices(owner: str, indices: npt.NDArray[Any], length: int) -> Indices:
    """Return ``indices`` as int64 ``(n,)``, in bounds and with negative ones wrapped."""
    indices = flat_ints(owner, indices)
    if indices.dtype == np.int64 and indices.size and highest(indices) < length:
        return indices
    outside = (indices < -length) | (indices >= length)
    if outside.any():
        raise IndexError(
            f"{owner}: each index must be in [-{length}, {length}), got {indices[outside][0]}"
        )
    return np.where(indices < 0, indices + length, indices).astype(np.int64)


def highest(indices: Indices) -> int:
    """Return the highest index, or 0 if there are none; a negative index counts as very large."""
    return int(indices.view(np.uint64).max(initial=0))
