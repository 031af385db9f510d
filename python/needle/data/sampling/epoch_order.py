"""Which batches an epoch has: the requests that a loader makes, numbered by their place.

A place is the number of a batch in its epoch; of a stream, cycle * shards + shard. Which samples
a place has is a function of the options and (seed, epoch), so one can start anywhere. Nothing is
read here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ..datasets.stream import shards_of
from ..samples.ticket import IndexRun
from . import (
    BatchSampler,
    Sampler,
    batch_count,
    set_epoch,
)

Indices = npt.NDArray[np.int64]
AHEAD = 4096


@dataclass(eq=False, slots=True)
class Work:
    """One batch to ask for; ``indices``, or for streams ``count`` of ``shard`` from ``start``.

    valid: bool ``(n,)``, which samples count; None for all. run: where ``indices`` are the rows
    from ``row`` on; None: nothing is known of the batches after it.
    """

    place: int
    indices: Indices | None
    valid: npt.NDArray[np.bool_] | None = None
    shard: int = 0
    start: int = 0
    count: int = 0
    run: IndexRun | None = None
    row: int = 0

    @property
    def first(self) -> int:
        """The index of the first sample, which names the batch's random numbers."""
        if self.indices is None:
            return (self.shard << 40) + self.start
        return int(self.indices[0]) if len(self.indices) else 0


class Order(ABC):
    """The batches of any epoch."""

    @abstractmethod
    def epoch(self, epoch: int, start: int) -> Pass:
        """The batches of ``epoch`` from place ``start`` on."""

    @abstractmethod
    def __len__(self) -> int:
        """How many batches an epoch has; TypeError where that is not known."""


class Pass:
    """The works of one epoch, by ``next()``; ``answered`` tells it how long a stream's shard is."""

    def __init__(self, works: Iterator[Work]) -> None:
        self.works = works

    def next(self) -> Work | None:
        """The next batch to ask for, or None after the last."""
        return next(self.works, None)

    def answered(self, work: Work, samples: int) -> bool:
        """Notes how many samples there were; whether they are a batch to hand out."""
        return samples > 0


class PlacedOrder(Order):
    """Batches of a sampler whose ``positions`` can be asked for."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def epoch(self, epoch: int, start: int) -> Pass:
        set_epoch(self.sampler, epoch)
        return Pass(self._works(epoch, start))

    def _works(self, epoch: int, start: int) -> Iterator[Work]:
        """Positions are asked for in runs, for a call a batch is dear."""
        size, total = self.batch_size, len(self.sampler)
        run = max(1, AHEAD // size)
        for place in range(start, len(self), run):
            first, end = place * size, min((place + run) * size, total)
            set_epoch(self.sampler, epoch)  # another pass over the sampler may have moved it
            indices = np.asarray(self.sampler.positions(first, end), dtype=np.int64)
            validity = getattr(self.sampler, "validity", None)
            valid = None if validity is None else validity(first, end)
            together = IndexRun(indices)
            for i in range(min(run, len(self) - place)):
                rows = slice(i * size, (i + 1) * size)
                counts = None if valid is None else valid[rows]
                yield Work(place + i, indices[rows], counts, run=together, row=rows.start)

    def __len__(self) -> int:
        return batch_count(len(self.sampler), self.batch_size, self.drop_last)

    def split(self, order: Indices) -> list[Indices]:
        """The order in batches."""
        size = self.batch_size
        return [order[i * size : (i + 1) * size] for i in range(len(self))]


class DrawnOrder(PlacedOrder):
    """Batches of an unseeded permutation, drawn when the pass begins and kept in ``drawn``."""

    drawn: Indices | None = None

    def epoch(self, epoch: int, start: int) -> Pass:
        self.drawn = self.sampler.order()
        parts = enumerate(self.split(self.drawn))
        return Pass(Work(place, part) for place, part in islice(parts, start, None))


class WalkedOrder(Order):
    """Batches of any iterable of lists of indices; going on somewhere walks there."""

    def __init__(self, batch_sampler: Iterable[Sequence[int]]) -> None:
        self.batch_sampler = batch_sampler

    def epoch(self, epoch: int, start: int) -> Pass:
        set_epoch(self.batch_sampler, epoch)
        batches = enumerate(iter(self.batch_sampler))
        return Pass(
            Work(place, np.asarray(batch, dtype=np.int64).reshape(-1))
            for place, batch in islice(batches, start, None)
        )

    def __len__(self) -> int:
        return len(self.batch_sampler)  # type: ignore[arg-type]


class StreamOrder(Order):
    """Batches of a stream: in each cycle one of every shard that is not at its end."""

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool) -> None:
        self.shards = shards_of(dataset)
        self.batch_size, self.drop_last = batch_size, drop_last

    def epoch(self, epoch: int, start: int) -> Pass:
        return _StreamPass(self, start)

    def __len__(self) -> int:
        raise TypeError(
            "DataLoader: a stream's number of batches is known when it has been read; count them, "
            "or give tqdm total="
        )


class _StreamPass(Pass):
    def __init__(self, order: StreamOrder, start: int) -> None:
        self.order = order
        self.left = set(range(order.shards))
        super().__init__(self._works(start))

    def _works(self, start: int) -> Iterator[Work]:
        shards, size = self.order.shards, self.order.batch_size
        place = start
        while self.left:
            cycle, shard = divmod(place, shards)
            if shard in self.left:
                yield Work(place, None, shard=shard, start=cycle * size, count=size)
            place += 1

    def answered(self, work: Work, samples: int) -> bool:
        if samples < work.count:
            self.left.discard(work.shard)
        return samples == work.count or (samples > 0 and not self.order.drop_last)


def find_order(sampler: Any, batch_sampler: Any, batch_size: int, drop_last: bool) -> Order:
    """The order of a map dataset's batches by these samplers, in the quickest form they offer."""
    if type(batch_sampler) is BatchSampler:
        sampler, batch_size = batch_sampler.sampler, batch_sampler.batch_size
        batch_sampler, drop_last = None, batch_sampler.drop_last
    if batch_sampler is not None:
        return WalkedOrder(batch_sampler)
    if isinstance(sampler, (list, np.ndarray)):
        return PlacedOrder(_Listed(sampler), batch_size, drop_last)
    if _speaks_for_iter(sampler, "positions") and sampler.positions(0, 0) is not None:
        return PlacedOrder(sampler, batch_size, drop_last)
    if not getattr(sampler, "repeatable", True) and _speaks_for_iter(sampler, "order"):
        return DrawnOrder(sampler, batch_size, drop_last)
    return WalkedOrder(BatchSampler(sampler, batch_size, drop_last))


def _speaks_for_iter(sampler: Any, method: str) -> bool:
    """Whether its class has ``method``, and none below that has redefined ``__iter__``."""
    homes = [
        next((i for i, kind in enumerate(type(sampler).__mro__) if name in vars(kind)), None)
        for name in (method, "__iter__")
    ]
    return homes[0] is not None and homes[1] is not None and homes[0] <= homes[1]


class _Listed(Sampler):
    """Indices in a list."""

    def __init__(self, indices: Any) -> None:
        self.indices = indices

    def positions(self, start: int, stop: int) -> Indices:
        return np.asarray(self.indices[start:stop], dtype=np.int64).reshape(-1)

    def __len__(self) -> int:
        return len(self.indices)
