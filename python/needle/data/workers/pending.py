"""Batches in flight in worker processes: their parts and their shared memory.

A batch has a position in an area for its indices and a slot of the ring buffer for its rows. Areas
and rings grow with the largest batch seen; an outgrown ring is freed once no batch uses it.
processes.py submits tickets and issues the parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..batching.collate import Slice, concatenate
from ..samples.pytree import Array, Field
from ..samples.ticket import NO_SAMPLE, Ticket
from .engine import Completed
from .process_pool import ProcessPool
from .shared_memory import Memory
from .shared_ring import Layout, Ring, learn_fields

MOST_PARTS = 32
"""The maximum number of parts of a batch."""
HELD = 2
"""The number of batches that the consumer may hold in slots; further batches are copied."""
_PARTS_PER_WORKER = 4
_SHORT = 2e-3  # seconds; messages cost too much for shorter parts
_FAIR = 20e-3  # seconds; shorter parts cost a tenth more, which pays only if a worker would be idle
_LONG = 50e-3  # seconds; longer parts are split, so that workers finish at about the same time


def part_count(rows: int, workers: int, in_flight: int, seconds: float | None) -> int:
    """Return the number of parts that a batch is split into, at least 1.

    Each part has an overhead of about a millisecond. Whole batches in flight keep the workers busy
    as well, so a batch is split only if there are fewer batches than workers, or if the last parts
    of an epoch would take long. in_flight: the number of batches prepared at the same time.
    seconds: the time that one worker takes for the whole batch, None if unknown.
    """
    count = min(workers, MOST_PARTS, max(1, rows))
    if seconds is None:
        return count
    one_for_each = -(-(workers + 1) // in_flight)  # one part per worker and one in reserve
    fair = max(one_for_each, int(seconds / _FAIR))
    more = min(int(seconds / _LONG), _PARTS_PER_WORKER * workers, MOST_PARTS, rows)
    return max(1, min(count, int(seconds / _SHORT), fair), more)


@dataclass(eq=False)
class Part:
    """Rows ``first`` to ``last`` of a batch, which have been reissued to workers ``attempt`` times.

    deaths: the number of workers that died consecutively at the sample ``suspect``.
    """

    batch: Batch
    first: int
    last: int
    order: int
    attempt: int = 0
    suspect: int = NO_SAMPLE
    deaths: int = 0
    done: Slice | None = None

    @property
    def number(self) -> int:
        """The sort key of this issue of the part; older parts have smaller numbers."""
        return self.order << 24 | self.attempt


@dataclass(eq=False)
class Batch:
    """A ticket whose batch workers are preparing.

    area, place, offset: where its indices lie in shared memory. ring, slot: where its rows lie.
    records: its entries in the work queue. answer: collects the seconds of all parts and the error
    of the first failed part, which begins at row ``failed``.
    """

    ticket: Ticket
    rows: int
    area: int = -1
    place: int = -1
    offset: int = 0
    ring: Ring | None = None
    slot: int = -1
    parts: list[Part] = field(default_factory=list)
    records: set[int] = field(default_factory=set)
    failed: int = -1
    cancelled: bool = False
    answer: Completed = field(init=False)

    def __post_init__(self) -> None:
        self.answer = Completed(self.ticket)


class BatchMemory:
    """Shared memory for ``capacity`` batches in flight and for ``HELD`` that the consumer holds.

    fields: the array leaves of a batch; None to learn them from the first slice. pin: registers
    the slots with a device, which may read them as long as the result of ``pin`` is referenced.
    """

    def __init__(
        self,
        pool: ProcessPool,
        capacity: int,
        fields: Sequence[Field | None] | None,
        pin: Callable[[Any], Any] | None = None,
    ) -> None:
        self._pool, self._capacity = pool, capacity
        self._fields = None if fields is None else tuple(fields)
        self._pin = pin
        self._areas: list[Memory] = []
        self._area_rows = 0
        self._places: deque[int] = deque()
        self.ring: Ring | None = None
        self._rings: list[Ring] = []

    def place(self, batch: Batch) -> None:
        """Write the indices of a batch to shared memory and take a slot for its rows.

        Raises WorkerError if there is not enough memory.
        """
        if not batch.ticket.is_stream:
            self._write_indices(batch, batch.ticket.indices)
        self._take_slot(batch)

    def learn(self, done: Slice) -> None:
        """Learn the array leaves from the first slice if they are still unknown."""
        if self._fields is None and done.samples:
            self._fields = learn_fields(done.leaves, done.samples)

    def _write_indices(self, batch: Batch, indices: Array) -> None:
        """Write the indices, after allocating a larger area if they do not fit."""
        if batch.rows > self._area_rows or not self._areas:
            rows = max(64, 1 << max(0, batch.rows - 1).bit_length())
            places = self._capacity + self._pool.workers + 1
            self._areas.append(Memory(8 * rows * places, "the indices of batches"))
            self._area_rows, self._places = rows, deque(range(places))
            self._pool.share("indices", len(self._areas) - 1, self._areas[-1])
        batch.area, batch.place = len(self._areas) - 1, self._places.popleft()
        batch.offset = batch.place * self._area_rows * 8
        buffer = self._areas[-1].buffer
        np.frombuffer(buffer, np.int64, batch.rows, batch.offset)[:] = indices

    def _take_slot(self, batch: Batch) -> None:
        """Take a slot; if there is none, workers send the batch's slices through their sockets."""
        if self._fields is None or not any(self._fields) or batch.rows == 0:
            return
        if self.ring is None or self.ring.layout.rows < batch.rows:
            layout = Layout(self._fields, batch.rows)
            generation = 0 if self.ring is None else self.ring.generation + 1
            slots = self._capacity + HELD
            ring = Ring(layout, slots, generation, self._pin)
            self._rings.append(ring)
            self._pool.share("ring", generation, ring.memory, layout)
            old, self.ring = self.ring, ring
            if old is not None:
                self._retire(old)
        slot = self.ring.take()
        if slot is not None:
            batch.ring, batch.slot = self.ring, slot

    def _retire(self, ring: Ring) -> None:
        """Free an outgrown ring once no batch in flight uses it."""
        if ring is not self.ring and ring.taken == 0 and ring in self._rings:
            self._rings.remove(ring)
            self._pool.forget("ring", ring.generation)
            ring.close()

    def assemble(self, batch: Batch) -> Slice:
        """Join the slices in place; copy them if the consumer already holds ``HELD`` slots."""
        slices = [part.done for part in batch.parts if part.done is not None]
        ring, rows = batch.ring, None
        if ring is not None:
            rows = ring.lend(batch.slot, batch.rows)
            batch.ring = None
            for part in batch.parts:
                _set_written_leaves(part, rows)
        try:
            joined = concatenate(slices, rows)
        finally:
            batch.parts.clear()  # the views in the parts would keep the slot lent
        if ring is not None and ring.lent > HELD:
            joined.leaves = [x.copy() if isinstance(x, np.ndarray) else x for x in joined.leaves]
        return joined

    def release(self, batch: Batch) -> None:
        """Free the slot and the index position of a batch once no worker works on it."""
        if batch.records:
            return
        if batch.ring is not None:
            ring, batch.ring = batch.ring, None
            ring.give_back(batch.slot)
            self._retire(ring)
        elif self.ring is not None:
            for old in [ring for ring in self._rings if ring is not self.ring]:
                self._retire(old)
        if batch.area == len(self._areas) - 1 and batch.place >= 0:
            self._places.append(batch.place)
        batch.place = -1

    def close(self) -> None:
        """Free the memory; batches that the consumer holds stay valid."""
        for area in self._areas:
            area.close()
        for ring in self._rings:
            ring.close()
        self._areas, self._rings, self.ring = [], [], None


def _set_written_leaves(part: Part, rows: list[Array | None]) -> None:
    """Set the leaves that a worker wrote to the slot to views of the slot."""
    done = part.done
    if done is None:
        return
    for i, (placed, leaf) in enumerate(zip(done.placed, rows)):
        if placed and leaf is not None:
            done.leaves[i] = leaf[part.first : part.first + done.samples]
