"""What tasks that share prepared samples have in common: draws, readings, samples in memory.

A feed is one data set after one list of shared transforms. It never waits: the server calls
``step`` whenever something may have happened. Tasks are task.py's, the socket is server.py's.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import numpy as np

from ...errors import LoaderTimeout
from ..dataset import in_memory_of
from ..decode_size import decoded_at
from ..engines import make_engine
from ..engines.base import Completed, Engine, Request
from ..pipeline import Pipeline
from ..structure import Structure, columns, count_leaves, describe
from .arena import Arena
from .cache import SampleCache
from .planner import Planner
from .records import Record, record_of
from .sample import Sample
from .shared_transforms import build
from .task import Task

SLICE_SECONDS = 8e-3
"""How long a worker should take for its part of a chunk: long beside the asking, short enough that
the first samples of a batch need not wait for the last ones of the next."""
MOST_SLICE, FIRST_SLICE = 64, 2
ROUNDS = 64
"""Draws are made so many at a time, at most."""


class Feed:
    """``dataset`` after ``shared`` transforms (a description), for any number of tasks.

    prepared: the transforms draw, so a sample is given to one task only once. budget: bytes of
    prepared samples kept beyond those in use. policy, seed: the planner's.
    """

    def __init__(
        self,
        dataset: Any,
        shared: Any,
        decode_at: Any,
        *,
        prepared: bool,
        workers: int,
        budget: int,
        policy: str = "coupled",
        seed: int = 0,
    ) -> None:
        dataset = decoded_at(dataset, decode_at)
        self.dataset, self.prepared, self.seed = dataset, prepared, seed
        pipeline = Pipeline(dataset, build(shared), uneven=True)
        name = "processes" if workers and in_memory_of(dataset) is None else "inline"
        workers = workers if name == "processes" else 0
        self.engine: Engine = make_engine(name, pipeline, workers=workers, prefetch=2)
        self.inline, self.readers = name == "inline", max(1, workers)
        self.planner = Planner(policy, seed=seed)
        self.arena = Arena(budget)
        self.budget = budget
        self.tasks: dict[str, Task] = {}
        self.records: list[Record] = []
        self.reads = self.delivered = 0
        self._numbers: dict[Record, int] = {}
        self._cache: SampleCache[int, Sample] = SampleCache(
            budget,
            need=self._need,
            pool_bytes=0 if prepared else budget,
            on_evict=self._evicted,
        )
        self._serials = itertools.count()
        self._samples = itertools.count()
        self._current: dict[int, Sample] = {}  # of each index the one to give out
        self._indices: dict[int, int] = {}  # of the samples in the cache, by number
        self._queue: deque[Sample] = deque()
        self._asked: dict[int, list[Sample]] = {}
        self._tree: Any = None
        self._sample_seconds = 0.0

    # ---- tasks come, begin epochs and go

    def join(self, task: Task) -> None:
        """A task begins its epoch: ``task.left`` of its indices are to come."""
        self.tasks[task.name] = task
        self.planner.join(task.name, task.indices, epoch=task.epoch, remaining=task.left)
        self._cache.refresh()

    def leave(self, task: Task) -> None:
        """A task is gone, or begins anew: what it held is free."""
        if self.tasks.pop(task.name, None) is None:
            return
        self.planner.leave(task.name)
        for sample in task.drop():
            self.release(sample)
        self._cache.refresh()
        self.arena.trim()

    def release(self, sample: Sample) -> None:
        """A task looks at it no more."""
        if sample.cached:
            self._cache.release(sample.number)
        else:
            sample.holders -= 1

    @property
    def held_bytes(self) -> int:
        """Bytes of samples that some task holds."""
        return self._cache.statistics()["held_bytes"]

    def statistics(self) -> dict[str, int]:
        """The cache's counts, readings and memory."""
        counts = self._cache.statistics()
        return {**counts, "reads": self.reads, "committed": self.arena.committed}

    def close(self) -> None:
        """Ends the workers and gives the memory back."""
        self.engine.close()
        self.arena.close()

    # ---- what happens between two waits

    def step(self) -> bool:
        """Takes in what was read, draws and asks for more; whether there is work to go on with."""
        self._collect()
        self._draw()
        self._ask()
        return self.inline and bool(self._asked)

    def _draw(self) -> None:
        """Rounds for all tasks that have room, as long as one of them would run short."""
        while any(task.urgent for task in self.tasks.values()):
            active = [task for task in self.tasks.values() if task.room > 0]
            count = min(ROUNDS, *(task.room for task in active))
            for row in self.planner.rounds([task.name for task in active], count):
                for index, names in row:
                    self._assign(index, names)

    def _assign(self, index: int, names: tuple[str, ...]) -> None:
        sample = self._current.get(index)
        fresh = sample is None or (self.prepared and not sample.takers.isdisjoint(names))
        if sample is None or fresh:
            sample = self._current[index] = Sample(next(self._samples), index)
            self._queue.append(sample)
        for name in names:
            if sample.cached:
                self._cache.hold(sample.number)
            else:
                sample.holders += 1
            if self.prepared:
                sample.takers.add(name)
            self.tasks[name].take(sample, hit=not fresh)
            fresh = False

    # ---- readings

    def _ask(self) -> None:
        while self._queue and len(self._asked) < self.engine.capacity:
            chunk = self._chunk()
            if not chunk:
                return
            serial = next(self._serials)
            indices = np.array([sample.index for sample in chunk], np.int64)
            epoch = serial if self.prepared else 0
            self._asked[serial] = chunk
            self.engine.submit(Request(serial, self.seed, epoch, indices))

    def _chunk(self) -> list[Sample]:
        size = FIRST_SLICE
        if self._sample_seconds:
            size = max(1, min(MOST_SLICE, int(SLICE_SECONDS / self._sample_seconds)))
        size *= self.readers
        chunk: list[Sample] = []
        while self._queue and len(chunk) < size:
            if self._queue[0].alone and chunk:
                break
            sample = self._queue.popleft()
            if not sample.holders:  # who wanted it has gone
                self._forget(sample)
                continue
            chunk.append(sample)
            if sample.alone:
                break
        return chunk

    def _collect(self) -> None:
        while self._asked:
            try:
                answer = self.engine.collect(0)
            except LoaderTimeout:
                return
            chunk = self._asked.pop(answer.serial)
            self.reads += len(chunk)
            if answer.error is None:
                self._arrived(chunk, answer)
            elif len(chunk) == 1:
                self._failed(chunk[0], answer.error)
            else:  # which of them it was, and the others: one by one
                for sample in reversed(chunk):
                    sample.alone = True
                    self._queue.appendleft(sample)
            if self.inline:
                return

    def _arrived(self, chunk: list[Sample], answer: Completed) -> None:
        now = sum(answer.seconds.values()) / len(chunk)
        self._sample_seconds = (
            0.9 * self._sample_seconds + 0.1 * now if self._sample_seconds else now
        )
        try:
            leaves = self._leaves(chunk, answer.batch)
            if all(isinstance(leaf, np.ndarray) for leaf in leaves):
                self._store(chunk, leaves)
                return
        except Exception as error:
            for sample in chunk:
                self._failed(sample, error)
            return
        for i, sample in enumerate(chunk):  # images of many sizes
            try:
                self._store([sample], [np.asarray(leaf[i])[None] for leaf in leaves])
            except Exception as error:
                self._failed(sample, error)

    def _leaves(self, chunk: list[Sample], batch: Any) -> list[Any]:
        """The columns of a chunk; a first field of images of many sizes is a list."""
        if self._tree is None:
            self._tree = describe(self.dataset[chunk[0].index]).tree
        known = Structure(self._tree, ("array",) * count_leaves(self._tree))
        return [column[0] for column in columns([batch], known)]

    def _store(self, chunk: list[Sample], leaves: list[Any]) -> None:
        """Puts samples of one kind into blocks; ``leaves`` have them as rows."""
        record = record_of(self._tree, [leaf[0] for leaf in leaves])
        number = self._numbers.get(record)
        if number is None:
            number = self._numbers[record] = len(self.records)
            self.records.append(record)
        kept = [self._keep(sample, number, record.nbytes) for sample in chunk]
        if not all(kept):
            leaves = [leaf[kept] for leaf in leaves]
        offsets = np.array([sample.offset for sample, stays in zip(chunk, kept) if stays], np.int64)
        record.write(self.arena.memory.buffer, offsets, leaves)

    def _keep(self, sample: Sample, record: int, nbytes: int) -> bool:
        """Gives the sample a block; False where nobody wants it any more and there is no room."""
        cache = self._cache
        sample.record, sample.nbytes = record, nbytes
        self._indices[sample.number] = sample.index
        if not cache.put(sample.number, sample, nbytes, holders=sample.holders):
            cache.limit_bytes = max(self.budget, self.held_bytes + nbytes)  # what is in use counts
            cache.put(sample.number, sample, nbytes, holders=sample.holders)
        sample.cached = sample.number in cache
        if sample.cached:
            sample.offset = self.arena.allocate(nbytes)
        return sample.cached

    def _failed(self, sample: Sample, error: BaseException) -> None:
        sample.error = error
        self._forget(sample)

    def _forget(self, sample: Sample) -> None:
        if self._current.get(sample.index) is sample:
            del self._current[sample.index]

    # ---- what the cache asks and tells

    def _need(self, number: int) -> int:
        return self.planner.need(self._indices[number])

    def _evicted(self, number: int, sample: Sample) -> None:
        sample.cached = False
        del self._indices[number]
        self._forget(sample)
        if sample.offset >= 0:
            self.arena.free(sample.offset, sample.nbytes)
            sample.offset = -1
