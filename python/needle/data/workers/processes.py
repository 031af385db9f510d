"""The engine of worker processes: tickets become queue entries, answers become batches.

Workers claim parts of batches from the work queue and write them to slots of the ring buffer. A
worker that dies is replaced and its parts are reissued. process_pool.py owns the processes,
pending.py owns the memory of batches, and worker.py runs in the workers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ...contexts import finalize
from ...errors import LoaderTimeout, NeedleError, WorkerError, warn_caller
from ..batching.pipeline import Pipeline
from ..samples.pytree import Field
from ..samples.ticket import NO_SAMPLE, Ticket
from ..samples.timing import MOST_PARTS, add_seconds, parts_of, smoothed
from .deaths import Deaths, named
from .engine import Completed, Engine, closed_meanwhile
from .launch import SupervisorKilled, check_system
from .messages import BROKEN, DIED, READY
from .pending import Batch, BatchMemory, Part
from .pickling import Stamp, explain_failure, pack, stamp_of
from .process_pool import ProcessPool, WorkerHandle
from .shared_memory import Memory
from .work_queue import ANY_WORKER, Entry, WorkQueue


class ProcessEngine(Engine):
    """The engine that prepares batches in ``workers`` processes.

    prefetch: the number of batches prepared ahead, per worker if batches are not split. pin:
    registers the memory of batches with a device, which may read it as long as the result of
    ``pin`` is referenced. Raises TypeError, which names the unpicklable part of the data set, and
    WorkerError if there is not enough memory or the system cannot run workers; in either case no
    worker has been started.
    """

    name = "processes"

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        workers: int,
        prefetch: int = 2,
        pin: Callable[[Any], Any] | None = None,
    ) -> None:
        check_system()
        self.workers, self._pin = workers, pin
        self._ahead = max(1, prefetch)
        self._take(pipeline, _packed(pipeline), stamp_of(pipeline))
        self._closed, self._pid = False, os.getpid()
        self._using = threading.RLock()  # owned by the thread that submits or collects
        self._open()

    def _take(self, pipeline: Pipeline, packed: Memory, stamp: Stamp) -> None:
        """Use the pipeline for workers that start from now on."""
        self.splits = bool(pipeline.splits)
        self.capacity = max(self._ahead + 1, self.workers)
        if not self.splits:
            self.capacity = self._ahead * self.workers
        self._pipeline_layout: list[Field] | None = pipeline.layout()
        self._packed, self._stamp = packed, stamp
        finalize(self, packed.close)

    def renew(self, pipeline: Pipeline) -> bool:
        """Start new workers if the new pipeline differs from the copy that the workers have.

        Warns if it has changed and can no longer be pickled; the workers then keep their copy.
        """
        with self._using:
            stamp = stamp_of(pipeline)
            if self._closed or stamp == self._stamp:
                return False
            try:
                packed = _packed(pipeline)
            except TypeError as error:
                self._stamp = stamp
                warn_caller(f"{error}; the workers keep their copy", RuntimeWarning)
                return False
            self._packed.close()
            self._take(pipeline, packed, stamp)
            self._start_over()
            return True

    def _open(self) -> None:
        """Create the shared state, and start the supervisor that starts the workers."""
        shared = ExitStack()  # holds no reference to the engine; closes the processes first
        self._finalizer = finalize(self, shared.close)
        self._records: deque[int] = deque(range(self.capacity * MOST_PARTS + self.workers))
        self._queue = WorkQueue.create(len(self._records), self.workers)
        shared.callback(self._queue.close)
        self._pool = ProcessPool(self.workers)
        self._memory = BatchMemory(self._pool, self.capacity, self._pipeline_layout, self._pin)
        shared.callback(self._memory.close)
        shared.callback(self._pool.close)
        self._pool.prepare()
        self._pool.share("queue", 0, self._queue.memory, (self._queue.records, self._queue.workers))
        self._pool.share("pipeline", 0, self._packed)
        self._parts: dict[int, Part] = {}
        self._batches: dict[int, Batch] = {}
        self._complete: deque[Batch] = deque()
        self._orders, self._deaths = 0, Deaths()
        self._sample_seconds: float | None = None
        self._fatal: NeedleError | None = None
        self._torn = False

    # ---- the engine's interface

    def start(self) -> None:
        """Start the workers; raise WorkerError if that fails."""
        with self._using:
            self._check_usable()
            self._fill()

    def submit(self, ticket: Ticket) -> None:
        """Add the parts of the batch to the work queue; the first call starts the workers."""
        with self._using:
            self._check_usable()
            if self._torn:
                self._start_over()
            self._torn = True
            self._fill()
            while len(self._records) < MOST_PARTS:
                self._hear(0.01)
                self._check_usable()
            batch = Batch(ticket, ticket.samples)
            self._batches[ticket.serial] = batch
            self._memory.place(batch)
            for part in self._cut(batch):
                self._issue(part)
            only = ticket.shard % self.workers if ticket.is_stream else ANY_WORKER
            self._pool.wake(self._queue.awakened(len(batch.parts), only))
            self._torn = False

    def collect(self, timeout: float | None = None) -> Completed:
        """Return the next complete batch; see ``Engine.collect``."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            with self._using:
                found = self._next_complete()
                if found is None:
                    self._hear(left)
                    found = self._next_complete()
            if found is not None:
                return found
            if left == 0:
                raise LoaderTimeout(self._waited_for(timeout))

    def cancel(self) -> None:
        """Withdraw all tickets; a worker abandons a claimed part at its next sample."""
        with self._using:
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
            self._fatal, self._deaths = None, Deaths()
            self._torn = False
            self._hear(0)

    def close(self) -> None:
        """Stop the workers within a second and free shared memory; held batches stay valid."""
        if self._closed:
            return
        self._closed = True
        # forked child: the thread that held the lock does not exist here
        if os.getpid() != self._pid:
            self._using = threading.RLock()
        else:
            # makes a ``collect`` that waits in another thread release the lock
            self._pool.hang_up()
        with self._using:
            self._finalizer()
            self._packed.close()
            self._parts.clear()
            self._batches.clear()
            self._complete.clear()

    def process_ids(self) -> list[int]:
        """Return the ids of the running worker processes."""
        return [member.pid for member in self._pool.members.values()]

    # ---- from a ticket to entries of the work queue

    def _cut(self, batch: Batch) -> list[Part]:
        parts = [slice(0, batch.rows)]
        if self.splits:
            parts = parts_of(batch.rows, self.workers, self.capacity, self._sample_seconds)
        for rows in parts:
            self._orders += 1
            batch.parts.append(Part(batch, rows.start, rows.stop, self._orders))
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
            part.first,
            part.last,
            batch.ring.generation if batch.ring is not None else -1,
            batch.slot,
        )
        self._queue.put(record, entry)

    # ---- from answers to batches

    def _next_complete(self) -> Completed | None:
        """Return a completed batch, or None if there is none yet."""
        self._check_usable()
        if self._torn:
            self._start_over()
            raise WorkerError("DataLoader: preparing batches was interrupted; begin a new epoch")
        if self._fatal is not None:
            raise self._fatal
        if self._complete:
            return self._deliver(self._complete.popleft())
        if not self._batches:
            raise ValueError("DataLoader: collect needs a submitted ticket; call submit first")
        return None

    def _hear(self, timeout: float | None) -> None:
        """Handle the workers' messages; an interrupt meanwhile leaves ``_torn`` set."""
        if self._batches and len(self._pool.members) < self.workers:
            self._fill()
            pause = self._deaths.wait_seconds()
            timeout = pause if timeout is None else min(pause, timeout)
        ready = self._pool.wait(timeout)
        if not ready or self._closed:
            return
        torn, self._torn = self._torn, True
        for member, (kind, record, number, answer) in self._pool.read(ready):
            if kind == DIED:
                self._on_worker_death(member)
            elif kind == READY:
                member.ready = True
                self._deaths.started()
            elif kind == BROKEN:
                self._fatal = _not_unpickled(member, answer)
            elif record in self._parts and self._parts[record].number == number:
                self._answered(record, answer)
        self._torn = torn

    def _answered(self, record: int, answer: Completed) -> None:
        """Process the answer to a part; the answer is empty if the part was withdrawn."""
        part = self._parts[record]
        self._remove(record)
        batch = part.batch
        add_seconds(batch.answer.seconds, answer.seconds)
        if answer.error is not None:
            self._failed(part, answer.error)
        elif not batch.cancelled:
            part.done = answer.made
            self._deaths.finished(part)
            if answer.samples:
                before = self._sample_seconds
                self._sample_seconds = smoothed(before, answer.seconds, answer.samples)
                self._memory.learn(answer.made)
        self._check_complete(batch)

    def _failed(self, part: Part, error: BaseException) -> None:
        """Record the error of a part; the later parts of the batch are no longer needed."""
        batch = part.batch
        if not batch.cancelled and not 0 <= batch.failed <= part.first:
            batch.failed, batch.answer.error = part.first, error
        self._abandon(batch, part.last)

    def _check_complete(self, batch: Batch) -> None:
        """Mark the batch as complete once every part up to the first error is done."""
        if batch.cancelled:
            self._memory.release(batch)
            return
        end = batch.rows + 1 if batch.failed < 0 else batch.failed
        if all(part.done is not None for part in batch.parts if part.first < end):
            batch.cancelled = batch.failed >= 0  # ignore the parts that are still running
            self._complete.append(batch)

    def _deliver(self, batch: Batch) -> Completed:
        self._torn = True
        self._batches.pop(batch.ticket.serial, None)
        # parts that are still running must not keep the answer alive
        done, batch.answer = batch.answer, Completed(batch.ticket)
        if done.error is None:
            try:
                done.made = self._memory.assemble(batch)
            except Exception as error:
                done.error = error
        self._memory.release(batch)
        self._torn = False
        return done

    # ---- withdrawing, and giving back

    def _abandon(self, batch: Batch, first: int) -> None:
        """Withdraw the parts from row ``first`` on; workers report the claimed ones as dropped."""
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
        """Replace a dead worker and reissue its parts, or turn its death into an error."""
        owned = self._queue.owned(member.number)
        if not member.ready:
            self._fatal = self._fatal or self._deaths.starting(member)
        for record in owned:
            self._reissue(member, record)
        self._queue.note(member.number, NO_SAMPLE)
        self._queue.sleep(member.number, False)
        if self._fatal is None:
            try:
                self._deaths.add(f"{member} {member.ending()}")
                self._fill()
            except WorkerError as error:
                self._fatal = error
            self._pool.wake(self._queue.awakened(self.workers))

    def _reissue(self, member: WorkerHandle, record: int) -> None:
        part = self._parts[record]
        self._remove(record)
        part.attempt += 1
        error = self._deaths.at_sample(member, part, self._queue.current(member.number))
        if part.batch.cancelled:
            self._memory.release(part.batch)
        elif error is not None:
            self._failed(part, error)
            self._check_complete(part.batch)
        else:
            self._issue(part)

    def _fill(self) -> None:
        """Start the missing workers unless the back-off has not yet elapsed."""
        if len(self._pool.members) == self.workers or self._deaths.wait_seconds():
            return
        torn, self._torn = self._torn, True  # after an interrupt, a worker may lack its pipeline
        try:
            self._pool.fill()
        except SupervisorKilled as error:
            self._deaths.starter_killed(error)
        except Exception:
            self._torn = torn
            raise
        self._torn = torn

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
            raise closed_meanwhile()
        if os.getpid() != self._pid:
            raise WorkerError(
                "DataLoader: its worker processes belong to the process that forked this one; "
                "make a new loader here"
            )

    def _start_over(self) -> None:
        """Recreate all state but the pickled data set, and start new workers."""
        self._finalizer()
        self._open()


def _packed(pipeline: Pipeline) -> Memory:
    try:
        return pack(pipeline, "the data set")
    except WorkerError:
        raise
    except Exception as error:
        raise explain_failure(pipeline, "pipeline", error) from error


def _not_unpickled(member: WorkerHandle, answer: Completed) -> WorkerError:
    """Return a fatal error: no other worker could unpickle the pipeline either."""
    cause = answer.error
    error = WorkerError(
        f"DataLoader: {member} could not unpickle the data set ({cause!r}); what it needs "
        f"must be importable in a new process, else use engine='threads'"
    )
    error.__cause__ = None if cause is None else cause.__cause__
    return error
