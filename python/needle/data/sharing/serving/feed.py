"""What tasks that share prepared samples have in common: draws, readings, samples in memory.

A feed is one data set after one list of shared transforms. It never waits: the server calls
``step`` whenever something may have happened. Tasks are task.py's, the socket is server.py's.
"""

from __future__ import annotations

from collections import deque
from itertools import compress, count
from typing import Any

import numpy as np

from ...batching.pipeline import Pipeline
from ...datasets.decode_size import decoded_at
from ...samples.pytree import Structure, columns, count_leaves, describe
from ...samples.ticket import Ticket
from ...workers.engine import Completed, Engine
from ..planner import Planner
from ..wire.records import KINDS, Record, record_of
from ..wire.shared_transforms import build
from .arena import Arena
from .readers import Readers
from .sample import Sample
from .sample_cache import SampleCache
from .spill import SpillFile
from .task import Task

SLICE_SECONDS = 40e-3
"""How long a worker should take for its part of a chunk: long beside the asking, short enough that
the first samples of a batch need not wait for the last ones of the next."""
MOST_SLICE, FIRST_SLICE = 64, 4
PARTS = 4
"""So many chunks at least are what a task may be ahead, lest it waits for a whole one."""
ROUNDS = 64
"""Draws are made so many at a time, at most."""


