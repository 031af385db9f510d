"""The shared memory that prepared samples lie in: blocks of any size, handed out first fit.

It grows at its end, and gives memory there back. Which samples leave when is cache.py's; what lies
in a block, records.py's.
"""

from __future__ import annotations

import bisect
import os

from ...workers.shared_memory import PAGE, Memory
from ..wire.records import rounded

STEP = 4 << 20
"""Bytes by which it grows, at least."""
SPAN = 64
"""How many times its budget may lie between first and last byte: address space, not memory."""


class Arena:
    """Blocks in shared memory; ``budget`` is what it is expected to hold.

    It takes more where it must. ``memory`` is mapped once, at full length, by whoever reads;
    ``committed`` bytes of it are memory that the system has given.
    """

    def __init__(self, budget: int) -> None:
        self.memory = Memory.sparse(max(budget, STEP) * SPAN, "prepared samples")
        self.committed = 0
        self._starts: list[int] = []  # of free stretches, rising; none touches the next
        self._ends: list[int] = []

    def allocate(self, size: int) -> int:
        """The offset of ``size`` bytes, aligned; WorkerError where there is no memory."""
        size = rounded(size)
        for i, (start, end) in enumerate(zip(self._starts, self._ends)):
            if end - start >= size:
                self._starts[i] = start + size
                if start + size == end:
                    del self._starts[i], self._ends[i]
                return start
        self._grow(size)
        return self.allocate(size)

    def free(self, offset: int, size: int) -> None:
        """Takes a block back."""
        start, end = offset, offset + rounded(size)
        i = bisect.bisect_left(self._starts, start)
        if i < len(self._starts) and self._starts[i] == end:
            end = self._ends[i]
            del self._starts[i], self._ends[i]
        if i and self._ends[i - 1] == start:
            self._ends[i - 1] = end
            return
        self._starts.insert(i, start)
        self._ends.insert(i, end)

    def trim(self) -> None:
        """Gives memory at the end that is free back to the system, whole steps of it."""
        if not self._ends or self._ends[-1] != self.committed:
            return
        keep = -(-self._starts[-1] // STEP) * STEP
        if self.committed - keep < STEP:
            return
        self.memory.discard(keep, self.committed - keep)
        self.committed = self._ends[-1] = keep
        if self._starts[-1] == keep:
            del self._starts[-1], self._ends[-1]

    def read_only(self) -> int:
        """A new descriptor of the memory that cannot be mapped for writing, where there are such.

        A loader's mistake must not change what others read.
        """
        try:
            return os.open(f"/proc/self/fd/{self.memory.fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return os.dup(self.memory.fd)

    def close(self) -> None:
        """Gives everything back; readers keep what they have mapped until they let go."""
        self.memory.close()

    def _grow(self, size: int) -> None:
        more = -(-max(size, STEP) // PAGE) * PAGE
        self.memory.commit(self.committed, more)
        start, self.committed = self.committed, self.committed + more
        self.free(start, more)
