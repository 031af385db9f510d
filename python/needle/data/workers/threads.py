"""The engine of Python threads, for kernels and decoders that release the GIL.

An idle thread takes the next slice of a batch, but all slices of a stream's shard are read by one
thread, in order. Threads hold no reference to the engine, so that dropping a loader ends them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import numpy.typing as npt

from ...errors import LoaderTimeout
from ..batching.collate import Slice, concatenate
from ..batching.fetch import Withdrawn
from ..batching.pipeline import Pipeline, Work
from ..samples.pytree import Field
from ..samples.ticket import Ticket
from ..samples.timing import Clock, add_seconds, parts_of, smoothed
from .engine import Completed, Engine, closed_meanwhile
from .limits import limit_error

Array = npt.NDArray[Any]
JOIN_SECONDS = 0.5


@dataclass(eq=False)
class _Job:
    """A batch in flight with ``count`` slices. failed: the number of the first failed slice."""

    pipeline: Pipeline
    count: int
    out: list[Array | None] | None
    answer: Completed
    parts: dict[int, Slice] = field(default_factory=dict)
    failed: int = 0
    cancelled: bool = False


_Task = tuple[_Job, int, Ticket, slice]
_Tasks = SimpleQueue["_Task | None"]
_Done = SimpleQueue["tuple[_Job, int, Completed] | None"]
"""The queue of slices that threads have prepared; None once the engine is closed."""


class ThreadsEngine(Engine):
    """The engine of ``workers`` threads, with ``prefetch`` batches in flight per thread."""

    name = "threads"

    def __init__(self, pipeline: Pipeline, *, workers: int, prefetch: int) -> None:
        self.workers, self.capacity = workers, workers * prefetch
        self.renew(pipeline)
        self._closed, self._lock = False, threading.RLock()
        self._jobs: set[_Job] = set()
        self._done: _Done = SimpleQueue()
        self._queues: list[_Tasks] = []
        self._threads: list[threading.Thread] = []
        self._sample_seconds: float | None = None

    def renew(self, pipeline: Pipeline) -> bool:
        """Prepare further batches by ``pipeline``; submitted tickets keep their pipeline."""
        self.pipeline = pipeline
        self._fields: Sequence[Field | None] | None = pipeline.layout()
        return False

    def submit(self, ticket: Ticket) -> None:
        """Queue the slices of the batch; the first call starts the threads."""
        with self._lock:
            if self._closed:
                raise closed_meanwhile()
            if not self._threads:
                self._start()
            slices = self._parts(ticket)
            job = _Job(self.pipeline, len(slices), self._place(ticket), Completed(ticket))
            self._jobs.add(job)
            queue = self._queues[max(0, ticket.shard) % len(self._queues)]
            for i, rows in enumerate(slices):
                queue.put((job, i, ticket.rows(rows), rows))

    def collect(self, timeout: float | None = None) -> Completed:
        """Return the next complete batch; see ``Engine.collect``."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            try:
                left = None if end is None else max(0.0, end - time.monotonic())
                found = self._done.get(timeout=left)
            except Empty:
                raise LoaderTimeout(
                    f"DataLoader: no batch was ready within {timeout} s; raise timeout, or look "
                    "for a slow sample"
                ) from None
            if found is not None and self._is_last(*found):
                return self._completed(found[0])
        raise closed_meanwhile()

    def cancel(self) -> None:
        """Discard all tickets; threads stop before their next sample."""
        for job in list(self._jobs):
            job.cancelled = True
        self._jobs.clear()

    def close(self) -> None:
        """Stop each thread before its next sample, and wait at most ``JOIN_SECONDS`` for all.

        A thread that hangs in a sample is abandoned: it is a daemon thread and ends with the
        program.
        """
        with self._lock:
            self._closed = True
            self.cancel()
            threads, self._threads = self._threads, []
            queues, self._queues = self._queues, []
        self._done.put(None)  # ends a ``collect`` in another thread
        for i in range(len(threads)):
            queues[i % len(queues)].put(None)
        end = time.monotonic() + JOIN_SECONDS
        for thread in threads:
            # a garbage collection in a worker thread may call close
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _start(self) -> None:
        count = self.workers if self.pipeline.stream else 1
        self._queues = [SimpleQueue() for _ in range(count)]
        for i in range(self.workers):
            thread = threading.Thread(
                target=_work,
                args=(self._queues[i % count], self._done),
                name=f"needle-loader-{i}",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError as error:
                self.close()
                raise limit_error(f"starting thread {i + 1} of {self.workers}", error) from error
            self._threads.append(thread)

    def _parts(self, ticket: Ticket) -> list[slice]:
        if not self.pipeline.splits:
            return [slice(0, ticket.samples)]
        return parts_of(ticket.samples, self.workers, self.capacity, self._sample_seconds)

    def _place(self, ticket: Ticket) -> list[Array | None] | None:
        if self._fields is None or ticket.is_stream:
            return None
        return [None if each is None else each.of(ticket.samples) for each in self._fields]

    def _is_last(self, job: _Job, number: int, part: Completed) -> bool:
        """Add a slice to its batch; return True if that completes a batch that is still wanted."""
        answer = job.answer
        job.parts[number] = part.made
        if part.error is not None and (answer.error is None or number < job.failed):
            answer.error, job.failed = part.error, number
        add_seconds(answer.seconds, part.seconds)
        return len(job.parts) == job.count and job in self._jobs

    def _completed(self, job: _Job) -> Completed:
        self._jobs.discard(job)
        answer, clock = job.answer, Clock()
        if answer.error is None:
            try:
                with clock.measure("collate"):
                    answer.made = concatenate([job.parts[i] for i in range(job.count)], job.out)
                add_seconds(answer.seconds, clock.seconds)
                self._learn(answer.made, answer.seconds)
            except Exception as error:
                answer.error = error
        return answer

    def _learn(self, whole: Slice, seconds: Mapping[str, float]) -> None:
        """Update the estimated seconds per sample, and learn which leaves to write in place."""
        if whole.samples:
            self._sample_seconds = smoothed(self._sample_seconds, seconds, whole.samples)
            if self._fields is None and self.pipeline.splits:
                self._fields = whole.fields()


def _work(tasks: _Tasks, done: _Done) -> None:
    """Process slices until None is received; the main function of a thread."""
    while (task := tasks.get()) is not None:
        with contextlib.suppress(Withdrawn):
            done.put(_prepared(*task))
        del task


def _prepared(job: _Job, number: int, ticket: Ticket, rows: slice) -> tuple[_Job, int, Completed]:
    def progress(index: int) -> None:
        if job.cancelled:
            raise Withdrawn

    clock = Clock()
    answer = Completed(ticket, seconds=clock.seconds)
    out = None if job.out is None else [None if x is None else x[rows] for x in job.out]
    try:
        progress(0)
        answer.made = job.pipeline.prepare(ticket, Work(clock, out, 1, progress))
    except Withdrawn:
        raise
    except BaseException as error:
        answer.error = error
    return job, number, answer