class Feed:
    """``dataset`` after ``shared`` transforms (a description), for any number of tasks.

    prepared: the transforms draw, so a sample is given to one task only once. budget: bytes of
    prepared samples kept beyond those in use; spill: of those kept in a file beyond that. policy,
    seed: the planner's.
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
        spill: int = 0,
        policy: str = "coupled",
        seed: int = 0,
    ) -> None:
        dataset = decoded_at(dataset, decode_at)
        self.dataset, self.prepared, self.seed = dataset, prepared, seed
        pipeline = Pipeline(dataset, build(shared), uneven=True)
        self.planner = Planner(policy, seed=seed)
        self._spill = SpillFile(spill) if spill and not prepared else None
        self._spilled: dict[int, Sample] = {}  # of each index what the file may have
        self.arena = Arena(budget)
        self.tasks: dict[str, Task] = {}
        self.records: list[Record] = []
        self.reads = self.delivered = 0
        self._numbers: dict[Record, int] = {}
        self._cache: SampleCache[int, Sample] = SampleCache(
            budget,
            need=self._need,
            pool_bytes=0 if prepared else budget,
            held_apart=True,
            on_evict=self._evicted,
            spill=self._spill,
            to_bytes=self._block,
        )
        self._serials = count()
        self._samples = count()
        self._current: dict[int, Sample] = {}  # of each index the one to give out
        self._indices: dict[int, int] = {}  # of the samples in the cache, by number
        self._queue: deque[Sample] = deque()
        self._asked: dict[int, list[Sample]] = {}
        self._tree: Any = None
        self._sample_seconds = 0.0
        self.readers = Readers(pipeline, workers)

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

    def trim(self) -> None:
        """Gives memory that is not used back to the system."""
        self.arena.trim()

    def release(self, sample: Sample) -> None:
        """A task looks at it no more."""
        if sample.cached:
            self._cache.release(sample.number)
        else:
            sample.holders -= 1

    def statistics(self) -> dict[str, int]:
        """The cache's counts, readings and memory."""
        counts = self._cache.statistics()
        return {**counts, "reads": self.reads, "committed": self.arena.committed}

    def close(self) -> None:
        """Ends the workers and gives memory and disk back."""
        self.readers.close()
        self.arena.close()
        if self._spill is not None:
            self._spill.close()

    # ---- what happens between two waits

    def step(self) -> bool:
        """Takes in what was read, draws and asks for more; whether there is work to go on with.

        Raises what the workers cannot work for.
        """
        engine = self.readers.engine
        if engine is None:  # tasks that come meanwhile begin together
            return False
        self._collect(engine)
        self._ask(engine)
        while self._draw():
            self._ask(engine)
        return self.readers.inline and bool(self._asked)

    def _draw(self) -> bool:
        """A few rounds for all tasks that have room, if one of them would run short.

        As late as the readers allow: the longer a draw can wait, the more tasks have room and
        share it. False where nothing was drawn.
        """
        wanted = self._chunk_size() - len(self._queue)
        if wanted <= 0 or not any(task.urgent for task in self.tasks.values()):
            return False
        active = [task for task in self.tasks.values() if task.room > 0]
        rounds = min(ROUNDS, wanted, *(task.room for task in active))
        for row in self.planner.rounds([task.name for task in active], rounds):
            for index, names in row:
                self._assign(index, names)
        return True

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

    def _ask(self, engine: Engine) -> None:
        while self._queue and len(self._asked) < engine.capacity:
            chunk = self._chunk()
            if not chunk:
                return
            serial = next(self._serials)
            indices = np.array([sample.index for sample in chunk], np.int64)
            epoch = serial if self.prepared else 0
            self._asked[serial] = chunk
            engine.submit(Ticket(serial, self.seed, epoch, indices, serial))

    def _chunk_size(self) -> int:
        """A power of two a reader, so that slots for chunks seldom grow."""
        size = FIRST_SLICE
        if self._sample_seconds:
            size = min(MOST_SLICE, int(SLICE_SECONDS / self._sample_seconds))
        ahead = max((task.ahead for task in self.tasks.values()), default=0)
        size = max(1, min(size, ahead // (PARTS * self.readers.count)))
        return (1 << size.bit_length() - 1) * self.readers.count

    def _chunk(self) -> list[Sample]:
        size = self._chunk_size()
        chunk: list[Sample] = []
        while self._queue and len(chunk) < size:
            if self._queue[0].alone and chunk:
                break
            sample = self._queue.popleft()
            if not sample.holders:  # who wanted it has gone
                self._forget(sample)
                continue
            if self._recalled(sample):
                continue
            chunk.append(sample)
            if sample.alone:
                break
        return chunk

    def _recalled(self, sample: Sample) -> bool:
        """Whether an earlier preparation of it was in the spill file, and is its block now."""
        old = self._spilled.pop(sample.index, None)
        data = None if old is None else self._cache.recall(old.number)
        if old is None or data is None:
            return False
        if self._keep(sample, old.record, old.nbytes):
            end = sample.offset + sample.nbytes
            self.arena.memory.buffer[sample.offset : end] = data
        return True

    def _collect(self, engine: Engine) -> None:
        while self._asked and (answer := engine.take()) is not None:
            chunk = self._asked.pop(answer.ticket.serial)
            self.reads += len(chunk)
            if answer.error is None:
                self._arrived(chunk, answer)
            elif len(chunk) == 1:
                self._failed(chunk[0], answer.error)
            else:  # which of them it was, and the others: one by one
                for sample in reversed(chunk):
                    sample.alone = True
                    self._queue.appendleft(sample)
            if self.readers.inline:
                return

    def _arrived(self, chunk: list[Sample], answer: Completed) -> None:
        now, before = sum(answer.seconds.values()) / len(chunk), self._sample_seconds
        self._sample_seconds = min(now, 1.05 * before) if before else now  # others run here too
        try:
            leaves = self._leaves(chunk, answer.batch)
            if all(isinstance(leaf, np.ndarray) and leaf.dtype.kind in KINDS for leaf in leaves):
                self._store(chunk, leaves)
                return
        except Exception as error:
            for sample in chunk:
                self._failed(sample, error)
            return
        for i, sample in enumerate(chunk):  # images of many sizes, texts
            try:
                self._store([sample], [_row(leaf[i]) for leaf in leaves])
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
            leaves = [list(compress(leaf, kept)) for leaf in leaves]
        offsets = np.array([sample.offset for sample, stays in zip(chunk, kept) if stays], np.int64)
        record.write(self.arena.memory.buffer, offsets, leaves)

    def _keep(self, sample: Sample, record: int, nbytes: int) -> bool:
        """Gives the sample a block; False where nobody wants it any more and there is no room."""
        sample.record, sample.nbytes = record, nbytes
        self._indices[sample.number] = sample.index
        if not self._cache.put(sample.number, sample, nbytes, holders=sample.holders):
            self._evicted(sample.number, sample)
        sample.cached = sample.number in self._cache  # it may have left at once
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
        if self._spill is not None and number in self._spill:
            self._spilled[sample.index] = sample
        if sample.offset >= 0:
            self.arena.free(sample.offset, sample.nbytes)
            sample.offset = -1

    def _block(self, sample: Sample) -> memoryview:
        return memoryview(self.arena.memory.buffer)[sample.offset : sample.offset + sample.nbytes]


def _row(leaf: Any) -> Any:
    """One row of a column with one sample."""
    return [leaf] if isinstance(leaf, (str, bytes)) else np.asarray(leaf)[None]
