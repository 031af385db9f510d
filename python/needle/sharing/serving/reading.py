"""Read samples for a feed: in chunks by all workers, and suspect samples one at a time.

The server's thread reads no sample itself. If a chunk fails or takes too long, its samples are read
one by one by a separate engine, so that a sample that fails or hangs delays only the tasks that
wait for it. feed.py fills the queue and stores what was read.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from queue import SimpleQueue
from typing import Any

import numpy as np

from ...data.batching.pipeline import Pipeline
from ...data.samples.ticket import Ticket
from ...data.workers.engine import Completed, Engine
from ...data.workers.processes import ProcessEngine
from ...data.workers.threads import ThreadsEngine
from ...errors import LoaderTimeout
from ..wire.protocol import Bell

AHEAD = 2
"""Number of chunks submitted ahead."""
PATIENCE = 3.0
"""Seconds after which a chunk or a sample counts as slow; doubled with each retry."""
MOST_PATIENCE = 600.0
FIRST_ANSWER = 2.0
"""Factor on the patience until an engine has given its first answer."""
SLOWER = 20.0
"""A chunk is slow if it takes more than this many times the expected time."""


@dataclass(eq=False, slots=True)
class Sample:
    """One preparation of the sample at ``index``.

    holders: the number of tasks that wait for the sample or hold it; once it is ``cached``, the
    cache counts them. layout, offset, nbytes: its layout and location in memory. error: the reason
    why it could not be read. takers: names of the tasks that got it. submitted: the time of the
    first submission. patience: the time limit in seconds of the next attempt to read it alone.
    report_after: seconds until it is next reported as slow; 0 before the first report.
    """

    index: int
    holders: int = 0
    cached: bool = False
    layout: int = -1
    offset: int = -1
    nbytes: int = 0
    error: BaseException | None = None
    takers: set[str] = field(default_factory=set)
    submitted: float = 0.0
    patience: float = PATIENCE
    report_after: float = 0.0

    @property
    def ready(self) -> bool:
        """True if the sample is in memory or has failed."""
        return self.offset >= 0 or self.error is not None


class PolledProcesses(ProcessEngine):
    """Worker processes; the server's thread polls their descriptors along with its sockets."""

    def descriptors(self) -> list[int]:
        """Return descriptors, one of which becomes readable when ``collect`` may have a result."""
        return self._pool.descriptors() if self._batches else []


class RingingThread(ThreadsEngine):
    """A worker thread that rings ``bell`` for each batch that it has completed."""

    def __init__(self, pipeline: Pipeline, bell: Bell) -> None:
        super().__init__(pipeline, workers=1, prefetch=AHEAD)
        self._done = _RingingQueue(bell)


class _RingingQueue(SimpleQueue[Any]):
    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item)
        self._bell.ring()


