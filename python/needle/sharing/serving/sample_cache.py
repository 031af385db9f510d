"""Memory for prepared samples: an arena of shared memory, a cache, and a store that combines them.

feed.py adds the samples that were read to the ``SampleStore``. The ``SampleCache`` decides which
samples are evicted, and the ``Arena`` reuses their blocks. Nothing here uses threads or a clock.
"""

from __future__ import annotations

import bisect
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Generic, TypeVar

import numpy as np

from ...data.batching.collate import Slice
from ...data.workers.engine import Completed
from ...data.workers.limits import described_limit
from ...data.workers.shared_memory import PAGE, Memory, available, readable_bytes
from ...errors import WorkerError
from ..wire.sample_layout import NUMBER_KINDS, SampleLayout, layout_of, rounded
from .reading import Sample

STEP = 4 << 20
"""Minimum bytes by which an arena grows."""
PURPOSE = "prepared samples"

Key = TypeVar("Key", bound=Hashable)


class Arena:
    """An arena of shared memory with blocks of any size, allocated first fit.

    memory: the shared memory; when it is full, its size is doubled, and readers map it again as
    well. committed: the bytes whose pages are allocated. folder: the folder of an unnamed backing
    file, whose pages the system writes to disk and reads back as needed; None for memory only.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.memory = Memory(STEP, PURPOSE, folder)
        self.committed = self.memory.size
        self._starts = [0]  # free ranges in ascending order, never adjacent
        self._ends = [self.committed]

    def allocate(self, size: int) -> int:
        """Return the aligned offset of ``size`` bytes; raise WorkerError if memory is exhausted."""
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
        """Free a block."""
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

    def read_only(self) -> int:
        """Return a new descriptor of the memory, read-only where the system can make one.

        A fault in one loader must not change what other loaders read.
        """
        try:
            return os.open(f"/proc/self/fd/{self.memory.fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return os.dup(self.memory.fd)

    def close(self) -> None:
        """Release the memory; the mappings of readers stay valid."""
        self.memory.close()

    def _grow(self, size: int) -> None:
        more = -(-max(size, STEP) // PAGE) * PAGE
        if self.committed + more > self.memory.size:
            self._map(max(self.committed + more, 2 * self.memory.size))
        self._commit(more)
        start, self.committed = self.committed, self.committed + more
        self.free(start, more)

    def _commit(self, more: int) -> None:
        """Allocate pages, so that exhausted memory raises an error here, not SIGBUS later."""
        have, need = available(), f"server: {PURPOSE} need {readable_bytes(more)} more"
        remedy = "lower batch_size or credits"
        if have is not None and more > have:
            raise WorkerError(f"{need}, got {readable_bytes(have)}; {remedy}")
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.memory.fd, self.committed, more)
            else:
                os.pwrite(self.memory.fd, bytes(more), self.committed)
        except OSError as error:
            raise WorkerError(f"{need}; {described_limit(error)}; {remedy}") from error

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


@dataclass
class _Entry:
    nbytes: int
    holders: int
    queue: int = -1  # the index of the eviction queue (by need) that it is in; -1 while it is held


class SampleCache(Generic[Key]):
    """A cache of samples by key that keeps held samples and evicts others beyond ``limit_bytes``.

    Samples that the fewest epochs need are evicted first, the least recently used one first. need:
    returns how many epochs still need a key; called when a key is used and before it is evicted.
    pool: keep samples that no epoch needs while there is room. on_evict: called with the key of
    every evicted sample. ``bytes`` and ``held_bytes`` are the sizes of all and of the held samples.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        need: Callable[[Key], int],
        pool: bool = False,
        on_evict: Callable[[Key], None] = lambda key: None,
    ) -> None:
        self.limit_bytes, self.bytes, self.held_bytes = limit_bytes, 0, 0
        self._need, self._pool, self._on_evict = need, pool, on_evict
        self._entries: dict[Key, _Entry] = {}
        self._queues: dict[int, OrderedDict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def put(self, key: Key, nbytes: int, *, holders: int = 0) -> bool:
        """Add a sample that is held ``holders`` times, evicting others if needed.

        Returns False and changes nothing if the key exists already, or if a sample without holders
        exceeds the limit. A sample that no task holds and no epoch needs stays only in a pool.
        """
        if key in self._entries or not self._make_room(0 if holders else nbytes):
            return False
        entry = self._entries[key] = _Entry(nbytes, holders)
        self.bytes += nbytes
        if holders:
            self.held_bytes += nbytes
        else:
            self._enqueue(key, entry)
            self._drop_unneeded()
        return True

    def hold(self, key: Key) -> None:
        """Add a holder, so that the sample is not evicted; raise KeyError for a missing key."""
        entry = self._entries[key]
        if not entry.holders:
            self._dequeue(key, entry)
            self.held_bytes += entry.nbytes
        entry.holders += 1

    def release(self, key: Key) -> None:
        """Remove a holder; evict a sample that no task holds or needs, unless there is a pool."""
        entry = self._entries[key]
        assert entry.holders, f"release of {key!r}, which nobody holds"
        entry.holders -= 1
        if not entry.holders:
            self.held_bytes -= entry.nbytes
            self._enqueue(key, entry)
            self._drop_unneeded()
            self._make_room(0)

    def refresh(self) -> None:
        """Query the need of every sample again, after a task has joined, left or begun an epoch."""
        for key, entry in self._entries.items():
            if not entry.holders and self._need(key) != entry.queue:
                self._enqueue(key, entry)
        self._drop_unneeded()

    def _make_room(self, nbytes: int) -> bool:
        ### BEGIN YOUR SOLUTION [cache-evict]
        if nbytes > self.limit_bytes:
            return False
        while self.bytes - self.held_bytes + nbytes > self.limit_bytes:
            self._evict(self._victim())
        return True
        ### END YOUR SOLUTION

    def _victim(self) -> Key:
        """Return the oldest key that the fewest epochs need, after updating stale counts."""
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
        self.bytes -= entry.nbytes
        self._on_evict(key)

    def _drop_unneeded(self) -> None:
        while not self._pool and self._queues.get(0):
            self._evict(next(iter(self._queues[0])))

    def _enqueue(self, key: Key, entry: _Entry) -> None:
        """Append a key to the eviction queue of its need."""
        self._dequeue(key, entry)
        entry.queue = self._need(key)
        self._queues.setdefault(entry.queue, OrderedDict())[key] = None

    def _dequeue(self, key: Key, entry: _Entry) -> None:
        if entry.queue >= 0:
            del self._queues[entry.queue][key]
            entry.queue = -1


class SampleStore:
    """A store of samples in shared memory, which are cached while held, needed or in the pool.

    limit_bytes, pool: see ``SampleCache``. folder: see ``Arena``. need: returns how many epochs
    still need an index. left: called with every evicted sample. check: called with the size in
    bytes of a sample of a new layout; raises DataError if the size is too large.
    """

    def __init__(
        self,
        limit_bytes: int,
        pool: bool,
        folder: str | None,
        *,
        need: Callable[[int], int],
        left: Callable[[Sample], None],
        check: Callable[[int, Sample], None],
    ) -> None:
        self.arena = Arena(folder)
        self.cache: SampleCache[Sample] = SampleCache(
            limit_bytes,
            need=lambda sample: need(sample.index),
            pool=pool,
            on_evict=self._evicted,
        )
        self.layouts: list[SampleLayout] = []
        self._numbers: dict[SampleLayout, int] = {}
        self._left, self._check = left, check

    def add(self, chunk: list[Sample], answer: Completed) -> Iterator[tuple[Sample, Exception]]:
        """Store samples that an engine has read; yield those that do not fit, with the error."""
        made = answer.made
        try:
            if all(isinstance(x, np.ndarray) and x.dtype.kind in NUMBER_KINDS for x in made.leaves):
                self._write(chunk, made)
                return
        except Exception as error:
            yield from ((sample, error) for sample in chunk)
            return
        for i, sample in enumerate(chunk):  # layouts differ for strings, say
            try:
                self._write([sample], made.rows(slice(i, i + 1)))
            except Exception as error:
                yield sample, error

    def close(self) -> None:
        """Release the shared memory."""
        self.arena.close()

    def _write(self, chunk: list[Sample], made: Slice) -> None:
        """Write samples that share a layout into blocks; row i of each leaf belongs to sample i."""
        assert made.structure is not None, "no sample of a chunk is left out"
        leaves = made.leaves
        layout = layout_of(made.structure, [leaf[0] for leaf in leaves])
        if layout not in self._numbers:
            self._check(layout.nbytes, chunk[0])
            self._numbers[layout] = len(self.layouts)
            self.layouts.append(layout)
        number = self._numbers[layout]
        kept = [self._keep(sample, number, layout.nbytes) for sample in chunk]
        if not all(kept):
            leaves = [list(compress(leaf, kept)) for leaf in leaves]
        offsets = np.array([sample.offset for sample in compress(chunk, kept)], np.int64)
        layout.write(self.arena.memory.buffer, offsets, leaves)

    def _keep(self, sample: Sample, layout: int, nbytes: int) -> bool:
        """Allocate a block; return False if there is no room and no task wants the sample."""
        sample.layout, sample.nbytes = layout, nbytes
        if not self.cache.put(sample, nbytes, holders=sample.holders):
            self._evicted(sample)
        sample.cached = sample in self.cache  # the cache may already have evicted it
        if sample.cached:
            sample.offset = self.arena.allocate(nbytes)
        return sample.cached

    def _evicted(self, sample: Sample) -> None:
        sample.cached = False
        self._left(sample)
        if sample.offset >= 0:
            self.arena.free(sample.offset, sample.nbytes)
            sample.offset = -1
