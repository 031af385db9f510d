"""The table of work in shared memory: slices of batches, which workers claim by themselves.

The parent puts units on the board, withdraws and reissues them; a worker claims the oldest one
open to it. The lock belongs to the kernel, which takes it from a process that dies. What becomes
of results is processes.py's.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ...errors import WorkerError
from .engine import AT_ONCE
from .shared_memory import Memory

FREE, OPEN, CLAIMED, WITHDRAWN = range(4)
NOBODY = -1
NO_SAMPLE = AT_ONCE  # no sample in particular
_STATE, _OWNER = 0, 1
_PATIENCE = 10.0  # seconds that the parent waits for the lock; workers hold it for microseconds
_SIGN = 1 << 63


class Unit(NamedTuple):
    """A slice of a batch, as it stands on the board; every number an int64.

    ticket: order and attempt; smaller is older. serial, epoch, shard, start: the
    request's, length its count. seed: its two's complement, with ``seeded`` 0 for none. area,
    place: which memory of indices and where in it the batch's begin; area -1 for a stream. rows:
    the batch's samples; first, last: the slice of them. ring, slot: where to write; ring -1 for
    nowhere. preferred: the only worker that may claim it, or -1.
    """

    ticket: int
    serial: int
    seeded: int
    seed: int
    epoch: int
    area: int
    place: int
    rows: int
    first: int
    last: int
    ring: int
    slot: int
    preferred: int = NOBODY
    shard: int = 0
    start: int = 0
    length: int = 0


_TICKET, _PREFERRED = (2 + Unit._fields.index(name) for name in ("ticket", "preferred"))
_WIDTH = 2 + len(Unit._fields)


class Board:
    """``records`` units and one row a worker, in ``memory`` that every process has mapped."""

    def __init__(self, memory: Memory, records: int, workers: int) -> None:
        self.memory, self.records, self.workers = memory, records, workers
        table = np.frombuffer(memory.buffer, dtype=np.int64, count=records * _WIDTH)
        self._table = table.reshape(records, _WIDTH)
        self._flat = memoryview(memory.buffer).cast("q")
        self._current = records * _WIDTH
        self._sleeping = self._current + workers

    @classmethod
    def create(cls, records: int, workers: int) -> Board:
        """A new board with nothing on it."""
        size = 8 * (records * _WIDTH + 2 * workers)
        board = cls(Memory(size, "the table of work"), records, workers)
        for worker in range(workers):
            board.note(worker, NO_SAMPLE)
        return board

    def close(self) -> None:
        """Gives the memory back."""
        del self._table
        self._flat.release()
        self.memory.close()

    # ---- the parent's side

    def put(self, record: int, unit: Unit) -> None:
        """Opens ``unit`` to the workers, as ``record``."""
        with self._locked(_PATIENCE):
            row = self._table[record]
            row[2:] = unit
            row[_OWNER], row[_STATE] = NOBODY, OPEN

    def withdraw(self, record: int) -> bool:
        """Takes a unit back; False if a worker has it, which stops at its next sample."""
        with self._locked(_PATIENCE):
            row = self._table[record]
            if row[_STATE] == OPEN:
                row[_STATE] = FREE
                return True
            row[_STATE] = WITHDRAWN
            return False

    def free(self, record: int) -> None:
        """Clears a record whose worker has answered or died."""
        self._table[record, _STATE] = FREE

    def owned(self, worker: int) -> list[int]:
        """The records that this worker has claimed and that nobody freed."""
        mine = (self._table[:, _OWNER] == worker) & (self._table[:, _STATE] >= CLAIMED)
        return [int(record) for record in np.flatnonzero(mine)]

    def owner(self, record: int) -> int:
        """The worker that has claimed this record, or ``NOBODY``."""
        row = self._table[record]
        return int(row[_OWNER]) if row[_STATE] >= CLAIMED else NOBODY

    def open_units(self) -> int:
        """How many units nobody has claimed."""
        return int(np.count_nonzero(self._table[:, _STATE] == OPEN))

    def sleepers(self) -> int:
        """How many workers wait to be roused, or are about to."""
        return sum(self._flat[self._sleeping : self._sleeping + self.workers])

    # ---- a worker's side

    def claim(self, worker: int) -> tuple[int, Unit] | None:
        """The oldest unit open to this worker, now its own, and its record; None for none."""
        ### BEGIN YOUR SOLUTION [claim]
        with self._locked(None):
            choices = np.flatnonzero(self._table[:, _STATE] == OPEN)
            preferred = self._table[choices, _PREFERRED]
            choices = choices[(preferred == NOBODY) | (preferred == worker)]
            if not choices.size:
                return None
            record = int(choices[self._table[choices, _TICKET].argmin()])
            row = self._table[record]
            row[_OWNER] = worker
            row[_STATE] = CLAIMED
            return record, Unit(*row[2:].tolist())
        ### END YOUR SOLUTION

    def sleep(self, worker: int, asleep: bool) -> None:
        """Whether this worker wants to be roused; it looks for work once more after saying so."""
        self._flat[self._sleeping + worker] = int(asleep)

    def wanted(self, record: int) -> bool:
        """Whether a unit that was claimed has not been withdrawn since."""
        return bool(self._flat[record * _WIDTH + _STATE] == CLAIMED)

    def note(self, worker: int, sample: int) -> None:
        """Which sample this worker is about to read; ``NO_SAMPLE`` for none."""
        self._flat[self._current + worker] = sample

    def current(self, worker: int) -> int:
        """The sample that ``note`` was told last."""
        return int(self._flat[self._current + worker])

    @contextmanager
    def _locked(self, patience: float | None) -> Iterator[None]:
        fd = self.memory.fd
        if patience is None:
            fcntl.lockf(fd, fcntl.LOCK_EX)
        else:
            _lock_patiently(fd, patience)
        try:
            yield
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN)


def signed(value: int) -> int:
    """A number below 2**64 as the int64 with the same bits."""
    return value - 2 * _SIGN if value >= _SIGN else value


def unsigned(value: int) -> int:
    """Undoes ``signed``."""
    return value + 2 * _SIGN if value < 0 else value


def _lock_patiently(fd: int, patience: float) -> None:
    end = time.monotonic() + patience
    while not _lock_at_once(fd):
        if time.monotonic() > end:
            raise WorkerError(
                "DataLoader: a worker process stopped while it took work, and holds the table "
                "of work; continue it (SIGCONT), or close the loader"
            )
        time.sleep(50e-6)


def _lock_at_once(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
