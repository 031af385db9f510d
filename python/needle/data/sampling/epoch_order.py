# Trail 24 of 30: PositionOrder: the batches of an epoch as a function of (seed, epoch).
# Next: python/needle/data/samples/ticket.py
"""The order of an epoch: the sequence of its tickets, which can start at any place.

A place is the position of a batch in its epoch; for a stream, ``cycle * shards + shard``. The
samples of a place are a function of the options and of (seed, epoch). This file reads no samples.
loader/iteration.py submits the tickets to an engine.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from ..samples.ticket import IndexRun, Indices, Ticket, flat_ints
from .batches import BatchSampler, batch_count, check_batch_size
from .restarts import Restarts
from .sampler import Sampler, SourceSampler, check_again, set_epoch

INDICES_AT_ONCE = 4096
"""The number of indices that are requested from a sampler at a time."""


class EpochTickets:
    """An iterator over the tickets of one epoch; ``answered`` takes the number of samples found.

    begin: returns an iterator over the tickets from a place on. It is called with ``place``, and
    again after an interrupt, which ends the generator.
    """

    def __init__(self, begin: Callable[[int], Iterator[Ticket]], place: int) -> None:
        self._begin, self._place = begin, place
        self._tickets: Iterator[Ticket] | None = begin(place)

    def next(self) -> Ticket | None:
        """Return the next ticket, or None after the last."""
        tickets, self._tickets = self._tickets, None
        if tickets is None:
            tickets = self._begin(self._place)
        try:
            ticket = next(tickets, None)
        except Exception:
            self._tickets = tickets
            raise
        if ticket is not None:
            self._place = ticket.place + 1
        self._tickets = tickets
        return ticket

    def answered(self, ticket: Ticket, samples: int) -> bool:
        """Record the number of samples that were found; return True if they form a batch."""
        return samples > 0


class EpochOrder(ABC):
    """Base class of orders, which yield the tickets of any epoch."""

    @abstractmethod
    def epoch(self, seed: int | None, epoch: int, start: int) -> EpochTickets:
        """Return the tickets of ``epoch`` from place ``start`` on."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches in an epoch; raise TypeError if it is unknown."""


