"""The plan of the memory: each temporary gets a place in one arena for each dtype.

Two temporaries may share bytes if their lifetimes do not overlap. The best places are a packing
problem that is hard in general; two simple orders come close to the lower bound, the largest sum
of live temporaries: the largest temporary first (Pisarchyk & Lee 2020, "Efficient Memory Management
for Deep Neural Net Inference", greedy by size), or the first needed first. Each temporary takes
the smallest gap that is large enough between those that were placed and live at the same time. The
better of the two plans is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.base import Backend
from ..buffers import BufferSlot

ALIGNMENT = 64
"""The alignment of each temporary in bytes: a cache line, and the widest vector."""
ORDERS: tuple[Callable[[BufferSlot], Any], ...] = (
    lambda slot: (-slot.size, slot.first_use),
    lambda slot: (slot.first_use, -slot.size),
)


@dataclass(frozen=True)
class Plan:
    """The place of each temporary: its first element in the arena of its dtype.

    ``sizes`` are the elements of the arenas.
    """

    places: dict[BufferSlot, int]
    sizes: dict[Any, int]

    @property
    def bytes(self) -> int:
        """The bytes of all arenas."""
        return sum(size * dtype.itemsize for dtype, size in self.sizes.items())

    def allocate(self, backend: Backend) -> int:
        """Allocate the arenas and bind the temporaries to their places; return the bytes."""
        arenas = {dtype: backend.allocate(size, dtype) for dtype, size in self.sizes.items()}
        for slot, place in self.places.items():
            slot.bind(arenas[slot.dtype], place)
        return self.bytes


def plan(slots: Sequence[BufferSlot]) -> Plan:
    """Return places for temporaries whose ``first_use`` and ``last_use`` are set."""
    places: dict[BufferSlot, int] = {}
    sizes: dict[Any, int] = {}
    for dtype in dict.fromkeys(slot.dtype for slot in slots):
        alike = [slot for slot in slots if slot.dtype == dtype]
        found = [_placed(sorted(alike, key=order), ALIGNMENT // dtype.itemsize) for order in ORDERS]
        best, sizes[dtype] = min(found, key=lambda each: each[1])
        places.update(best)
    return Plan(places, sizes)


def _placed(slots: Sequence[BufferSlot], step: int) -> tuple[dict[BufferSlot, int], int]:
    """Place the slots in the given order, at multiples of ``step``; return also the total size."""
    places: dict[BufferSlot, int] = {}
    rows = np.zeros((4, len(slots)), "int64")  # first use, last use, begin, end
    for count, slot in enumerate(slots):
        first, last, begin, end = rows[:, :count]
        live = (first <= slot.last_use) & (last >= slot.first_use)
        order = np.argsort(begin[live], kind="stable")
        size = -(-slot.size // step) * step
        place = _best_gap(begin[live][order], end[live][order], size)
        places[slot] = place
        rows[:, count] = slot.first_use, slot.last_use, place, place + size
    return places, int(rows[3].max(initial=0))


def _best_gap(begin: Any, end: Any, size: int) -> int:
    """Return the start of the smallest gap of at least ``size`` between the given ranges."""
    if not len(begin):
        return 0
    ends = np.maximum.accumulate(np.concatenate([[0], end]))
    gaps = begin - ends[:-1]
    fits = np.flatnonzero(gaps >= size)
    return int(ends[fits[np.argmin(gaps[fits])]] if len(fits) else ends[-1])
