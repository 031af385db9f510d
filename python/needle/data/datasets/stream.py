"""Streams: datasets that are read sequentially, in one or more shards, instead of by index.

A loader takes batches from the shards in turn, so the batches do not depend on the number of
workers; a shard is read by one worker at a time. batching/fetch.py keeps shards open between
batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...errors import check_at_least
from ...torch_names import PointsToAttributes
from ..sampling.distributed import check_rank


class IterableDataset(PointsToAttributes):
    """Base class of streams; subclasses define ``__iter__``, or ``iter_shard`` and ``num_shards``.

    A stream has no ``__getitem__``. ``__len__``, if defined, is the number of samples of all
    shards; loaders do not rely on it.
    """

    num_shards: int = 1

    def __init__(self, num_shards: int = 1) -> None:
        check_at_least(type(self).__name__, "num_shards", num_shards, 1)
        self.num_shards = int(num_shards)

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__() or iter_shard()")

    def iter_shard(self, shard: int, epoch: int, start: int) -> Iterator[Any]:
        """Yield the samples of ``shard`` from ``start`` on, in an order fixed by (shard, epoch).

        By default ``__iter__`` is the only shard, and samples before ``start`` are read and
        discarded; override this method in a stream that can seek.
        """
        if self.num_shards != 1:
            raise NotImplementedError(
                f"{type(self).__name__} has {self.num_shards} shards and must define "
                "iter_shard(shard, epoch, start)"
            )
        return islice(iter(self), start, None)

    def shard_number(self, shard: int) -> int:
        """Return the shard's number in the whole stream, which keys its random numbers."""
        return shard

    def for_rank(self, rank: int, world: int) -> IterableDataset:
        """Return a stream of the shards rank, rank + world, and so on.

        Raises ValueError if there are more ranks than shards.
        """
        return ShardsOfRank(self, rank, world)


class ShardsOfRank(IterableDataset):
    """The shards that belong to one rank; see ``IterableDataset.for_rank``."""

    def __init__(self, stream: Any, rank: int, world: int) -> None:
        rank, world = check_rank("IterableDataset.for_rank", rank, world)
        if world > stream.num_shards:
            raise ValueError(
                f"IterableDataset.for_rank: each rank needs a shard, got {stream.num_shards} for a "
                f"world of {world}; make a stream with at least {world} shards"
            )
        super().__init__(len(range(rank, stream.num_shards, world)))
        self.stream, self.rank, self.world = stream, rank, world
        self.layout = getattr(stream, "layout", None)

    def iter_shard(self, shard: int, epoch: int, start: int) -> Iterator[Any]:
        """Yield the samples of shard ``rank + shard * world`` of the whole stream."""
        place = self.rank + shard * self.world
        found: Iterator[Any] = self.stream.iter_shard(place, epoch, start)
        return found

    def shard_number(self, shard: int) -> int:
        """Return the shard's number in the whole stream, so that ranks draw different numbers."""
        return int(self.stream.shard_number(self.rank + shard * self.world))


def only_shard(dataset: Any) -> Any | None:
    """Return the iterable that is the only shard; None if the stream has an own ``iter_shard``."""
    read: Any = getattr(dataset, "iter_shard", None)
    if getattr(read, "__func__", None) is IterableDataset.iter_shard:
        return read.__self__ if read.__self__.num_shards == 1 else None
    return dataset if read is None else None


def shards_of(dataset: Any) -> int:
    """Return the number of shards of a stream; 1 for a plain iterable."""
    return int(getattr(dataset, "num_shards", 1))
