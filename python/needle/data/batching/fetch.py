"""Reading samples one by one: of a map dataset by index, of a stream in order.

Around each sample its random numbers are keyed, errors are noted with its index, and unreadable
ones left out where that is asked for. Transforms and collating are pipeline.py's, which calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ..samples.pytree import first_field, tag_sample
from ..samples.random_source import keyed
from ..samples.timing import Clock
from ..transforms.execute import reseed_globals
from ..workers.engine import Request

Progress = Callable[[int], None]

GROUP_BYTES = 1 << 23
"""Samples are handed on when the arrays that they begin with have so many bytes: they are still in
the cache then, and their memory is soon free for those that follow."""
SHARD_SAMPLES = 2**40
"""Sample i of shard s of a stream has the random numbers of the index ``s * 2**40 + i``."""


@dataclass
class Samples:
    """Samples that were read, their indices int64 ``(n,)``, and how many were left out."""

    samples: list[Any] = field(default_factory=list)
    indices: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    skipped: int = 0

    def extend(self, more: Samples) -> None:
        """Adds those that were read after these."""
        self.samples += more.samples
        self.indices = np.concatenate([self.indices, more.indices])
        self.skipped += more.skipped


class Reader:
    """Reads ``dataset``; skip: samples that raise DataError are left out and counted."""

    def __init__(self, dataset: Any, skip: bool) -> None:
        self.dataset, self.skip = dataset, skip
        self.is_stream = not hasattr(dataset, "__getitem__")
        self.may_draw = may_draw(dataset)
        self._open: dict[int, _OpenShard] = {}

    def read(
        self,
        request: Request,
        clock: Clock,
        rows: slice = slice(None),
        progress: Progress | None = None,
        reseed: bool = False,
        between: Callable[[Any], Any] | None = None,
    ) -> Iterator[Samples]:
        """The samples of these rows of the request (of a stream: all of it), group by group.

        between: what becomes of a sample before the next one is read.
        """
        samples: list[Any] = []
        kept: list[int] = []
        skipped = size = 0
        for index, read in self._each(request, rows):
            if progress is not None:
                progress(index)
            try:
                with _keyed(request, index, reseed and self.may_draw):
                    sample = self._one(read, clock)
                    if sample is _END:
                        break
                    if sample is _UNREADABLE:
                        skipped += 1
                        continue
                    if between is not None:
                        with clock.measure("augment"):
                            sample = between(sample)
            except Exception as error:
                self._open.pop(request.shard, None)
                tag_sample(error, index)
                raise
            samples.append(sample)
            kept.append(index)
            size += getattr(first_field(sample), "nbytes", 0)
            if size >= GROUP_BYTES:
                yield Samples(samples, np.array(kept, np.int64), skipped)
                samples, kept, skipped, size = [], [], 0, 0
        if samples or skipped:
            yield Samples(samples, np.array(kept, np.int64), skipped)

    def _each(self, request: Request, rows: slice) -> Iterator[tuple[int, Callable[[], Any]]]:
        if request.indices is not None:
            for index in request.indices[rows].tolist():
                yield index, partial(self.dataset.__getitem__, index)
            return
        shard = self._shard(request)
        for _ in range(request.count):
            yield shard.number * SHARD_SAMPLES + shard.place, shard.next

    def _one(self, read: Callable[[], Any], clock: Clock) -> Any:
        try:
            with clock.measure("read"):
                return read()
        except DataError:
            if self.skip and not self.is_stream:  # a stream that has raised has ended
                return _UNREADABLE
            raise

    def _shard(self, request: Request) -> _OpenShard:
        """The shard of the request; it stays open, since the next request goes on with it."""
        shard = self._open.get(request.shard)
        if shard is None or not shard.goes_on_at(request.epoch, request.start):
            shard = _OpenShard(self.dataset, request.shard, request.epoch, request.start)
            self._open[request.shard] = shard
        return shard

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


class _OpenShard:
    """A shard of a stream, and how far it has been read."""

    def __init__(self, dataset: Any, shard: int, epoch: int, start: int) -> None:
        self.epoch, self.place = epoch, start
        self.number = int(getattr(dataset, "shard_number", int)(shard))
        read = getattr(dataset, "iter_shard", None)
        if read is None:  # any iterable is one shard
            self._samples: Iterator[Any] = islice(iter(dataset), start, None)
        else:
            self._samples = iter(read(shard, epoch, start))

        self._ended = False

    def goes_on_at(self, epoch: int, start: int) -> bool:
        """Whether its next sample is number ``start``, or there is none from there on."""
        return self.epoch == epoch and (self.place == start or (self._ended and start > self.place))

    def next(self) -> Any:
        sample = next(self._samples, _END)
        if sample is _END:
            self._ended = True
        else:
            self.place += 1
        return sample


def may_draw(dataset: Any) -> bool:
    """Whether making a sample may draw from the global generators of ``random`` and NumPy.

    What this package defines does not; seeding them for each sample takes as long as reading some.
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


def _keyed(request: Request, index: int, reseed: bool) -> AbstractContextManager[Any]:
    if request.seed is None:
        return nullcontext()
    if reseed:
        reseed_globals(request.seed, request.epoch, index, 0)
    return keyed(request.seed, request.epoch, index)