class Readers:
    """An engine, started in a thread of its own, and the chunks that it reads.

    workers: the number of worker processes; 0 for one thread of the server.
    """

    def __init__(self, pipeline: Pipeline, workers: int) -> None:
        self._pipeline, self._workers = pipeline, workers
        self._engine: Engine | None = None
        self._error: BaseException | None = None
        self.chunks: dict[int, tuple[list[Sample], float]] = {}
        self.answered = self._closed = False
        self._lock = threading.Lock()  # protects _closed and _engine
        self._bell = Bell()
        try:
            threading.Thread(target=self._start, name="needle-readers", daemon=True).start()
        except BaseException:
            self._bell.close()
            raise

    @property
    def room(self) -> bool:
        """True if a chunk can be submitted. Raises the error of an engine that cannot start."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._engine is not None and len(self.chunks) < self._engine.capacity

    def descriptors(self) -> list[int]:
        """Return the descriptors, one of which becomes readable when there may be a new result."""
        processes = self._engine if isinstance(self._engine, PolledProcesses) else None
        return [self._bell.fileno(), *([] if processes is None else processes.descriptors())]

    def submit(self, ticket: Ticket, chunk: list[Sample]) -> None:
        """Submit a chunk to the engine."""
        assert self._engine is not None
        now = time.monotonic()
        for sample in chunk:
            sample.submitted = sample.submitted or now
        self.chunks[ticket.serial] = chunk, now
        self._engine.submit(ticket)

    def answers(self) -> Iterator[tuple[list[Sample], Completed]]:
        """Yield every chunk that has been read, with its answer."""
        self._bell.clear()
        while self.chunks and self._engine is not None:
            try:
                answer = self._engine.collect(0)
            except LoaderTimeout:
                return
            self.answered = True
            yield self.chunks.pop(answer.ticket.serial)[0], answer

    def overdue(self, patience: float) -> bool:
        """Return True if the oldest chunk has taken longer than ``patience`` seconds."""
        allowed = patience if self.answered else FIRST_ANSWER * patience
        started = min((started for _, started in self.chunks.values()), default=np.inf)
        return bool(time.monotonic() - started > allowed)

    def close(self) -> None:
        """End the workers; an engine that is still starting ends once it has started."""
        with self._lock:
            self._closed, engine = True, self._engine
        self._bell.close()
        if engine is not None:
            engine.close()

    def abandon(self) -> None:
        """End the workers without waiting for them, since they may hang."""
        threading.Thread(target=self.close, name="needle-closing", daemon=True).start()

    def _start(self) -> None:
        """Start the engine, in a thread since starting workers takes a while."""
        engine: Engine | None = None
        try:
            if self._workers:
                engine = PolledProcesses(self._pipeline, workers=self._workers, prefetch=AHEAD)
            else:
                engine = RingingThread(self._pipeline, self._bell)
            engine.start()
        except BaseException as error:
            self._error = error
        with self._lock:
            if not self._closed and self._error is None:
                self._engine, engine = engine, None
        self._bell.ring()
        if engine is not None:
            with suppress(Exception):  # the engine has failed already, or is no longer needed
                engine.close()


class Reading:
    """A queue of samples to be read, and the engines that read them.

    workers: the number of worker processes; 0 for a thread of the server. tickets: returns the
    ticket for a serial number and int64 indices ``(n,)``. wanted: returns False for a sample that
    no longer needs to be read. slow: called with a slow sample and the seconds since its reading
    began. queue: samples to be read in chunks. doubtful: samples of chunks that failed or were
    slow.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        workers: int,
        tickets: Callable[[int, np.ndarray], Ticket],
        wanted: Callable[[Sample], bool],
        slow: Callable[[Sample, float], None],
    ) -> None:
        self._pipeline, self._workers = pipeline, workers
        self._ticket, self._wanted, self._slow = tickets, wanted, slow
        self.count = max(1, workers)
        self.queue: deque[Sample] = deque()
        self.doubtful: deque[Sample] = deque()
        self.reads = 0
        self.sample_seconds = 0.0
        self._serials = count()
        self._patience = PATIENCE
        self._main = Readers(pipeline, workers)
        self._single: Readers | None = None

    @property
    def started(self) -> bool:
        """True once the workers have been started. Raises the error of a failed start."""
        return self._main.room or bool(self._main.chunks)

    def descriptors(self) -> list[int]:
        """Return the descriptors, one of which becomes readable when there may be a new result."""
        return [fd for readers in self._engines() for fd in readers.descriptors()]

    def submit(self, size: int) -> None:
        """Submit chunks of ``size`` samples, and the next suspect sample."""
        while self.queue and self._main.room:
            self._submit_chunk(self._main, self.queue, size)
        if self.doubtful and self._single is None:
            self._single = Readers(self._pipeline, min(self._workers, 1))
        single = self._single
        while single is not None and self.doubtful and single.room and not single.chunks:
            self._submit_chunk(single, self.doubtful, 1)

    def collect(self) -> Iterator[tuple[list[Sample], Completed]]:
        """Yield the chunks that were read, and single samples with their errors."""
        for readers in self._engines():
            for chunk, answer in readers.answers():
                self.reads += len(chunk)
                if answer.error is None:
                    self._learn(sum(answer.seconds.values()) / len(chunk))
                # read them one by one, to find the one that failed or because their structures
                # differ
                if len(chunk) > 1 and (answer.error is not None or answer.made.trees):
                    self.doubtful += chunk
                    continue
                yield chunk, answer
        self._divide_slow()
        self._interrupt_slow()

    def slow_samples(self) -> list[tuple[Sample, float]]:
        """Return the slow samples, with the seconds since their reading began."""
        chunks = (
            [] if self._single is None else [chunk for chunk, _ in self._single.chunks.values()]
        )
        samples = [*chain.from_iterable(chunks), *self.doubtful]
        now = time.monotonic()
        return [(each, now - each.submitted) for each in samples if each.report_after]

    def close(self, wait: bool) -> None:
        """End the workers; ``wait`` for them to exit."""
        for readers in self._engines():
            (readers.close if wait else readers.abandon)()

    def _engines(self) -> list[Readers]:
        return [self._main] if self._single is None else [self._main, self._single]

    def _submit_chunk(self, readers: Readers, queue: deque[Sample], size: int) -> None:
        chunk: list[Sample] = []
        while queue and len(chunk) < size:
            sample = queue.popleft()
            if self._wanted(sample):
                chunk.append(sample)
        if chunk:
            indices = np.array([sample.index for sample in chunk], np.int64)
            readers.submit(self._ticket(next(self._serials), indices), chunk)

    def _learn(self, seconds: float) -> None:
        """Update the expected time of a sample, which rises slowly, as load may be temporary."""
        before = self.sample_seconds
        self.sample_seconds = min(seconds, 1.05 * before) if before else seconds

    def _divide_slow(self) -> None:
        """Replace the workers that are reading a slow chunk, and read its samples one by one."""
        size = max((len(chunk) for chunk, _ in self._main.chunks.values()), default=0)
        expected = self.sample_seconds * size / self.count
        patience = max(self._patience, SLOWER * expected)
        if not self._main.overdue(patience):
            return
        chunks = self._main.chunks
        oldest = min(chunks, key=lambda serial: chunks[serial][1])
        self.doubtful += chunks.pop(oldest)[0]
        for chunk, _ in reversed(chunks.values()):
            self.queue.extendleft(reversed(chunk))
        self._main.abandon()
        self._main = Readers(self._pipeline, self._workers)
        self._patience = min(2 * self._patience, MOST_PATIENCE)

    def _interrupt_slow(self) -> None:
        """Report a slow sample, and move it behind the other suspect samples."""
        single = self._single
        if single is None or not single.chunks:
            return
        (((sample,), started),) = single.chunks.values()
        now = time.monotonic()
        seconds = now - sample.submitted
        if now - started > PATIENCE and seconds > sample.report_after and sample.holders:
            sample.report_after = 2 * seconds
            self._slow(sample, seconds)
        if not sample.holders or (self.doubtful and single.overdue(sample.patience)):
            sample.patience = min(2 * sample.patience, MOST_PATIENCE)
            self.doubtful.append(sample)
            single.abandon()
            self._single = None
