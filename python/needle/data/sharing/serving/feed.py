"""A feed: what tasks share that get the same prepared samples. Draws, reads, samples in memory.

A feed is one data set with one list of shared transforms. It never waits: the server calls
``step`` whenever something may have happened. Which task gets which index is the planner's
decision; task.py counts credits, reading.py reads samples, sample_cache.py keeps them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import compress, count
from math import prod
from typing import Any

import numpy as np

from ....errors import DataError, NeedleError
from ...batching.pipeline import Pipeline
from ...datasets.dataset import in_memory_of
from ...datasets.decode_size import decoded_at
from ...samples.pytree import Field, Structure, columns, count_leaves
from ...samples.ticket import Indices, Ticket
from ...transforms.base import Compose, ImageSpec, Size
from ...workers.engine import Completed
from ...workers.shared_memory import available, readable_bytes
from ..planner import Planner
from ..planner.policy import MAX_TASKS
from ..wire.descriptions import build
from ..wire.sample_layout import NUMBER_KINDS, SampleLayout, layout_of
from .reading import Reading, Sample
from .sample_cache import Arena, SampleCache, SpillFile
from .task import Task

SLICE_SECONDS = 40e-3
"""Target duration of a worker's part of a chunk: long compared with a submission, short enough that
the first samples of a batch need not wait for the last ones of the next."""
MOST_SLICE, FIRST_SLICE = 64, 4
CHUNKS_AHEAD = 4
"""Minimum read-ahead of a task in chunks; less would make it wait for a whole chunk."""
ROUNDS = 64
"""Most rounds that are drawn at a time."""
MEMORY_SHARE = 0.5
"""Part of the available memory that the samples which one task holds may take."""
_log = logging.getLogger("needle.data.sharing")


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server.

    workers: processes that read, for each kind of prepared samples; 0 reads in a thread of the
    server, which is enough for samples in memory. budget: bytes of prepared samples kept beyond
    those in use. beat: seconds between heartbeats. until_last: the server ends with its last task,
    or if no task comes. policy, seed: of the planner. spill: bytes of samples that an epoch still
    needs, kept in a nameless file beyond the budget.
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
        pipeline = Pipeline(decoded_at(dataset, decode_at), build(shared), uneven=True)
        budget = options.budget
        self.prepared, self.seed = prepared, seed
        self._sample_bytes = _sample_bytes(pipeline)
        self.planner = Planner(options.policy, seed=seed)
        self.arena = Arena()
        self.tasks: dict[str, Task] = {}
        self.layouts: list[SampleLayout] = []
        self.delivered = 0
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
        self._samples = count()
        self._current: dict[int, Sample] = {}  # by index: the preparation to hand out
        self._indices: dict[int, int] = {}  # by number: the index of a sample in the cache
        in_thread = in_memory_of(pipeline.dataset) is not None and pipeline.layout() is not None
        workers = 0 if in_thread else options.workers
        self.reading = Reading(pipeline, workers, self._ticket, self._wanted, self._report)

    # ---- tasks

    @property
    def reads(self) -> int:
        """The number of samples that were read."""
        return self.reading.reads

    def check(self, task: Task, others: int) -> None:
        """Raise DataError if there is no place for a task beside ``others``, or no memory."""
        if others >= MAX_TASKS:
            raise DataError(
                f"server: at most {MAX_TASKS} tasks with equal shared transforms, got one more; "
                "start a second server under another name"
            )
        self._check_room(self._sample_bytes, task)

    def _check_room(self, nbytes: int, task: Task) -> None:
        need, have = nbytes * task.most_ahead, available()
        if have is not None and need > MEMORY_SHARE * have:
            raise DataError(
                f"server: samples of {readable_bytes(nbytes)} after the shared transforms, "
                f"{task.batch_size} in a batch and {task.credits} batches ahead, need "
                f"{readable_bytes(need)}, got {readable_bytes(int(MEMORY_SHARE * have))}; lower "
                "batch_size or credits, or let the loader run the transform that enlarges them"
            )

    def join(self, task: Task) -> None:
        """Start the epoch of a task, of which ``task.left`` is to be delivered."""
        self.planner.join(task.name, task.indices, remaining=task.left)
        self.tasks[task.name] = task
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

    def statistics(self) -> dict[str, Any]:
        """Return the counts of the cache, the reads, the memory, and the samples that are slow."""
        slow = [
            {"sample": sample.index, "seconds": seconds, "tasks": self._waiting(sample)}
            for sample, seconds in self.reading.slow_samples()
        ]
        counts = {"reads": self.reads, "committed": self.arena.committed, "slow": slow}
        return {**self._cache.statistics(), **counts}

    def close(self, wait: bool = True) -> None:
        """End the workers and free memory and disk space. wait: until the workers have ended."""
        self.reading.close(wait)
        self.arena.close()
        if self._spill is not None:
            self._spill.close()

    # ---- draws

    def step(self) -> None:
        """Collect what was read, draw and submit more.

        Raises the error for which the workers cannot work.
        """
        if not self.reading.started:  # tasks that come in the meantime begin together
            return
        for chunk, answer in self.reading.collect():
            if answer.error is None:
                self._arrived(chunk, answer)
            else:
                self._failed(chunk[0], answer.error)
        self.reading.submit(self._chunk_size())
        while self._draw():
            self.reading.submit(self._chunk_size())

    def _draw(self) -> bool:
        """Draw rounds for all tasks with room if one is urgent; return False if none were drawn.

        Draws are made as late as the readers allow: then more tasks have room and share a draw.
        """
        wanted = self._chunk_size() - len(self.reading.queue)
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
            self.reading.queue.append(sample)
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

    def _ticket(self, serial: int, indices: Indices) -> Ticket:
        return Ticket(serial, self.seed, serial if self.prepared else 0, indices, serial)

    def _chunk_size(self) -> int:
        """Return a power of two for each reader, so that slots for chunks seldom grow."""
        size, seconds, readers = FIRST_SLICE, self.reading.sample_seconds, self.reading.count
        if seconds:
            size = min(MOST_SLICE, int(SLICE_SECONDS / seconds))
        ahead = max((task.most_ahead for task in self.tasks.values()), default=0)
        size = max(1, min(size, ahead // (CHUNKS_AHEAD * readers)))
        return (1 << size.bit_length() - 1) * readers

    def _wanted(self, sample: Sample) -> bool:
        """Return True if the sample must be read, since a task waits for it."""
        if not sample.holders:  # its tasks have left
            self._forget(sample)
            return False
        return not self._recalled(sample)

    def _waiting(self, sample: Sample) -> list[str]:
        return [task.name for task in self.tasks.values() if task.waits_for(sample)]

    def _report(self, sample: Sample, seconds: float) -> None:
        """Tell the tasks that wait for a sample, and the log, that it is slow."""
        names = self._waiting(sample)
        text = f"server: sample {sample.index} has been read for {seconds:.1f} s"
        _log.warning("%s; waiting: %s", text, ", ".join(names))
        for name in names:
            self.tasks[name].notices.append(text)

    def _recalled(self, sample: Sample) -> bool:
        """Return True if an earlier preparation was in the spill file and is now in memory."""
        old = self._spilled.pop(sample.index, None)
        data = None if old is None else self._cache.recall(old.number)
        if old is None or data is None:
            return False
        if self._keep(sample, old.layout, old.nbytes):
            self._block(sample)[:] = data
        return True

    def _arrived(self, chunk: list[Sample], answer: Completed) -> None:
        try:
            assert answer.structure is not None, "no sample of a chunk is left out"
            tree = answer.structure.tree
            structure = Structure(tree, ("array",) * count_leaves(tree))
            leaves = [column[0] for column in columns([answer.batch], structure)]
            if all(isinstance(x, np.ndarray) and x.dtype.kind in NUMBER_KINDS for x in leaves):
                self._store(chunk, tree, leaves)
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
                    tree,
                    [[x] if isinstance(x, (str, bytes)) else np.asarray(x)[None] for x in rows],
                )
            except Exception as error:
                self._failed(sample, error)

    def _store(self, chunk: list[Sample], tree: Any, leaves: list[Any]) -> None:
        """Write samples of one layout into blocks; row i of each leaf belongs to sample i."""
        layout = layout_of(tree, [leaf[0] for leaf in leaves])
        if layout not in self._numbers:
            for name in self._waiting(chunk[0])[:1]:
                self._check_room(layout.nbytes, self.tasks[name])
            self._numbers[layout] = len(self.layouts)
            self.layouts.append(layout)
        number = self._numbers[layout]
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


def _sample_bytes(pipeline: Pipeline) -> int:
    """Return the bytes of a prepared sample, or a lower bound where the data set does not say."""
    fields = pipeline.layout()
    if fields is None:
        try:
            made = Compose(pipeline.chain.transforms).output(ImageSpec(1, 1, 1, np.dtype(np.uint8)))
        except NeedleError:  # one pixel is too small for a crop
            made = None
        size = (0,) if made is None else tuple(0 if each is None else each for each in made.shape)
        fields = [Field(size, np.dtype(np.uint8) if made is None else made.dtype)]
    return sum(field.dtype.itemsize * prod(field.row_shape) for field in fields)
