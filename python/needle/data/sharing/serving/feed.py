"""A feed: what tasks share that get the same prepared samples. Draws, reads, samples in memory.

A feed is one data set with one list of shared transforms. It never waits: the server calls
``step`` whenever something may have happened. Which task gets which index is the planner's
decision; task.py counts credits, readers.py starts the workers, sample_cache.py keeps samples.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import compress, count
from typing import Any

import numpy as np

from ...batching.pipeline import Pipeline
from ...datasets.decode_size import decoded_at
from ...samples.pytree import Structure, columns, count_leaves, describe
from ...samples.ticket import Ticket
from ...transforms.base import Size
from ...workers.engine import Completed, Engine
from ..planner import Planner
from ..wire.descriptions import build
from ..wire.sample_layout import NUMBER_KINDS, SampleLayout, layout_of
from .readers import Readers
from .sample_cache import Arena, SampleCache, SpillFile
from .task import Sample, Task

SLICE_SECONDS = 40e-3
"""Target duration of a worker's part of a chunk: long compared with a submission, short enough that
the first samples of a batch need not wait for the last ones of the next."""
MOST_SLICE, FIRST_SLICE = 64, 4
CHUNKS_AHEAD = 4
"""Minimum read-ahead of a task in chunks; less would make it wait for a whole chunk."""
ROUNDS = 64
"""Most rounds that are drawn at a time."""


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server.

    workers: processes that read, for each kind of prepared samples; 0 reads in the server itself,
    which is enough for samples in memory. budget: bytes of prepared samples kept beyond those in
    use. beat: seconds between heartbeats. until_last: the server ends with its last task, or if no
    task comes. policy, seed: of the planner. spill: bytes of samples that an epoch still needs,
    kept in a nameless file beyond the budget.
    """

    workers: int = 2
    budget: int = 1 << 30
    beat: float = 5.0
    until_last: bool = False
    policy: str = "coupled"
    seed: int | None = None
    spill: int = 0


