"""The engine of worker processes: tickets become entries of the work queue, answers batches.

Workers claim parts of batches from the queue and write them to slots of the ring. A worker that
dies is replaced and its parts are issued again. process_pool.py owns the processes, pending.py the
memory of batches; worker.py is the worker's side.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ...errors import LoaderTimeout, NeedleError, WorkerError
from ..batching.pipeline import Pipeline
from ..samples.pytree import Field, Slice
from ..samples.ticket import NO_SAMPLE, Ticket
from .answers import died, died_too_often, ending, named, read_answer
from .engine import Completed, Engine, smoothed
from .launch import check_method
from .messages import BROKEN, READY, WorkerAnswer, unpack_error
from .pending import MOST_PARTS, Batch, BatchMemory, Part, part_count
from .pickling import explain_failure, pack
from .process_pool import ProcessPool, WorkerHandle
from .shared_memory import Memory
from .work_queue import ANY_WORKER, Entry, WorkQueue, key_of

_HELD = 2  # batches that the consumer may hold in slots; further ones are copied
_DEATHS = 3  # deaths of workers at one sample before an error
_ATTEMPTS = 20  # issues of one part, whatever the reason of the deaths
_START_DEATHS, _START_KILLS = 2, 6  # deaths in succession before an error: by itself, by a signal


class ProcessEngine(Engine):
    """Prepares batches in ``workers`` processes.

    prefetch: batches in flight beyond the one that is used, per worker if batches are not divided.
    start_method: "forkserver" (the default), "spawn" (on macOS) or "fork". restart_workers:
    replace a worker that died and issue its samples again, else raise WorkerError. held_slots:
    batches that the consumer can hold without a copy. pin: lets a device read the memory of batches
    while its result is held.
    Raises TypeError that names the unpicklable part of the data set, WorkerError if memory or the
    system does not suffice; no process has been started then.
    """

    name = "processes"

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        workers: int,
        prefetch: int = 2,
        start_method: str | None = None,
        restart_workers: bool = True,
        held_slots: int = _HELD,
        pin: Callable[[Any], Any] | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"DataLoader: needs at least one worker, got {workers}")
        self.workers, self.restart_workers = workers, restart_workers
        self.held_slots, self._pin = max(1, held_slots), pin
        self.start_method = check_method("DataLoader", start_method)
        self.splits = bool(pipeline.splits)
        ahead = max(1, prefetch)
        self.capacity = max(ahead + 1, workers) if self.splits else ahead * workers
        self._pipeline_layout: list[Field] | None = pipeline.layout()
        self._pipeline = pipeline if self.start_method == "fork" else None
        self._packed = None if self.start_method == "fork" else _packed(pipeline)
        if self._packed is not None:
            weakref.finalize(self, self._packed.close)
        self._closed, self._pid = False, os.getpid()
        self._open()

    def _open(self) -> None:
        """Create the shared state, and the process that will start the workers."""
        shared = ExitStack()  # holds no reference to the engine; closes the processes first
        self._finalizer = weakref.finalize(self, shared.close)
        self._records: deque[int] = deque(range(self.capacity * MOST_PARTS + self.workers))
        self._queue = WorkQueue.create(len(self._records), self.workers)
        shared.callback(self._queue.close)
        self._pool = ProcessPool(self.workers, self.start_method, self._pipeline)
        self._memory = BatchMemory(
            self._pool, self.capacity, self.held_slots, self._pipeline_layout, self._pin
        )
        shared.callback(self._memory.close)
        shared.callback(self._pool.close)
        self._pool.prepare()
        self._pool.share("queue", 0, self._queue.memory, (self._queue.records, self._queue.workers))
        if self._packed is not None:
            self._pool.share("pipeline", 0, self._packed)
        self._parts: dict[int, Part] = {}
        self._batches: dict[int, Batch] = {}
        self._complete: deque[Batch] = deque()
        self._orders, self._start_deaths = 0, 0
        self._sample_seconds: float | None = None
        self._fatal: NeedleError | None = None
        self._torn = False

    # ---- the engine's interface

    def start(self) -> None:
        """Start the workers; WorkerError if that fails."""
        self._check_usable()
        self._pool.fill()

    def submit(self, ticket: Ticket) -> None:
        """Put the batch's parts into the work queue; the first call starts the workers."""
        self._check_usable()
        if self._torn:
            self._start_over()
        self._torn = True
        if len(self._pool.members) < self.workers:
            self._pool.fill()
        while len(self._records) < MOST_PARTS:
            self._hear(0.01)
        batch = Batch(ticket, ticket.samples)
        self._batches[ticket.serial] = batch
        self._memory.place(batch)
        for part in self._cut(batch):
            self._issue(part)
        if ticket.is_stream:
            self._pool.wake_one(ticket.shard % self.workers)
        else:
            self._pool.wake(min(len(batch.parts), self._queue.sleepers()))
        self._torn = False

    def collect(self, timeout: float | None = None) -> Completed:
        """Return the next complete batch; see ``Engine.collect``."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            found = self._heard(left)
            if found is not None:
                return found
            if left == 0:
                raise LoaderTimeout(self._waited_for(timeout))

    def take(self) -> Completed | None:
        """Return a complete batch or None; see ``Engine.take``."""
        return self._heard(0.0)

    def cancel(self) -> None:
        """Withdraw all tickets; a part that was begun stops at its next sample."""
        self._check_usable()
        if self._torn:
            self._start_over()
        self._torn = True
        for batch in self._batches.values():
            self._abandon(batch, 0)
            batch.cancelled = True
            self._memory.release(batch)
        self._batches.clear()
        self._complete.clear()
        self._fatal, self._start_deaths = None, 0
        self._pool.clear_wakeups()
        self._torn = False
        self._hear(0)

    def close(self) -> None:
        """End the workers within a second and free shared memory; held batches stay valid."""
        if not self._closed:
            self._closed = True
            self._finalizer()
            if self._packed is not None:
                self._packed.close()
            self._parts.clear()
            self._batches.clear()
            self._complete.clear()

    def process_ids(self) -> list[int]:
        """Return the ids of the running worker processes."""
        return [member.child.pid for member in self._pool.members.values()]

    def descriptors(self) -> list[int]:
        """Return the descriptors of the workers; see ``Engine.descriptors``."""
        return self._pool.descriptors() if self._batches else []

    # ---- from a ticket to entries of the work queue

    def _cut(self, batch: Batch) -> list[Part]:
        count = 1
        if self.splits:
            sample = self._sample_seconds
            seconds = None if sample is None else batch.rows * sample
            count = part_count(batch.rows, self.workers, self.capacity, seconds)
        for i in range(count):
            self._orders += 1
            first, last = batch.rows * i // count, batch.rows * (i + 1) // count
            batch.parts.append(Part(batch, first, last, self._orders))
        return batch.parts

    def _issue(self, part: Part) -> None:
        record, batch = self._records.popleft(), part.batch
        self._parts[record] = part
        batch.records.add(record)
        ticket = batch.ticket
        entry = Entry(
            part.number,
            ticket.shard % self.workers if ticket.is_stream else ANY_WORKER,
            batch.area,
            batch.offset,
            batch.rows,
            part.first,
            part.last,
            batch.ring.generation if batch.ring is not None else -1,
            batch.slot,
            *key_of(ticket),
        )
        self._queue.put(record, entry)

    # ---- from answers to batches

    def _heard(self, timeout: float | None) -> Completed | None:
        """Return a batch that is complete, after at most one wait for answers; else None."""
        self._check_usable()
        for last in (False, True):
            if self._torn:
                self._start_over()
                raise WorkerError(
                    "DataLoader: preparing batches was interrupted; begin a new epoch"
                )
            if self._fatal is not None:
                raise self._fatal
            if self._complete:
                return self._deliver(self._complete.popleft())
            if not self._batches:
                raise ValueError("DataLoader: collect needs a submitted ticket; call submit first")
            if not last:
                self._hear(timeout)
        return None

    def _hear(self, timeout: float | None) -> None:
        """Handle the messages of the workers; an interruption inside leaves ``_torn`` set."""
        ready = self._pool.wait(timeout)
        if not ready:
            return
        self._torn = True
        for member, answer in self._pool.read(ready):
            if answer is None:
                self._on_worker_death(member)
            elif answer.kind == READY:
                member.ready, self._start_deaths = True, 0
            elif answer.kind == BROKEN:
                self._broken(member, answer)
            else:
                self._answered(member, answer)
        self._torn = False

    def _answered(self, member: WorkerHandle, answer: WorkerAnswer) -> None:
        part = self._parts.get(answer.record)
        result = read_answer(member, answer, part)
        if part is None or part.number != answer.number:
            return
        self._remove(answer.record)
        batch = part.batch
        for stage, seconds in answer.seconds.items():
            batch.seconds[stage] = batch.seconds.get(stage, 0.0) + seconds
        if isinstance(result, Slice):
            part.done = result
            self._learn(result, answer.seconds)
        elif result is not None:
            self._failed(part, result)
        self._check_complete(batch)

    def _learn(self, done: Slice, seconds: dict[str, float]) -> None:
        """Update the estimated time of a sample, and learn the leaves of batches."""
        if done.samples:
            self._sample_seconds = smoothed(self._sample_seconds, seconds, done.samples)
            self._memory.learn(done)

    def _failed(self, part: Part, error: BaseException) -> None:
        """Record the error of a part; later parts of the batch are not needed any more."""
        batch = part.batch
        if not batch.cancelled and (batch.error is None or part.first < batch.error[0]):
            batch.error = part.first, error
        self._abandon(batch, part.last)

    def _check_complete(self, batch: Batch) -> None:
        """Mark the batch as complete if every part that matters is done."""
        if batch.cancelled:
            self._memory.release(batch)
            return
        end = batch.rows + 1 if batch.error is None else batch.error[0]
        if all(part.done is not None for part in batch.parts if part.first < end):
            batch.cancelled = batch.error is not None  # running parts are not used
            self._complete.append(batch)

    def _deliver(self, batch: Batch) -> Completed:
        self._torn = True
        done = Completed(batch.ticket, seconds=batch.seconds)
        self._batches.pop(batch.ticket.serial, None)
        if batch.error is not None:
            done.error, batch.error = batch.error[1], None  # running parts must not keep it
        else:
            try:
                joined = self._memory.assemble(batch)
                done.batch, done.samples = joined.batch(), joined.samples
                done.structure = joined.structure
            except Exception as error:
                done.error = error
        self._memory.release(batch)
        self._torn = False
        return done

    # ---- withdrawing, and giving back

    def _abandon(self, batch: Batch, first: int) -> None:
        """Withdraw the parts from row ``first`` on; those begun answer that they stopped."""
        for record in list(batch.records):
            if self._parts[record].first >= first and self._queue.withdraw(record):
                self._remove(record)

    def _remove(self, record: int) -> None:
        part = self._parts.pop(record)
        part.batch.records.discard(record)
        self._queue.free(record)
        self._records.append(record)

    # ---- workers that die

    def _on_worker_death(self, member: WorkerHandle) -> None:
        """Replace a dead worker and issue its parts again, or make its death an error."""
        owned = self._queue.owned(member.number)
        if not member.ready:
            self._died_starting(member)
        elif not self.restart_workers:
            parts = [self._parts[record] for record in owned]
            self._fatal = died(member, parts, self._queue.current(member.number))
        for record in owned:
            self._reissue(member, record)
        self._queue.note(member.number, NO_SAMPLE)
        self._queue.sleep(member.number, False)
        if self._fatal is None:
            try:
                self._pool.fill()
            except WorkerError as error:
                self._fatal = error
            self._pool.wake(self._queue.open_entries())

    def _reissue(self, member: WorkerHandle, record: int) -> None:
        part = self._parts[record]
        self._remove(record)
        batch = part.batch
        sample = self._queue.current(member.number)
        part.deaths[sample] += 1
        part.attempt += 1
        if batch.cancelled:
            self._memory.release(batch)
        elif part.deaths[sample] >= _DEATHS or part.attempt >= _ATTEMPTS:
            self._failed(part, died_too_often(member, part, sample))
            self._check_complete(batch)
        else:
            self._issue(part)

    def _died_starting(self, member: WorkerHandle) -> None:
        self._start_deaths += 1
        code = member.child.code  # None if it died with its supervisor
        limit = _START_KILLS if code is None or code < 0 else _START_DEATHS
        if self._start_deaths >= limit and self._fatal is None:  # a worker's own message is clearer
            self._fatal = WorkerError(
                f"DataLoader: worker processes die while they start ({ending(member)}); look for "
                f"their message above, or use engine='threads'"
            )

    def _broken(self, member: WorkerHandle, answer: WorkerAnswer) -> None:
        """Record that a worker cannot unpickle the pipeline; no other worker could."""
        cause = unpack_error(answer.payload, str(member))
        self._fatal = WorkerError(
            f"DataLoader: {member} could not unpickle the data set ({cause!r}); what it needs "
            f"must be importable in a new process, else take engine='threads'"
        )
        self._fatal.__cause__ = cause.__cause__

    def _waited_for(self, timeout: float | None) -> str:
        places = [
            f"{member} is at {named(self._parts[record], self._queue.current(member.number))}"
            for member in self._pool.members.values()
            for record in self._queue.owned(member.number)
            if record in self._parts
        ]
        return (
            f"DataLoader: a batch must be ready within timeout={timeout} s, got none; "
            f"{'; '.join(places) or 'no worker has begun one'}; give it more time"
        )

    # ---- states of the engine itself

    def _check_usable(self) -> None:
        if self._closed:
            raise ValueError("DataLoader: its worker processes are closed; make a new loader")
        if os.getpid() != self._pid:
            raise WorkerError(
                "DataLoader: its worker processes belong to another process, which forked this "
                "one; make a new loader here"
            )

    def _start_over(self) -> None:
        """Recreate everything but the data set, after an interruption at an inconsistent moment."""
        self._finalizer()
        self._open()


def _packed(pipeline: Pipeline) -> Memory:
    try:
        return pack(pipeline, "the data set")
    except WorkerError:
        raise
    except Exception as error:
        raise explain_failure(pipeline, "pipeline", error) from error
