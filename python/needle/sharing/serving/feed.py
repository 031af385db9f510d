"""Feeds, which prepare samples for the tasks that share them, and the tasks themselves.

A feed is one data set with one list of shared transforms. It never blocks: the server calls
``step`` after every event. The planner decides which task gets which index, reading.py reads
samples, sample_cache.py keeps them, and connection.py sends the batches.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.batching.pipeline import Pipeline
from ...data.datasets.dataset import in_memory_of
from ...data.datasets.decode_size import Needed, decoded_for
from ...data.samples.pytree import Field
from ...data.samples.ticket import Indices, Ticket
from ...data.transforms.base import Compose, ImageSpec, Size
from ...data.workers.shared_memory import available, readable_bytes
from ...errors import DataError
from ..planner import Planner
from ..planner.policy import MAX_TASKS
from ..wire.descriptions import build
from .reading import Reading, Sample
from .sample_cache import SampleStore

SLICE_SECONDS = 40e-3
"""Target seconds of a worker's part of a chunk: long compared with a submission, and short enough
that the first samples of a batch do not wait for the last ones of the next."""
MOST_SLICE, FIRST_SLICE = 64, 4
CHUNKS_AHEAD = 4
"""Minimum read-ahead of a task in chunks; with less, it would wait for a whole chunk."""
ROUNDS = 64
"""Maximum number of rounds drawn at a time."""
MEMORY_SHARE = 0.8
"""Maximum fraction of the available memory taken by the samples that one task holds."""
_log = logging.getLogger("needle.sharing")


@dataclass(frozen=True)
class ServerOptions:
    """The options of a server.

    workers: worker processes of each feed; 0 reads in a thread of the server, which is enough for
    samples in memory. budget: bytes of prepared samples kept beyond those in use. beat: seconds
    between heartbeats. until_last: the server ends with its last task, or if no task comes. seed:
    the planner's seed. spill: bytes of samples kept beyond the budget; if it is positive, all
    samples are in an unnamed file that the system keeps partly in memory.
    """

    workers: int = 2
    budget: int = 1 << 30
    beat: float = 5.0
    until_last: bool = False
    seed: int | None = None
    spill: int = 0


class Task:
    """One loader's epoch and credits; its batches are drawn from the ascending ``indices``."""

    def __init__(
        self, name: str, indices: Indices, *, batch_size: int, drop_last: bool, credits: int
    ) -> None:
        self.name, self.indices = name, indices
        self.batch_size, self.drop_last, self.credits = batch_size, drop_last, credits
        self.epoch, self.generation = 0, -1
        self.left: Indices = indices[:0]
        self.delivered = self.hits = 0
        # Reports, yet to be sent, of slow samples that delay the task.
        self.notices: deque[str] = deque()
        self._granted = self._sent = 0  # Batches of this generation.
        self._drawn = self._to_draw = 0  # Samples of this generation.
        # Samples drawn and not yet sent, in the order of the draws.
        self._queue: deque[Sample] = deque()
        self._held: dict[int, list[Sample]] = {}  # the samples of sent batches, by batch number
        self._first = self._latest = time.monotonic()

    def begin(self, epoch: int, generation: int, done: npt.NDArray[np.bool_]) -> None:
        """Start ``epoch`` without the indices at ``done``, which were delivered before."""
        self.epoch, self.generation = epoch, generation
        self.left = self.indices[~done]
        self._to_draw = len(self.left)
        if self.drop_last:
            self._to_draw = max(0, self._to_draw - len(self.indices) % self.batch_size)
        self._granted, self._sent, self._drawn = self.credits, 0, 0

    def drop(self) -> list[Sample]:
        """Drop the epoch; return the samples that were held, which the caller must release."""
        held = [*self._queue, *(sample for batch in self._held.values() for sample in batch)]
        self._queue.clear()
        self._held.clear()
        self._to_draw = self._drawn
        return held

    # ---- credits

    @property
    def most_ahead(self) -> int:
        """The maximum number of samples that may be drawn but not yet used."""
        return self.credits * self.batch_size

    @property
    def room(self) -> int:
        """The number of samples that may be drawn for the task now."""
        # reached only if the loader never releases its batches
        if len(self._held) >= 2 * self.credits:
            return 0
        return min(self._unused, self._to_draw - self._drawn)

    @property
    def urgent(self) -> bool:
        """True if half of the credits are used, so that the task should get samples soon.

        Until then it waits for other tasks to have room as well, since a joint round shares reads.
        """
        return self.room > 0 and 2 * self._unused > self.most_ahead

    def grant(self, batches: int) -> None:
        """Grant new credits for batches that the loader has used."""
        self._granted = min(self._granted + batches, self._sent + self.credits)

    def take(self, sample: Sample, *, hit: bool) -> None:
        """Add a drawn sample; ``hit`` is True if it needed no read of its own."""
        self._queue.append(sample)
        self._drawn += 1
        self.hits += hit

    @property
    def _unused(self) -> int:
        return self._granted * self.batch_size - self._drawn

    def waits_for(self, sample: Sample) -> bool:
        """Return True if the sample was drawn and has not been sent."""
        return any(each is sample for each in self._queue)

    # ---- batches

    def ready_batches(self) -> Iterator[tuple[int, list[Sample]]]:
        """Yield the batches ready to send, with their numbers, and hold them until ``release``."""
        while self._queue:
            sent = self._drawn - len(self._queue)
            size = min(self.batch_size, self._to_draw - sent)
            batch = list(islice(self._queue, size))
            if len(batch) < size or not all(sample.ready for sample in batch):
                return
            for _ in batch:
                self._queue.popleft()
            number, self._sent = self._sent, self._sent + 1
            self._held[number] = batch
            self.delivered += size
            self._latest = time.monotonic()
            yield number, batch

    def release(self, number: int) -> list[Sample]:
        """Return the samples of a batch that the loader released; none for an unknown batch."""
        return self._held.pop(number, [])

    def status(self) -> dict[str, Any]:
        """Return the state of the task as JSON values."""
        seconds = max(self._latest - self._first, 1e-9)
        return {
            "task": self.name,
            "epoch": self.epoch,
            "size": len(self.indices),
            "drawn": len(self.indices) - len(self.left) + self._drawn,
            "waiting": len(self._queue),
            "held": sum(map(len, self._held.values())),
            "delivered": self.delivered,
            "hits": self.hits,
            "rate": self.delivered / seconds if self.delivered else 0.0,
        }