class PositionOrder(EpochOrder):
    """The batches of a sampler with ``positions``, so that an epoch can start at any place."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def epoch(self, seed: int | None, epoch: int, start: int) -> EpochTickets:
        set_epoch(self.sampler, epoch)
        sampler = self.sampler
        # a data set that grows takes effect in the next epoch
        if isinstance(sampler, SourceSampler):
            sampler = copy.copy(sampler)
            sampler.source = sampler.length
        return EpochTickets(partial(self._tickets, sampler, seed, epoch), start)

    def _tickets(self, sampler: Any, seed: int | None, epoch: int, start: int) -> Iterator[Ticket]:
        """Request positions in runs of batches, since one call per batch is too expensive."""
        size, total = self.batch_size, len(sampler)
        count = batch_count(total, size, self.drop_last)
        batches = max(1, INDICES_AT_ONCE // size)
        for place in range(start, count, batches):
            first, end = place * size, min((place + batches) * size, total)
            set_epoch(sampler, epoch)  # another iterator may have changed the epoch
            found = sampler.positions(first, end)
            indices = flat_ints("DataLoader", found).astype(np.int64, copy=False)
            masked = getattr(sampler, "valid_mask", False)
            valid = sampler.validity(first, end) if masked else None
            run = IndexRun(indices)
            for i in range(min(batches, count - place)):
                rows = slice(i * size, (i + 1) * size)
                yield Ticket(
                    place + i,
                    seed,
                    epoch,
                    indices[rows],
                    valid=None if valid is None else valid[rows],
                    run=run,
                    row=rows.start,
                )

    def __len__(self) -> int:
        return batch_count(len(self.sampler), self.batch_size, self.drop_last)

    def split(self, order: Indices) -> list[Indices]:
        """Return the order split into batches."""
        ### BEGIN YOUR SOLUTION [epoch-batches]
        size, count = self.batch_size, batch_count(len(order), self.batch_size, self.drop_last)
        return [order[i * size : (i + 1) * size] for i in range(count)]
        ### END YOUR SOLUTION


class DrawnOrder(PositionOrder):
    """The batches of an unseeded permutation, drawn when the epoch starts and kept in ``drawn``."""

    drawn: Indices | None = None

    def epoch(self, seed: int | None, epoch: int, start: int) -> EpochTickets:
        ### BEGIN YOUR SOLUTION [epoch-batches]
        self.drawn = self.sampler.order()
        parts = self.split(self.drawn)

        def tickets(place: int) -> Iterator[Ticket]:
            return (Ticket(i, seed, epoch, parts[i]) for i in range(place, len(parts)))

        return EpochTickets(tickets, start)
        ### END YOUR SOLUTION


class ListOrder(EpochOrder):
    """Batches from any iterable of index lists; a later start skips the preceding lists."""

    def __init__(self, batch_sampler: Iterable[Sequence[int]]) -> None:
        self.batch_sampler, self.restarts = batch_sampler, Restarts()

    def epoch(self, seed: int | None, epoch: int, start: int) -> EpochTickets:
        set_epoch(self.batch_sampler, epoch)
        batches: list[Iterator[Sequence[int]]] = [self._batches()]

        def tickets(place: int) -> Iterator[Ticket]:
            if not batches:
                raise RuntimeError(
                    "DataLoader: the sampler was interrupted, so its order cannot be continued; "
                    "begin a new epoch"
                )
            return (
                Ticket(place, seed, epoch, flat_ints("DataLoader", batch).astype(np.int64))
                for place, batch in islice(enumerate(batches.pop()), place, None)
            )

        return EpochTickets(tickets, start)

    def _batches(self) -> Iterator[Sequence[int]]:
        whole: Any = self.batch_sampler
        if type(whole) is not BatchSampler:
            return self.restarts.values(whole)
        whole = copy.copy(whole)
        whole.sampler = self.restarts.values(whole.sampler)
        return iter(whole)

    def __len__(self) -> int:
        return len(self.batch_sampler)  # type: ignore[arg-type]


class StreamOrder(EpochOrder):
    """The batches of a stream: each cycle has one from every shard that has not ended."""

    def __init__(self, shards: int, batch_size: int, drop_last: bool) -> None:
        self.shards, self.batch_size, self.drop_last = shards, batch_size, drop_last

    def epoch(self, seed: int | None, epoch: int, start: int) -> EpochTickets:
        return _StreamTickets(self, seed, epoch, start)

    def __len__(self) -> int:
        raise TypeError(
            "DataLoader: the number of batches of a stream is not known before it has been read; "
            "count them, or give tqdm total="
        )


class _StreamTickets(EpochTickets):
    """The tickets of a stream, except those of shards that have ended."""

    def __init__(self, order: StreamOrder, seed: int | None, epoch: int, start: int) -> None:
        self.order = order
        self.left = set(range(order.shards))
        super().__init__(partial(self._each, seed, epoch), start)

    def _each(self, seed: int | None, epoch: int, start: int) -> Iterator[Ticket]:
        shards, size = self.order.shards, self.order.batch_size
        place = start
        while self.left:
            cycle, shard = divmod(place, shards)
            if shard in self.left:
                yield Ticket(place, seed, epoch, shard=shard, start=cycle * size, size=size)
            place += 1

    def answered(self, ticket: Ticket, samples: int) -> bool:
        if samples < ticket.size:
            self.left.discard(ticket.shard)
        return samples == ticket.size or (samples > 0 and not self.order.drop_last)


def find_order(
    sampler: Any, batch_sampler: Any, batch_size: int, drop_last: bool
) -> PositionOrder | ListOrder:
    """Return the order of a map dataset's batches, in the fastest form that the samplers allow."""
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        check_again("DataLoader", name, given)
    if type(batch_sampler) is BatchSampler:
        sampler = batch_sampler.sampler
        batch_size = check_batch_size("BatchSampler", batch_sampler.batch_size)
        batch_sampler, drop_last = None, batch_sampler.drop_last
    if batch_sampler is not None:
        return ListOrder(batch_sampler)
    if isinstance(sampler, (list, np.ndarray)):
        return PositionOrder(_ListSampler(sampler), batch_size, drop_last)
    if _agrees_with_iter(sampler, "positions") and sampler.positions(0, 0) is not None:
        return PositionOrder(sampler, batch_size, drop_last)
    if not getattr(sampler, "repeatable", True) and _agrees_with_iter(sampler, "order"):
        return DrawnOrder(sampler, batch_size, drop_last)
    return ListOrder(BatchSampler(sampler, batch_size, drop_last))


def _agrees_with_iter(sampler: Any, method: str) -> bool:
    """Return True if the class has ``method`` and no subclass has overridden ``__iter__`` since."""
    homes = [
        next((i for i, kind in enumerate(type(sampler).__mro__) if name in vars(kind)), None)
        for name in (method, "__iter__")
    ]
    return homes[0] is not None and homes[1] is not None and homes[0] <= homes[1]


class _ListSampler(Sampler):
    """A sampler of the indices in a list."""

    def __init__(self, indices: Any) -> None:
        self.indices = indices

    def positions(self, start: int, stop: int) -> Indices:
        return flat_ints("DataLoader", self.indices[start:stop])

    def __len__(self) -> int:
        return len(self.indices)
