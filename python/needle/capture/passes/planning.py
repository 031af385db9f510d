"""The memory plan, which places each temporary in the arena of its dtype.

Two temporaries may share bytes if their lifetimes do not overlap. An optimal placement is a packing
problem that is hard in general. Placing the largest first (Pisarchyk & Lee 2020, "Efficient Memory
Management for Deep Neural Net Inference", greedy by size) comes close to the lower bound, which is
the peak of live bytes. Each temporary takes the smallest gap that fits between temporaries placed
before it whose lifetimes overlap with its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.base import Backend
from ..buffers import BufferSlot

ALIGNMENT = 64
"""The alignment of each temporary in bytes: a cache line, and the widest SIMD vector."""


@dataclass(frozen=True)
class Plan:
    """A placement of temporaries: where each one starts in its dtype's arena.

    ``sizes`` has the number of elements of each arena.
    """

    places: dict[BufferSlot, int]
    sizes: dict[Any, int]

    @property
    def bytes(self) -> int:
        """The total bytes of all arenas."""
        return sum(size * dtype.itemsize for dtype, size in self.sizes.items())

    def allocate(self, backend: Backend) -> int:
        """Allocate the arenas and bind the temporaries to them; return the total bytes."""
        arenas = {dtype: backend.allocate(size, dtype) for dtype, size in self.sizes.items()}
        for slot, place in self.places.items():
            slot.bind(arenas[slot.dtype], place)
        return self.bytes


def plan(slots: Sequence[BufferSlot]) -> Plan:
    """Return a plan for temporaries whose ``first_use`` and ``last_use`` are set."""
    places: dict[BufferSlot, int] = {}
    sizes: dict[Any, int] = {}
    for dtype in dict.fromkeys(slot.dtype for slot in slots):
        alike = [slot for slot in slots if slot.dtype == dtype]
        alike.sort(key=lambda slot: (-slot.size, slot.first_use))
        placed, sizes[dtype] = _placed(alike, ALIGNMENT // dtype.itemsize)
        places.update(placed)
    return Plan(places, sizes)


def _placed(slots: Sequence[BufferSlot], step: int) -> tuple[dict[BufferSlot, int], int]:
    """Place the slots in the given order at multiples of ``step``; return also the total size."""
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
    """Return the start of the smallest gap of at least ``size`` elements between ranges."""
    if not len(begin):
        return 0
    ends = np.maximum.accumulate(np.concatenate([[0], end]))
    gaps = begin - ends[:-1]
    fits = np.flatnonzero(gaps >= size)
    return int(ends[fits[np.argmin(gaps[fits])]] if len(fits) else ends[-1])
