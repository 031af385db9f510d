"""Prepared samples in bounded memory: who holds one now, how many epochs still need it.

What nobody holds may be evicted: first what no epoch needs (a pool of its own, least recently used
first), then what the fewest need, the oldest of these first. Payloads are opaque. The server asks;
no threads, no clock, and no input or output but that of an optional spill file (spill.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from .spill import SpillFile

Key = TypeVar("Key", bound=Hashable)
Payload = TypeVar("Payload")


@dataclass
class CacheStatistics:
    """Counts since the start, and what is there now; bytes of memory, not of the spill file."""

    hits: int = 0
    misses: int = 0
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
    """Samples by key, together never more than ``limit_bytes``; held ones stay.

    need: how many epochs still miss a key; asked when the key is used and before it is evicted.
    pool_bytes: as much of the limit may keep what no epoch needs now; 0 drops it at once. policy:
    ``"need"``, or ``"lru"`` for least recently used regardless of need. held_apart: the limit is
    for what nobody holds, and what is held comes on top. on_evict: is told the key and payload of
    all that leaves. spill: where evicted samples that are still needed are written, as
    ``to_bytes`` gives them; ``recall`` reads them back.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        need: Callable[[Key], int],
        pool_bytes: int = 0,
        policy: str = "need",
        held_apart: bool = False,
        on_evict: Callable[[Key, Payload], None] | None = None,
        spill: SpillFile | None = None,
        to_bytes: Callable[[Payload], Any] = lambda payload: payload,
    ) -> None:
        if limit_bytes < 0 or not 0 <= pool_bytes <= limit_bytes:
            raise ValueError(
                "SampleCache: 0 <= pool_bytes <= limit_bytes must hold, got "
                f"{pool_bytes} and {limit_bytes}; the pool is a part of the limit"
            )
        if policy not in ("need", "lru"):
            raise ValueError(f"SampleCache: policy must be 'need' or 'lru', got {policy!r}")
        self.limit_bytes, self._held_apart = limit_bytes, held_apart
        self._pool_limit = pool_bytes if policy == "need" else limit_bytes
        self._need = need if policy == "need" else lambda key: 0  # all in the pool, which is LRU
        self._on_evict, self._spill, self._to_bytes = on_evict, spill, to_bytes
        self._entries: dict[Key, _Entry[Payload]] = {}
        self._queues: dict[int, OrderedDict[Key, None]] = {}
        self._counts = CacheStatistics()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, key: Key) -> Payload | None:
        """The payload if it is in memory; counts as a use."""
        entry = self._entries.get(key)
        if entry is None:
            self._counts.misses += 1
            return None
        self._counts.hits += 1
        if not entry.holders:
            self._enqueue(key, entry)
            self._trim_pool()
        return entry.payload

    def put(self, key: Key, payload: Payload, nbytes: int, *, holders: int = 0) -> bool:
        """Keeps a sample, already held ``holders`` times, evicting others for it.

        False, and nothing is changed, where the key is there already or all that could go is too
        little. A sample that nobody holds or needs stays only where the pool has room.
        """
        apart = self._held_apart and holders > 0
        if key in self._entries or not self._make_room(0 if apart else nbytes):
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
        """One holder more: the sample cannot leave; KeyError where it is not there."""
        entry = self._entries[key]
        if not entry.holders:
            self._dequeue(key, entry)
            self._counts.held_bytes += entry.nbytes
        entry.holders += 1
        return entry.payload

    def release(self, key: Key) -> None:
        """One holder less; what nobody holds or needs leaves now, unless the pool keeps it."""
        entry = self._entries[key]
        assert entry.holders, f"release of {key!r}, which nobody holds"
        entry.holders -= 1
        if not entry.holders:
            self._counts.held_bytes -= entry.nbytes
            self._enqueue(key, entry)
            self._trim_pool()
            self._make_room(0)

    def holders(self, key: Key) -> int:
        """How often the key is held; 0 where it is not there."""
        entry = self._entries.get(key)
        return entry.holders if entry else 0

    def recall(self, key: Key) -> bytes | None:
        """The bytes of an evicted sample, from the spill file; None where it has none."""
        data = None if self._spill is None else self._spill.read(key)
        self._counts.recalled += data is not None
        return data

    def refresh(self) -> None:
        """Asks the need of every sample again; for when a task joined, left or began an epoch."""
        for key, entry in self._entries.items():
            if not entry.holders and self._need(key) != entry.queue:
                self._enqueue(key, entry)
        self._trim_pool()

    def clear(self) -> None:
        """Evicts all that nobody holds."""
        for key in [key for key, entry in self._entries.items() if not entry.holders]:
            self._evict(key)

    @property
    def held_bytes(self) -> int:
        """Bytes of what is held now."""
        return self._counts.held_bytes

    def statistics(self) -> dict[str, int]:
        """The fields of ``CacheStatistics``."""
        self._counts.entries = len(self._entries)
        return asdict(self._counts)

    def _make_room(self, nbytes: int) -> bool:
        ### BEGIN YOUR SOLUTION [cache-evict]
        counts = self._counts
        limit = self.limit_bytes + (counts.held_bytes if self._held_apart else 0)
        if nbytes > limit - counts.held_bytes:
            return False
        while counts.bytes + nbytes > limit:
            self._evict(self._victim())
        return True
        ### END YOUR SOLUTION

    def _victim(self) -> Key:
        """The oldest of those whose need is least, after their needs were asked again."""
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
        """Puts it behind the others of the same need."""
        self._dequeue(key, entry)
        entry.queue = self._need(key)
        self._queues.setdefault(entry.queue, OrderedDict())[key] = None
        self._counts.pool_bytes += entry.nbytes * (entry.queue == 0)

    def _dequeue(self, key: Key, entry: _Entry[Payload]) -> None:
        if entry.queue >= 0:
            del self._queues[entry.queue][key]
            self._counts.pool_bytes -= entry.nbytes * (entry.queue == 0)
            entry.queue = -1