class Feed:
    """A feed of ``dataset`` with the ``shared`` transforms, for any number of tasks.

    prepared: True if the transforms draw random numbers, so that a task gets each preparation at
    most once. seed: the seed of the planner and of these transforms.
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
        dataset = decoded_for(dataset, Needed(decode_at))
        pipeline = Pipeline(dataset, build(shared), uneven=True)
        self.prepared, self.seed = prepared, seed
        self._sample_bytes = _sample_bytes(pipeline)
        self.planner = Planner(seed)
        self.tasks: dict[str, Task] = {}
        self.delivered = 0
        self._current: dict[int, Sample] = {}  # the current preparation of each index
        limit = options.budget + options.spill
        self.store = SampleStore(
            limit,
            not prepared,
            tempfile.gettempdir() if options.spill else None,
            need=self.planner.need,
            left=self._forget,
            check=self._check_layout,
        )
        in_thread = in_memory_of(pipeline.dataset) is not None and pipeline.layout() is not None
        workers = 0 if in_thread else options.workers
        self.reading = Reading(pipeline, workers, self._ticket, self._wanted, self._report)

    # ---- tasks

    @property
    def reads(self) -> int:
        """The number of samples read so far."""
        return self.reading.reads

    def check(self, task: Task, others: int) -> None:
        """Raise DataError if memory, or the slots that ``others`` leave free, do not suffice."""
        if others >= MAX_TASKS:
            raise DataError(
                f"server: at most {MAX_TASKS} tasks may have equal shared transforms, got one "
                "more; start a second server under another name"
            )
        self._check_room(self._sample_bytes, task)

    def _check_room(self, nbytes: int, task: Task) -> None:
        need, have = nbytes * task.most_ahead, available()
        if have is not None and need > MEMORY_SHARE * have:
            raise DataError(
                f"server: {task.credits} batches of {task.batch_size} samples, each of "
                f"{readable_bytes(nbytes)} after the shared transforms, need "
                f"{readable_bytes(need)}, got {readable_bytes(int(MEMORY_SHARE * have))}; lower "
                "batch_size or credits, or let the loader run the transform that enlarges the "
                "samples"
            )

    def _check_layout(self, nbytes: int, sample: Sample) -> None:
        for name in self._waiting(sample)[:1]:
            self._check_room(nbytes, self.tasks[name])

    def join(self, task: Task) -> None:
        """Start the epoch of a task, which will deliver the samples ``task.left``."""
        self.planner.join(task.name, task.indices, remaining=task.left)
        self.tasks[task.name] = task
        self.store.cache.refresh()

    def leave(self, task: Task) -> None:
        """Release everything that a task holds, when it ends or starts another epoch."""
        if self.tasks.pop(task.name, None) is None:
            return
        self.planner.leave(task.name)
        for sample in task.drop():
            self.release(sample)
        self.store.cache.refresh()

    def release(self, sample: Sample) -> None:
        """Remove a holder of a sample."""
        if sample.cached:
            self.store.cache.release(sample)
        else:
            sample.holders -= 1

    def statistics(self) -> dict[str, Any]:
        """Return reads, deliveries, memory and the slow samples as JSON values."""
        slow = [
            {"sample": sample.index, "seconds": seconds, "tasks": self._waiting(sample)}
            for sample, seconds in self.reading.slow_samples()
        ]
        cache = self.store.cache
        return {
            "reads": self.reads,
            "delivered": self.delivered,
            "entries": len(cache),
            "bytes": cache.bytes,
            "held_bytes": cache.held_bytes,
            "slow": slow,
        }

    def close(self, wait: bool = True) -> None:
        """End the workers and free the memory; ``wait`` for the workers to exit."""
        self.reading.close(wait)
        self.store.close()

    # ---- draws

    def step(self) -> None:
        """Collect samples, draw and submit more; raise an error that stops the workers."""
        if not self.reading.started:  # tasks that arrive during the start-up begin together
            return
        for chunk, answer in self.reading.collect():
            if answer.error is not None:
                self._failed(chunk[0], answer.error)
                continue
            for sample, error in self.store.add(chunk, answer):
                self._failed(sample, error)
        self.reading.submit(self._chunk_size())
        while self._draw():
            self.reading.submit(self._chunk_size())

    def _draw(self) -> bool:
        """Draw rounds for all tasks with room if one is urgent; return False if none were drawn.

        Draws are made as late as the readers allow, so that more tasks have room and share a draw.
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
            sample = self._current[index] = Sample(index)
            self.reading.queue.append(sample)
        for name in names:
            if sample.cached:
                self.store.cache.hold(sample)
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
        """Return a power of two per reader, so that the buffers of chunks rarely grow."""
        size, seconds, readers = FIRST_SLICE, self.reading.sample_seconds, self.reading.count
        if seconds:
            size = min(MOST_SLICE, int(SLICE_SECONDS / seconds))
        ahead = max((task.most_ahead for task in self.tasks.values()), default=0)
        size = max(1, min(size, ahead // (CHUNKS_AHEAD * readers)))
        return (1 << size.bit_length() - 1) * readers

    def _wanted(self, sample: Sample) -> bool:
        """Return True if a task waits for the sample, so that it must be read."""
        if not sample.holders:  # all tasks that wanted it have left
            self._forget(sample)
        return sample.holders > 0

    def _waiting(self, sample: Sample) -> list[str]:
        return [task.name for task in self.tasks.values() if task.waits_for(sample)]

    def _report(self, sample: Sample, seconds: float) -> None:
        """Report a slow sample to the log and to the tasks that wait for it."""
        names = self._waiting(sample)
        text = f"server: sample {sample.index} has been read for {seconds:.1f} s"
        _log.warning("%s; waiting: %s", text, ", ".join(names))
        for name in names:
            self.tasks[name].notices.append(text)

    def _failed(self, sample: Sample, error: BaseException) -> None:
        sample.error = error
        self._forget(sample)

    def _forget(self, sample: Sample) -> None:
        if self._current.get(sample.index) is sample:
            del self._current[sample.index]


def _sample_bytes(pipeline: Pipeline) -> int:
    """Return the bytes of a prepared sample, or a lower bound if its layout is unknown."""
    fields = pipeline.layout()
    if fields is None:
        try:
            made = Compose(pipeline.chain.transforms).output(ImageSpec(1, 1, 1, np.dtype(np.uint8)))
        except Exception:  # a transform rejects an image of one grey pixel
            made = None
        size = (0,) if made is None else tuple(0 if each is None else each for each in made.shape)
        fields = [Field(size, np.dtype(np.uint8) if made is None else made.dtype)]
    return sum(field.dtype.itemsize * prod(field.row_shape) for field in fields)
