"""Fetch samples one at a time: from a map dataset by index, from a stream in order.

Random numbers are keyed by sample, an error is tagged with the index of its sample, and unreadable
samples are skipped if on_error="skip". pipeline.py calls this file, then transforms and collates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from ...errors import DataError
from ..datasets.dataset import reader_of
from ..datasets.stream import only_shard
from ..samples.pytree import first_field, tag_sample
from ..samples.random_source import PART_STREAM, keyed, reseed_globals
from ..samples.ticket import SHARD_SAMPLES, Ticket
from ..samples.timing import Clock
from ..sampling.restarts import Restarts

Progress = Callable[[int], None]
"""A function called with the index of a sample before it is read; it may raise ``Withdrawn``."""

GROUP_BYTES = 1 << 23
"""Bytes of first fields after which a group is passed on, while it is still in the cache."""


class Withdrawn(BaseException):
    """Raised in a worker to stop a part; it is a BaseException so that no data set catches it."""


@dataclass
class Samples:
    """The samples of a read, and their indices."""

    samples: list[Any] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)


class Reader:
    """A reader of ``dataset``. skip: skip and count samples that raise DataError."""

    def __init__(self, dataset: Any, skip: bool) -> None:
        self.dataset, self.skip = dataset, skip
        self.is_stream = not hasattr(dataset, "__getitem__")
        self.may_draw = may_draw(dataset)
        self._open: dict[int, _OpenShard] = {}
        self.restarts = Restarts()

    def read(
        self,
        ticket: Ticket,
        clock: Clock,
        progress: Progress | None = None,
        between: Callable[[Any], Any] | None = None,
    ) -> Iterator[Samples]:
        """Yield the samples of the ticket in groups.

        between: a function applied to each sample before the next one is read.
        """
        group, size = Samples(), 0
        for index, read in self._each(ticket):
            if progress is not None:
                progress(index)
            try:
                with self._keyed(ticket, index):
                    sample = self._one(read, clock)
                    if sample is _END:
                        break
                    if sample is _UNREADABLE:
                        continue
                    if between is not None:
                        with clock.measure("augment"):
                            sample = between(sample)
            except BaseException as error:
                self._open.pop(ticket.shard, None)
                tag_sample(error, index)
                if isinstance(error, StopIteration):  # StopIteration would end this generator
                    raise RuntimeError(f"DataLoader: sample {index} raised {error!r}") from error
                raise
            group.samples.append(sample)
            group.indices.append(index)
            size += getattr(first_field(sample), "nbytes", 0)
            if size >= GROUP_BYTES:
                yield group
                group, size = Samples(), 0
        if group.samples:
            yield group

    def _each(self, ticket: Ticket) -> Iterator[tuple[int, Callable[[], Any]]]:
        if not ticket.is_stream:
            read = reader_of(self.dataset)
            for index in ticket.indices.tolist():
                yield index, partial(read, index)
            return
        shard = self._shard(ticket)
        for _ in range(ticket.size):
            yield shard.number * SHARD_SAMPLES + shard.place, shard.next

    def _keyed(self, ticket: Ticket, index: int) -> AbstractContextManager[Any]:
        if ticket.seed is None:
            return nullcontext()
        if self.may_draw:
            reseed_globals(ticket.seed, ticket.epoch, index)
        return keyed(ticket.seed, ticket.epoch, index)

    def _one(self, read: Callable[[], Any], clock: Clock) -> Any:
        try:
            with clock.measure("read"):
                return read()
        except DataError:
            if self.skip and not self.is_stream:  # a stream that has raised an error has ended
                return _UNREADABLE
            raise

    def _shard(self, ticket: Ticket) -> _OpenShard:
        """Return the ticket's shard, which stays open for the shard's next ticket."""
        shard = self._open.get(ticket.shard)
        if shard is None or not shard.continues_at(ticket.epoch, ticket.start):
            number = int(getattr(self.dataset, "shard_number", int)(ticket.shard))
            if self.may_draw and ticket.seed is not None:
                # not ``start``, so that a resumed shard is opened in the same way
                first = number * SHARD_SAMPLES
                reseed_globals(ticket.seed, ticket.epoch, first, PART_STREAM)
            shard = _OpenShard(self, number, ticket)
            self._open[ticket.shard] = shard
        return shard

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


class _OpenShard:
    """An open shard of a stream and the position of its next sample."""

    def __init__(self, reader: Reader, number: int, ticket: Ticket) -> None:
        shard, epoch, start = ticket.shard, ticket.epoch, ticket.start
        self.epoch, self.place, self.number = epoch, start, number
        whole = only_shard(reader.dataset)
        if whole is not None:
            self._samples: Iterator[Any] = islice(reader.restarts.values(whole), start, None)
        else:
            self._samples = iter(reader.dataset.iter_shard(shard, epoch, start))
        self._ended = False

    def continues_at(self, epoch: int, start: int) -> bool:
        """Return True if the next sample is number ``start``, or if the shard ended before it."""
        return self.epoch == epoch and (self.place == start or (self._ended and start > self.place))

    def next(self) -> Any:
        sample = next(self._samples, _END)
        if sample is _END:
            self._ended = True
        else:
            self.place += 1
        return sample


def may_draw(dataset: Any) -> bool:
    """Return True if reading a sample may draw from the global generators of ``random`` and NumPy.

    Classes of this package never do. Knowing this avoids seeding the generators, which takes as
    long as reading a simple sample.
    """
    inner = [getattr(dataset, "dataset", None), *getattr(dataset, "datasets", ())]
    return (
        not _is_own(dataset)
        or any(may_draw(each) for each in inner if each is not None)
        or any(_may_draw(each) for each in getattr(dataset, "transforms", None) or ())
    )


def _may_draw(transform: Any) -> bool:
    return not _is_own(transform) or any(map(_may_draw, getattr(transform, "transforms", ())))


def _is_own(value: Any) -> bool:
    return type(value).__module__.startswith("needle.data.")


_UNREADABLE, _END = object(), object()
