"""Memory for prepared samples: blocks of shared memory, the cache, and the spill file.

feed.py allocates a block of the ``Arena`` for each sample and asks the ``SampleCache`` which
samples leave. A sample that leaves although an epoch still needs it goes to the ``SpillFile``.
Nothing here uses threads or a clock.
"""

from __future__ import annotations

import bisect
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from ....errors import WorkerError
from ...workers.shared_memory import PAGE, Memory, readable_bytes
from ..wire.sample_layout import rounded

STEP = 4 << 20
"""Minimum number of bytes by which an arena grows."""
PURPOSE = "prepared samples"

Key = TypeVar("Key", bound=Hashable)
Payload = TypeVar("Payload")


class Arena:
    """Blocks of any size in one shared memory, allocated first fit.

    memory: mapped again at twice the size when it is full, by readers too. committed: the bytes of
    it that the system has provided.
    """

    def __init__(self) -> None:
        self.memory = Memory.sparse(STEP, PURPOSE)
        self.committed = 0
        self._starts: list[int] = []  # of free stretches, rising; none touches the next
        self._ends: list[int] = []

    def allocate(self, size: int) -> int:
        """Return the aligned offset of ``size`` bytes; WorkerError if the memory is exhausted."""
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
        """Take a block back."""
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
        """Return free memory at the end to the system, in whole steps."""
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
        """Return a new descriptor of the memory, read-only where the system can make one.

        A bug in a loader must not change what other loaders read.
        """
        try:
            return os.open(f"/proc/self/fd/{self.memory.fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return os.dup(self.memory.fd)

    def close(self) -> None:
        """Release the memory; readers keep what they have mapped."""
        self.memory.close()

    def _grow(self, size: int) -> None:
        more = -(-max(size, STEP) // PAGE) * PAGE
        if self.committed + more > self.memory.size:
            self._map(max(self.committed + more, 2 * self.memory.size))
        self.memory.commit(self.committed, more)
        start, self.committed = self.committed, self.committed + more
        self.free(start, more)

    def _map(self, size: int) -> None:
        fd = os.dup(self.memory.fd)
        try:
            os.ftruncate(fd, size)
            larger = Memory.attach(fd, size, writable=True)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise WorkerError(
                f"server: cannot map {readable_bytes(size)} for {PURPOSE} ({error}); raise the "
                "limit of the address space (ulimit -v), or lower batch_size or credits"
            ) from error
        self.memory.close()
        self.memory, larger.purpose = larger, PURPOSE


class SpillFile:
    """Bytes by key in a nameless temporary file, written as a ring of ``limit_bytes``.

    The newest bytes overwrite the oldest. folder: of the file, by default the system's folder for
    temporary files. Raises OSError if the file cannot be made.
    """

    def __init__(self, limit_bytes: int, folder: str | os.PathLike[str] | None = None) -> None:
        if limit_bytes <= 0:
            raise ValueError(f"SpillFile: limit_bytes must be above 0, got {limit_bytes}")
        self.limit_bytes = limit_bytes
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # mode 0600
        self._places: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()  # oldest first
        self._head = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    def write(self, key: Hashable, data: Any) -> bool:
        """Keep these bytes; return False if there are none or too many, or the disk is full."""
        view = memoryview(data).cast("B")
        length = len(view)
        if not 0 < length <= self.limit_bytes:
            return False
        if self._head + length > self.limit_bytes:
            self._free(self._head, self.limit_bytes)
            self._head = 0
        start, end = self._head, self._head + length
        self._free(start, end)
        self._places.pop(key, None)
        try:
            written = os.pwrite(self._file.fileno(), view, start)
        except OSError:
            return False
        if written < length:
            return False
        self._places[key] = (start, length)
        self._head = end
        return True

    def read(self, key: Hashable) -> bytes | None:
        """Return the bytes kept under this key; None if there are none any more."""
        if key not in self._places:
            return None
        start, length = self._places[key]
        data = os.pread(self._file.fileno(), length, start)
        return data if len(data) == length else None

    def close(self) -> None:
        """Release the disk space."""
        self._places.clear()
        self._file.close()

    def _free(self, start: int, end: int) -> None:
        """Forget what lies there: the oldest entries, which the ring reaches in their order."""
        while self._places:
            place, length = next(iter(self._places.values()))
            if not (place < end and place + length > start):
                break
            self._places.popitem(last=False)


@dataclass
class CacheStatistics:
    """Counts since the start, and the present contents; bytes are of memory, not of the file."""

    evictions: int = 0
    refused: int = 0
    spilled: int = 0
    recalled: int = 0
    entries: int = 0
    bytes: int = 0
    held_bytes: int = 0
    pool_bytes: int = 0


@dataclass
class _Entry(Generic[Payload]):
    payload: Payload
    nbytes: int
    holders: int
    queue: int = -1  # the need under which it waits for eviction; -1 while it is held


class SampleCache(Generic[Key, Payload]):
    """Samples by key. Held samples stay; the others together take at most ``limit_bytes``.

    Samples that no epoch needs form a pool of at most ``pool_bytes`` of the limit and leave first,
    least recently used first. Then leave the samples that the fewest epochs need, oldest first.

    need: returns how many epochs still miss a key; called when a key is used and before it is
    evicted. on_evict: called with the key and payload of every sample that leaves. spill: file for
    evicted samples that are still needed, written as ``to_bytes(payload)``.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        need: Callable[[Key], int],
        pool_bytes: int = 0,
        on_evict: Callable[[Key, Payload], None] | None = None,
        spill: SpillFile | None = None,
        to_bytes: Callable[[Payload], Any] = lambda payload: payload,
    ) -> None:
        if limit_bytes < 0 or not 0 <= pool_bytes <= limit_bytes:
            raise ValueError(
                "SampleCache: 0 <= pool_bytes <= limit_bytes must hold, got "
                f"{pool_bytes} and {limit_bytes}; the pool is a part of the limit"
            )
        self.limit_bytes, self._pool_limit, self._need = limit_bytes, pool_bytes, need
        self._on_evict, self._spill, self._to_bytes = on_evict, spill, to_bytes
        self._entries: dict[Key, _Entry[Payload]] = {}
        self._queues: dict[int, OrderedDict[Key, None]] = {}
        self._counts = CacheStatistics()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def put(self, key: Key, payload: Payload, nbytes: int, *, holders: int = 0) -> bool:
        """Add a sample that is held ``holders`` times, evicting others if needed.

        Return False, with nothing changed, if the key is there already or a sample that nobody
        holds exceeds the limit. What nobody holds or needs stays only if the pool has room.
        """
        if key in self._entries or not self._make_room(0 if holders else nbytes):
            self._counts.refused += 1
            return False
        entry = self._entries[key] = _Entry(payload, nbytes, holders)
        self._counts.bytes += nbytes
        if holders:
            self._counts.held_bytes += nbytes
        else:
            self._enqueue(key, entry)
            self._trim_pool()
        return True

    def hold(self, key: Key) -> Payload:
        """Add a holder, so that the sample cannot leave; KeyError if it is not there."""
        entry = self._entries[key]
        if not entry.holders:
            self._dequeue(key, entry)
            self._counts.held_bytes += entry.nbytes
        entry.holders += 1
        return entry.payload

    def release(self, key: Key) -> None:
        """Remove a holder; what nobody holds or needs leaves now, unless the pool keeps it."""
        entry = self._entries[key]
        assert entry.holders, f"release of {key!r}, which nobody holds"
        entry.holders -= 1
        if not entry.holders:
            self._counts.held_bytes -= entry.nbytes
            self._enqueue(key, entry)
            self._trim_pool()
            self._make_room(0)

    def recall(self, key: Key) -> bytes | None:
        """Return the bytes of an evicted sample from the spill file; None if it has none."""
        data = None if self._spill is None else self._spill.read(key)
        self._counts.recalled += data is not None
        return data

    def refresh(self) -> None:
        """Query the need of every sample again: a task joined, left or began an epoch."""
        for key, entry in self._entries.items():
            if not entry.holders and self._need(key) != entry.queue:
                self._enqueue(key, entry)
        self._trim_pool()

    def statistics(self) -> dict[str, int]:
        """Return the fields of ``CacheStatistics``."""
        self._counts.entries = len(self._entries)
        return asdict(self._counts)

    def _make_room(self, nbytes: int) -> bool:
        ### BEGIN YOUR SOLUTION [cache-evict]
        counts = self._counts
        if nbytes > self.limit_bytes:
            return False
        while counts.bytes - counts.held_bytes + nbytes > self.limit_bytes:
            self._evict(self._victim())
        return True
        ### END YOUR SOLUTION

    def _victim(self) -> Key:
        """Return the oldest key of the least need, after querying needs that may be outdated."""
        ### BEGIN YOUR SOLUTION [cache-evict]
        while True:
            lowest = min(need for need, keys in self._queues.items() if keys)
            key = next(iter(self._queues[lowest]))
            entry = self._entries[key]
            if self._need(key) == lowest:
                return key
            self._enqueue(key, entry)
        ### END YOUR SOLUTION

    def _evict(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self._dequeue(key, entry)
        self._counts.bytes -= entry.nbytes
        self._counts.evictions += 1
        if self._spill is not None and self._need(key):
            self._counts.spilled += self._spill.write(key, self._to_bytes(entry.payload))
        if self._on_evict:
            self._on_evict(key, entry.payload)

    def _trim_pool(self) -> None:
        while self._counts.pool_bytes > self._pool_limit:
            self._evict(next(iter(self._queues[0])))

    def _enqueue(self, key: Key, entry: _Entry[Payload]) -> None:
        """Move a key behind the others of the same need."""
        self._dequeue(key, entry)
        entry.queue = self._need(key)
        self._queues.setdefault(entry.queue, OrderedDict())[key] = None
        self._counts.pool_bytes += entry.nbytes * (entry.queue == 0)

    def _dequeue(self, key: Key, entry: _Entry[Payload]) -> None:
        if entry.queue >= 0:
            del self._queues[entry.queue][key]
            self._counts.pool_bytes -= entry.nbytes * (entry.queue == 0)
            entry.queue = -1
