"""The samples of one rank: all have the same number, and each sample is valid exactly once."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from ..samples.random_source import check_seed
from .orders import shuffled
from .sampler import Indices, SourceSampler


class DistributedSampler(SourceSampler):
    """A sampler of positions rank, rank + world, rank + 2 world ... of an epoch over ``source``.

    All ranks have ceil(length / world) samples, so that ranks that synchronise after every batch
    do not deadlock: the last ranks are padded with a sample from the beginning, whose ``validity``
    is False. drop_last: use floor(length / world) samples per rank instead, all of them valid.
    valid_mask: make the loader append the validity to each batch, bool ``(n,)``, as its last field
    or as field "valid" of a dict, so that sums over the valid samples are exact. Order and padding
    are functions of (seed, epoch) and the same on all ranks. The world may be larger than the
    dataset.
    """

    def __init__(
        self,
        source: Sized | int,
        rank: int,
        world: int,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        valid_mask: bool = False,
    ) -> None:
        super().__init__(source)
        self.rank, self.world = check_rank("DistributedSampler", rank, world)
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)
        self.valid_mask = bool(valid_mask)
        self.seed = check_seed("DistributedSampler", seed)

    def positions(self, start: int, stop: int) -> Indices:
        """Return the indices at these positions of the rank's epoch."""
        ### BEGIN YOUR SOLUTION [distributed-sampler]
        places, length = self._places(start, stop), self.length
        padding = places >= length
        places[padding] %= max(length, 1)
        if not self.shuffle or not len(places):
            return places
        return shuffled(places, length, self.seed, self.epoch)
        ### END YOUR SOLUTION

    def validity(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return bool ``(n,)``, False for padding."""
        return self._places(start, stop) < self.length

    def __iter__(self) -> Iterator[int]:
        return iter(self.positions(0, len(self)).tolist())

    def __len__(self) -> int:
        if self.drop_last:
            return self.length // self.world
        return -(-self.length // self.world)

    def _places(self, start: int, stop: int) -> Indices:
        ### BEGIN YOUR SOLUTION [distributed-sampler]
        return self.rank + self.world * np.arange(start, stop, dtype=np.int64)
        ### END YOUR SOLUTION


def check_rank(op: str, rank: Any, world: Any) -> tuple[int, int]:
    """Return both as ints with 0 <= rank < world; errors name the caller ``op``."""
    try:
        rank, world = operator.index(rank), operator.index(world)
    except TypeError:
        raise TypeError(f"{op}: rank and world must be ints, got {rank!r} and {world!r}") from None
    if not 0 <= rank < world:
        raise ValueError(
            f"{op}: rank must be in [0, world), got rank {rank} of world {world}; ranks count "
            "from 0"
        )
    return rank, world
