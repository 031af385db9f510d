"""The engine of Python threads, for kernels and decoders that release the GIL.

An idle thread takes the next slice of a batch, but one thread reads all slices of a stream's
shard, in order. Threads hold no reference to the engine, so that dropping a loader ends them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import LoaderTimeout
from ..batching.collate import Slice, concatenate
from ..batching.fetch import Withdrawn
from ..batching.pipeline import Pipeline, Work
from ..samples.pytree import Field
from ..samples.ticket import Ticket
from ..samples.timing import Clock, add_seconds, smoothed
from .engine import Completed, Engine, closed_meanwhile
from .limits import limit_error

Array = npt.NDArray[Any]
JOIN_SECONDS = 0.5
SHORT_SECONDS = 2e-3
"""Minimum seconds of a slice; for shorter ones, waiting for the GIL costs more than they gain."""


@dataclass(eq=False)
class _Job:
    """A batch in flight; ``lock`` guards the fields that threads write."""

    ticket: Ticket
    pipeline: Pipeline
    parts: list[Slice | None]
    out: list[Array] | None
    cancelled: bool = False
    error: BaseException | None = None
    failed: int = 0
    """The number of the first slice that failed."""
    left: int = 0
    clock: Clock = field(default_factory=Clock)
    lock: threading.Lock = field(default_factory=threading.Lock)


_Task = tuple[_Job, int, slice]
_Tasks = SimpleQueue["_Task | None"]


class ThreadsEngine(Engine):
    """The engine of ``workers`` threads, with ``prefetch`` batches in flight for each."""

    name = "threads"

    def __init__(self, pipeline: Pipeline, *, workers: int, prefetch: int) -> None:
        self.workers, self.capacity = workers, workers * prefetch
        self.renew(pipeline)
        self._closed, self._lock = False, threading.RLock()
        self._jobs: dict[int, _Job] = {}
        self._done: SimpleQueue[_Job | None] = SimpleQueue()  # None once the engine is closed
        self._queues: list[_Tasks] = []
        self._threads: list[threading.Thread] = []
        self._sample_seconds: float | None = None

    def renew(self, pipeline: Pipeline) -> bool:
        """Prepare further batches by ``pipeline``; tickets that were submitted keep theirs."""
        self.pipeline = pipeline
        self._fields = pipeline.layout() if pipeline.splits else None
        return False

    def submit(self, ticket: Ticket) -> None:
        """Queue the slices of the batch; the first call starts the threads."""
        with self._lock:
            if self._closed:
                raise closed_meanwhile()
            self._submit(ticket)

    def _submit(self, ticket: Ticket) -> None:
        if not self._threads:
            self._start()
        slices = self._slices(ticket)
        job = _Job(ticket, self.pipeline, [None] * len(slices), self._place(ticket))
        job.left = len(slices)
        self._jobs[ticket.serial] = job
        queue = self._queues[max(0, ticket.shard) % len(self._queues)]
        for i, rows in enumerate(slices):
            queue.put((job, i, rows))

    def collect(self, timeout: float | None = None) -> Completed:
        """Return the next complete batch; see ``Engine.collect``."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            try:
                left = None if end is None else max(0.0, end - time.monotonic())
                job = self._done.get(timeout=left)
            except Empty:
                raise LoaderTimeout(
                    f"DataLoader: no batch within {timeout} s; raise timeout, or look for the "
                    "sample that takes so long"
                ) from None
            if job is not None and self._jobs.pop(job.ticket.serial, None) is not None:
                return self._completed(job)
        raise closed_meanwhile()

    def cancel(self) -> None:
        """Discard all tickets; threads stop before their next sample."""
        for job in list(self._jobs.values()):
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

    def _slices(self, ticket: Ticket) -> list[slice]:
        if not self.pipeline.splits:
            return [slice(None)]
        count, parts = len(ticket.indices), self.workers
        if self._sample_seconds is not None:
            parts = min(parts, max(1, int(count * self._sample_seconds / SHORT_SECONDS)))
        size = max(1, -(-count // parts))
        return [slice(start, min(start + size, count)) for start in range(0, count, size)] or [
            slice(None)
        ]

    def _place(self, ticket: Ticket) -> list[Array] | None:
        if self._fields is None or ticket.is_stream:
            return None
        return [field.of(len(ticket.indices)) for field in self._fields]

    def _completed(self, job: _Job) -> Completed:
        clock = job.clock
        if job.error is None:
            try:
                with clock.measure("collate"):
                    joined = concatenate([part for part in job.parts if part is not None], job.out)
                self._learn(joined, clock.seconds)
                return Completed(job.ticket, joined, None, clock.seconds)
            except Exception as error:
                job.error = error
        return Completed(job.ticket, error=job.error, seconds=clock.seconds)

    def _learn(self, whole: Slice, seconds: Mapping[str, float]) -> None:
        """Update the estimated seconds per sample, and learn the leaves to be written in place."""
        if whole.samples:
            self._sample_seconds = smoothed(self._sample_seconds, seconds, whole.samples)
        if self._fields is None and self.pipeline.splits and whole.samples:
            leaves = whole.leaves
            if all(isinstance(leaf, np.ndarray) for leaf in leaves):
                self._fields = [Field(leaf.shape[1:], leaf.dtype) for leaf in leaves]


def _work(tasks: _Tasks, done: SimpleQueue[_Job | None]) -> None:
    """Process slices until None is received; the main function of a thread."""
    while (task := tasks.get()) is not None:
        job = task[0]
        if not job.cancelled:
            with contextlib.suppress(Withdrawn):
                _prepare(task, done)
        del task, job


def _prepare(task: _Task, done: SimpleQueue[_Job | None]) -> None:
    job, number, rows = task
    clock = Clock()

    def progress(index: int) -> None:
        if job.cancelled:
            raise Withdrawn

    out = None if job.out is None else [array[rows] for array in job.out]
    part = error = None
    try:
        part = job.pipeline.prepare(job.ticket.rows(rows), Work(clock, out, 1, progress))
    except Withdrawn:
        raise
    except BaseException as failure:
        error = failure
    with job.lock:
        job.parts[number] = part
        if error is not None and (job.error is None or number < job.failed):
            job.error, job.failed = error, number
        add_seconds(job.clock.seconds, clock.seconds)
        job.left -= 1
        last = job.left == 0
    if last:
        done.put(job)