class Feed:
    """``dataset`` after the described ``shared`` transforms, for any number of tasks.

    prepared: the transforms draw random numbers, so a task gets one preparation only once. seed:
    of the planner and of these transforms.
    """

    def __init__(
        self,
        dataset: Any,
        shared: Any,
        decode_at: Size | None,
        prepared: bool,
        options: ServerOptions,
        seed: int,
    ) -> None:
        dataset = decoded_at(dataset, decode_at)
        pipeline = Pipeline(dataset, build(shared), uneven=True)
        budget = options.budget
        self.dataset, self.prepared, self.seed = dataset, prepared, seed
        self.planner = Planner(options.policy, seed=seed)
        self.arena = Arena(budget)
        self.tasks: dict[str, Task] = {}
        self.layouts: list[SampleLayout] = []
        self.reads = self.delivered = 0
        self._spill = SpillFile(options.spill) if options.spill and not prepared else None
        self._spilled: dict[int, Sample] = {}  # by index: what the spill file may have
        self._numbers: dict[SampleLayout, int] = {}
        self._cache: SampleCache[int, Sample] = SampleCache(
            budget,
            need=self._need,
            pool_bytes=0 if prepared else budget,
            on_evict=self._evicted,
            spill=self._spill,
            to_bytes=self._block,
        )
        self._serials, self._samples = count(), count()
        self._current: dict[int, Sample] = {}  # by index: the preparation to hand out
        self._indices: dict[int, int] = {}  # by number: the index of a sample in the cache
        self._queue: deque[Sample] = deque()
        self._submitted: dict[int, list[Sample]] = {}  # chunks by serial
        self._tree: Any = None
        self._sample_seconds = 0.0
        self.readers = Readers(pipeline, options.workers)

    # ---- tasks

    def join(self, task: Task) -> None:
        """Start the epoch of a task, of which ``task.left`` is to be delivered."""
        self.tasks[task.name] = task
        self.planner.join(task.name, task.indices, remaining=task.left)
        self._cache.refresh()

    def leave(self, task: Task) -> None:
        """Release what a task holds that ends or starts another epoch."""
        if self.tasks.pop(task.name, None) is None:
            return
        self.planner.leave(task.name)
        for sample in task.drop():
            self.release(sample)
        self._cache.refresh()

    def release(self, sample: Sample) -> None:
        """Remove a holder of a sample."""
        if sample.cached:
            self._cache.release(sample.number)
        else:
            sample.holders -= 1

    def statistics(self) -> dict[str, int]:
        """Return the counts of the cache, the reads, and the memory."""
        counts = self._cache.statistics()
        return {**counts, "reads": self.reads, "committed": self.arena.committed}

    def close(self) -> None:
        """End the workers and free memory and disk space."""
        self.readers.close()
        self.arena.close()
        if self._spill is not None:
            self._spill.close()

    # ---- draws

    def step(self) -> bool:
        """Collect what was read, draw and submit more; return True if there is more to do.

        Raises the error for which the workers cannot work.
        """
        engine = self.readers.engine
        if engine is None:  # tasks that come in the meantime begin together
            return False
        self._collect(engine)
        self._submit(engine)
        while self._draw():
            self._submit(engine)
        return self.readers.inline and bool(self._submitted)

    def _draw(self) -> bool:
        """Draw rounds for all tasks with room if one is urgent; return False if none were drawn.

        Draws are made as late as the readers allow: then more tasks have room and share a draw.
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

    # ---- reads

    def _submit(self, engine: Engine) -> None:
        while self._queue and len(self._submitted) < engine.capacity:
            chunk = self._chunk()
            if not chunk:
                return
            serial = next(self._serials)
            indices = np.array([sample.index for sample in chunk], np.int64)
            epoch = serial if self.prepared else 0
            self._submitted[serial] = chunk
            engine.submit(Ticket(serial, self.seed, epoch, indices, serial))

    def _chunk_size(self) -> int:
        """Return a power of two for each reader, so that slots for chunks seldom grow."""
        size = FIRST_SLICE
        if self._sample_seconds:
            size = min(MOST_SLICE, int(SLICE_SECONDS / self._sample_seconds))
        ahead = max((task.most_ahead for task in self.tasks.values()), default=0)
        size = max(1, min(size, ahead // (CHUNKS_AHEAD * self.readers.count)))
        return (1 << size.bit_length() - 1) * self.readers.count

    def _chunk(self) -> list[Sample]:
        size = self._chunk_size()
        chunk: list[Sample] = []
        while self._queue and len(chunk) < size:
            if self._queue[0].alone and chunk:
                break
            sample = self._queue.popleft()
            if not sample.holders:  # its tasks have left
                self._forget(sample)
            elif not self._recalled(sample):
                chunk.append(sample)
                if sample.alone:
                    break
        return chunk

    def _recalled(self, sample: Sample) -> bool:
        """Return True if an earlier preparation was in the spill file and is now in memory."""
        old = self._spilled.pop(sample.index, None)
        data = None if old is None else self._cache.recall(old.number)
        if old is None or data is None:
            return False
        if self._keep(sample, old.layout, old.nbytes):
            self._block(sample)[:] = data
        return True

    def _collect(self, engine: Engine) -> None:
        while self._submitted and (answer := engine.take()) is not None:
            chunk = self._submitted.pop(answer.ticket.serial)
            self.reads += len(chunk)
            if answer.error is None:
                self._arrived(chunk, answer)
            elif len(chunk) == 1:
                self._failed(chunk[0], answer.error)
            else:  # read them one by one to find the one that failed
                for sample in reversed(chunk):
                    sample.alone = True
                    self._queue.appendleft(sample)
            if self.readers.inline:
                return

    def _arrived(self, chunk: list[Sample], answer: Completed) -> None:
        now, before = sum(answer.seconds.values()) / len(chunk), self._sample_seconds
        # Other programs may run too, so the estimate rises slowly.
        self._sample_seconds = min(now, 1.05 * before) if before else now
        try:
            leaves = self._leaves(chunk, answer.batch)
            if all(isinstance(x, np.ndarray) and x.dtype.kind in NUMBER_KINDS for x in leaves):
                self._store(chunk, leaves)
                return
        except Exception as error:
            for sample in chunk:
                self._failed(sample, error)
            return
        for i, sample in enumerate(chunk):  # images of several sizes, texts
            try:
                rows = [leaf[i] for leaf in leaves]
                self._store(
                    [sample],
                    [[x] if isinstance(x, (str, bytes)) else np.asarray(x)[None] for x in rows],
                )
            except Exception as error:
                self._failed(sample, error)

    def _leaves(self, chunk: list[Sample], batch: Any) -> list[Any]:
        """Return the columns of a chunk; images of several sizes are a list."""
        if self._tree is None:
            self._tree = describe(self.dataset[chunk[0].index]).tree
        known = Structure(self._tree, ("array",) * count_leaves(self._tree))
        return [column[0] for column in columns([batch], known)]

    def _store(self, chunk: list[Sample], leaves: list[Any]) -> None:
        """Write samples of one layout into blocks; row i of each leaf belongs to sample i."""
        layout = layout_of(self._tree, [leaf[0] for leaf in leaves])
        number = self._numbers.setdefault(layout, len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
        kept = [self._keep(sample, number, layout.nbytes) for sample in chunk]
        if not all(kept):
            leaves = [list(compress(leaf, kept)) for leaf in leaves]
        offsets = np.array([sample.offset for sample in compress(chunk, kept)], np.int64)
        layout.write(self.arena.memory.buffer, offsets, leaves)

    def _keep(self, sample: Sample, layout: int, nbytes: int) -> bool:
        """Allocate a block; return False if no task wants the sample and there is no room."""
        sample.layout, sample.nbytes = layout, nbytes
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

    # ---- callbacks of the cache

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
