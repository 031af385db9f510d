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
from ..structure import columns, describe
from .arena import Arena
from .cache import SampleCache
from .planner import Planner
from .records import Record, record_of
from .sample import Sample
from .shared_transforms import build
from .task import Task

CHUNK_BYTES = 4 << 20
"""How much is asked of the workers at once, about."""
MOST_CHUNK = 256
FIRST_CHUNK = 8
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
        self.inline = name == "inline"
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
        self._mean_bytes = 0.0

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
        size = FIRST_CHUNK
        if self._mean_bytes:
            size = max(1, min(MOST_CHUNK, int(CHUNK_BYTES / self._mean_bytes)))
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
        try:
            leaves = self._leaves(chunk, answer.batch)
        except Exception as error:
            for sample in chunk:
                self._failed(sample, error)
            return
        for i, sample in enumerate(chunk):
            try:
                self._store(sample, [leaf[i] for leaf in leaves])
            except Exception as error:
                self._failed(sample, error)

    def _leaves(self, chunk: list[Sample], batch: Any) -> list[Any]:
        """The columns of a chunk; a first field of images of many sizes is a list."""
        if self._tree is None:
            self._tree = describe(self.dataset[chunk[0].index])
        return [column[0] for column in columns([batch], self._tree)]

    def _store(self, sample: Sample, rows: list[Any]) -> None:
        record = record_of(self._tree.tree, [np.asarray(row) for row in rows])
        if record not in self._numbers:
            self._numbers[record] = len(self.records)
            self.records.append(record)
        sample.record, sample.nbytes = self._numbers[record], record.nbytes
        self._mean_bytes = 0.9 * self._mean_bytes + 0.1 * record.nbytes or record.nbytes
        held = self._cache.statistics()["held_bytes"]
        self._cache.limit_bytes = max(self.budget, held + record.nbytes)
        self._indices[sample.number] = sample.index
        if not self._cache.put(sample.number, sample, record.nbytes, holders=sample.holders):
            raise MemoryError("no room for a sample")
        sample.cached = sample.number in self._cache
        if sample.cached:  # nobody may want it any more
            sample.offset = self.arena.allocate(record.nbytes)
            for view, row in zip(record.views(self.arena.memory.buffer, sample.offset), rows):
                view[...] = row

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
