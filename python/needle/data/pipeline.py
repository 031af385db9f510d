"""What is done for a slice of a batch: read, transform, collate; the same in every engine.

``Pipeline`` is a picklable value. Engines call ``prepare`` with a request and the rows of it that
they want, and hand over the places to write to; which thread or process that is, and how slices
are put together (structure.concatenate), is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from .collate import collate_slice, default_collate, place
from .engines.base import Request
from .random_source import keyed
from .stages import Clock
from .structure import Field as Field
from .structure import Slice as Slice
from .structure import flatten, rebuild, tag_sample

Array = npt.NDArray[Any]
Progress = Callable[[int], None]


class Pipeline:
    """How samples of ``dataset`` become (part of) a batch.

    transforms: a Compose for each sample's first field, or for a sample that is no tuple or list.
    collate: from a list of samples to a batch; None or ``default_collate`` lets a batch be made
    in slices. on_error: "skip" leaves out and counts the samples whose reading raises DataError.
    """

    def __init__(
        self,
        dataset: Any,
        transforms: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        *,
        augment: str = "worker",
        on_error: str = "raise",
    ) -> None:
        self.dataset, self.transforms = dataset, transforms
        self.collate = default_collate if collate is None else collate
        self.augment, self.skip = augment, on_error == "skip"
        self.stream = not hasattr(dataset, "__getitem__")
        self._open: dict[int, _OpenShard] = {}

    @property
    def splits(self) -> bool:
        """Whether a batch may be made by slices of it: a map dataset and the default collate."""
        return self.collate is default_collate and not self.stream

    def layout(self) -> list[Field] | None:
        """The array leaves of a batch, where they are known before one is read."""
        return None

    def explain(self) -> str:
        """In words, what runs where and why."""
        return "transforms: Python, sample by sample"

    def prepare(
        self,
        request: Request,
        rows: slice = slice(None),
        clock: Clock | None = None,
        out: Sequence[Array] | None = None,
        threads: int = 0,
        progress: Progress | None = None,
        reseed: bool = False,
    ) -> Slice:
        """The samples ``request.indices[rows]`` (of a stream: all the request's), prepared.

        out: for each array leaf the rows to write it to; a leaf of another shape or dtype comes
        back as an array of its own. threads: for the native kernels, 0 all, 1 this one alone.
        progress: called with an index before the sample is read. reseed: the global generators
        of ``random`` and NumPy are seeded for each sample, which worker processes want. An
        error of one sample leaves with its index noted (``structure.tagged_sample``).
        """
        clock = Clock() if clock is None else clock
        with clock.active():
            return self._prepare(request, rows, clock, out, progress)

    def _prepare(
        self,
        request: Request,
        rows: slice,
        clock: Clock,
        out: Sequence[Array] | None,
        progress: Progress | None,
    ) -> Slice:
        first = rows.start or 0
        if request.indices is None:
            samples, skipped = self._read_stream(request, clock, progress)
            return self._collate(samples, skipped, 0, clock, out)
        indices = request.indices[rows]
        batch = self._fetch(indices, clock)
        if batch is not None:
            return _placed(batch, len(indices), out)
        samples, skipped = self._read_samples(request, indices, clock, progress)
        return self._collate(samples, skipped, first, clock, out)

    def _fetch(self, indices: npt.NDArray[np.int64], clock: Clock) -> Any | None:
        fetch = getattr(self.dataset, "fetch", None)
        if fetch is None or not self.splits or self.transforms is not None:
            return None
        with clock.measure("read"):
            return fetch(indices)

    def _read_samples(
        self,
        request: Request,
        indices: npt.NDArray[np.int64],
        clock: Clock,
        progress: Progress | None,
    ) -> tuple[list[Any], int]:
        samples, skipped = [], 0
        for index in indices.tolist():
            if progress is not None:
                progress(index)
            try:
                with _keyed(request, index):
                    sample = self._read(index, clock)
                    if sample is _UNREADABLE:
                        skipped += 1
                        continue
                    samples.append(self._transformed(sample, clock))
            except Exception as error:
                tag_sample(error, index)
                raise
        return samples, skipped

    def _read(self, index: int, clock: Clock) -> Any:
        try:
            with clock.measure("read"):
                return self.dataset[index]
        except DataError:
            if self.skip:
                return _UNREADABLE
            raise

    def _transformed(self, sample: Any, clock: Clock) -> Any:
        if self.transforms is None:
            return sample
        with clock.measure("augment"):
            if isinstance(sample, (tuple, list)):
                return rebuild(sample, [self.transforms(sample[0]), *sample[1:]])
            return self.transforms(sample)

    def _collate(
        self,
        samples: list[Any],
        skipped: int,
        first: int,
        clock: Clock,
        out: Sequence[Array] | None,
    ) -> Slice:
        if not samples:
            return Slice(None, [], 0, skipped=skipped)
        with clock.measure("collate"):
            if self.collate is default_collate:
                part = collate_slice(samples, out, first)
            else:
                part = _placed(self.collate(samples), len(samples), out)
        part.skipped = skipped
        return part

    def _read_stream(
        self, request: Request, clock: Clock, progress: Progress | None
    ) -> tuple[list[Any], int]:
        """Up to ``count`` samples of a shard; it stays open, since the next request follows on."""
        shard = self._open.get(request.shard)
        if shard is None or (shard.epoch, shard.place) != (request.epoch, request.start):
            shard = _OpenShard(self.dataset, request.shard, request.epoch, request.start)
            self._open[request.shard] = shard
        samples: list[Any] = []
        while len(samples) < request.count:
            index = shard.place
            if progress is not None:
                progress(index)
            try:
                with _keyed(request, (request.shard << 40) + index):
                    with clock.measure("read"):
                        sample = shard.next()
                    if sample is _END:
                        break
                    samples.append(self._transformed(sample, clock))
            except Exception as error:
                self._open.pop(request.shard, None)
                tag_sample(error, index)
                raise
        return samples, 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


_UNREADABLE, _END = object(), object()


class _OpenShard:
    """A shard of a stream, and how far it has been read."""

    def __init__(self, dataset: Any, shard: int, epoch: int, start: int) -> None:
        self.epoch, self.place = epoch, start
        self._samples = open_shard(dataset, shard, epoch, start)

    def next(self) -> Any:
        sample = next(self._samples, _END)
        if sample is not _END:
            self.place += 1
        return sample


def open_shard(dataset: Any, shard: int, epoch: int, start: int) -> Iterator[Any]:
    """The samples of one shard from ``start`` on; a plain iterable is one shard."""
    read = getattr(dataset, "iter_shard", None)
    if read is not None:
        return iter(read(shard, epoch, start))
    return islice(iter(dataset), start, None)


def _keyed(request: Request, index: int) -> AbstractContextManager[Any]:
    if request.seed is None:
        return nullcontext()
    return keyed(request.seed, request.epoch, index)


def _placed(batch: Any, samples: int, out: Sequence[Array] | None) -> Slice:
    """A finished batch as a Slice, its arrays copied to ``out`` where they fit."""
    structure, leaves = flatten(batch)
    placed = []
    for i, leaf in enumerate(leaves):
        rows = None if out is None or i >= len(out) else out[i]
        if rows is not None and isinstance(leaf, np.ndarray):
            leaves[i] = place(leaf, rows)
        placed.append(rows is not None and leaves[i] is rows)
    return Slice(structure, leaves, samples, tuple(placed))
