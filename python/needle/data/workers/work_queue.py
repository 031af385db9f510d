"""The work queue in shared memory, from which workers claim parts of batches.

The parent adds, withdraws and reissues entries; a worker claims the oldest entry that it may take.
The lock is a POSIX file lock, which the kernel releases when its owner dies. processes.py handles
the results.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

from ...errors import WorkerError
from ..samples.ticket import NO_SAMPLE
from .shared_memory import Memory

FREE, OPEN, CLAIMED, WITHDRAWN = range(4)
ANY_WORKER = -1
_STATE, _OWNER = 0, 1
_LOCK_SECONDS = 10.0  # timeout of the parent; workers hold the lock for microseconds
_YIELD_SECONDS = 1e-3  # then the parent sleeps; even a short sleep outlasts a worker's claim


class Entry(NamedTuple):
    """A part of a ticket as stored in the queue, a row of int64.

    number: order and attempt of the part; smaller is older. worker: the only worker that may claim
    the entry, or ``ANY_WORKER``. area, offset: the memory of the pickled ticket and its byte offset
    in it. first, last: the range of the part in the ticket's indices. ring, slot: where to write
    the rows; ring is -1 if there is no slot.
    """

    number: int
    worker: int
    area: int
    offset: int
    first: int
    last: int
    ring: int
    slot: int


_NUMBER, _WORKER = (2 + Entry._fields.index(name) for name in ("number", "worker"))
_WIDTH = 2 + len(Entry._fields)


class WorkQueue:
    """A queue of ``records`` entries, and two numbers per worker, in shared memory."""

    def __init__(self, memory: Memory, records: int, workers: int) -> None:
        self.memory, self.records, self.workers = memory, records, workers
        table = np.frombuffer(memory.buffer, dtype=np.int64, count=records * _WIDTH)
        self._table = table.reshape(records, _WIDTH)
        self._flat = memoryview(memory.buffer).cast("q")
        self._current = records * _WIDTH
        self._sleeping = self._current + workers

    @classmethod
    def create(cls, records: int, workers: int) -> WorkQueue:
        """Return a new, empty queue."""
        size = 8 * (records * _WIDTH + 2 * workers)
        queue = cls(Memory(size, "the work queue"), records, workers)
        for worker in range(workers):
            queue.note(worker, NO_SAMPLE)
        return queue

    def close(self) -> None:
        """Free the memory."""
        del self._table
        self._flat.release()
        self.memory.close()

    # ---- the parent's side

    def put(self, record: int, entry: Entry) -> None:
        """Store ``entry`` as ``record``, so that workers can claim it."""
        try:
            _lock_within(self.memory.fd, _LOCK_SECONDS)
            row = self._table[record]
            row[2:] = entry
            row[_OWNER], row[_STATE] = ANY_WORKER, OPEN
        finally:  # also after a Ctrl-C: no `with`, whose exit is a Python function
            fcntl.lockf(self.memory.fd, fcntl.LOCK_UN)

    def withdraw(self, record: int) -> bool:
        """Withdraw an entry; return False if its worker must still stop at its next sample."""
        try:
            _lock_within(self.memory.fd, _LOCK_SECONDS)
            row = self._table[record]
            if row[_STATE] == OPEN:
                row[_STATE] = FREE
                return True
            row[_STATE] = WITHDRAWN
            return False
        finally:
            fcntl.lockf(self.memory.fd, fcntl.LOCK_UN)

    def free(self, record: int) -> None:
        """Free a record after its worker has answered or died."""
        self._table[record, _STATE] = FREE

    def owned(self, worker: int) -> list[int]:
        """Return the records that this worker has claimed and that have not been freed."""
        claimed = self._table[:, _STATE] >= CLAIMED
        return np.flatnonzero(claimed & (self._table[:, _OWNER] == worker)).tolist()

    def awakened(self, count: int, worker: int = ANY_WORKER) -> list[int]:
        """Return up to ``count`` sleeping workers, and record them as awake.

        worker: the only worker to wake, if it is asleep.
        """
        asleep = self._flat[self._sleeping :].tolist()  # a copy: workers write to it meanwhile
        found = (each for each, sleeps in enumerate(asleep) if sleeps)
        chosen = [each for each in found if worker in (ANY_WORKER, each)][:count]
        for each in chosen:
            self.sleep(each, False)
        return chosen

    # ---- a worker's side

    def claim(self, worker: int) -> tuple[int, Entry] | None:
        """Claim the oldest entry that this worker may take; return (record, entry), or None."""
        ### BEGIN YOUR SOLUTION [claim]
        with self._locked():
            choices = np.flatnonzero(self._table[:, _STATE] == OPEN)
            only = self._table[choices, _WORKER]
            choices = choices[(only == ANY_WORKER) | (only == worker)]
            if not choices.size:
                return None
            record = int(choices[self._table[choices, _NUMBER].argmin()])
            row = self._table[record]
            row[_OWNER] = worker
            row[_STATE] = CLAIMED
            return record, Entry(*row[2:].tolist())
        ### END YOUR SOLUTION

    def sleep(self, worker: int, asleep: bool) -> None:
        """Record whether this worker is asleep; it must retry ``claim`` before it sleeps."""
        self._flat[self._sleeping + worker] = int(asleep)

    def wanted(self, record: int) -> bool:
        """Return False if the claimed entry has been withdrawn."""
        return bool(self._flat[record * _WIDTH + _STATE] == CLAIMED)

    def note(self, worker: int, sample: int) -> None:
        """Record the sample that this worker is about to read; ``NO_SAMPLE`` if none."""
        self._flat[self._current + worker] = sample

    def current(self, worker: int) -> int:
        """Return the sample that the worker passed to its latest ``note``."""
        return int(self._flat[self._current + worker])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self.memory.fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.memory.fd, fcntl.LOCK_UN)


def _lock_within(fd: int, seconds: float) -> None:
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        with suppress(BlockingIOError, PermissionError):  # another process holds the lock
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if waited < _YIELD_SECONDS:
            os.sched_yield()
        else:
            time.sleep(50e-6)
    raise WorkerError(
        "DataLoader: a worker process was stopped while it held the lock of the work "
        "queue; continue it (SIGCONT), or close the loader"
    )
