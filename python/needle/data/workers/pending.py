"""Batches in flight in worker processes: their parts and their shared memory.

A batch has an offset in a memory area for its ticket and a slot of the ring buffer for its rows.
Areas and rings grow with the largest batch so far; an outgrown ring is freed when no batch uses it.
processes.py submits tickets and issues the parts.
"""

from __future__ import annotations

import pickle
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
from .shared_ring import Layout, Ring

HELD = 2
"""The number of batches that the consumer may hold in slots; further batches are copied."""


@dataclass(eq=False)
class Part:
    """Rows ``first`` to ``last`` of a batch, which have been reissued to workers ``attempt`` times.

    deaths: the number of consecutive workers that died at the sample ``suspect``.
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
    """A ticket for a batch that workers are preparing.

    area, offset: the location of its ticket in shared memory. ring, slot: the location of its rows.
    records: its entries in the work queue. answer: collects the seconds of all parts and the error
    of the first failed part, which begins at row ``failed``.
    """

    ticket: Ticket
    rows: int
    area: int = -1
    offset: int = -1
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
        self._area_bytes = 0
        self._offsets: deque[int] = deque()
        self.ring: Ring | None = None
        self._rings: list[Ring] = []

    def place(self, batch: Batch) -> None:
        """Write the ticket of a batch to shared memory and take a slot for its rows.

        Raises WorkerError if there is not enough memory.
        """
        self._write_ticket(batch)
        self._take_slot(batch)

    def learn(self, done: Slice) -> None:
        """Learn the array leaves from the first slice if they are still unknown."""
        if self._fields is None and done.samples:
            self._fields = done.fields()

    def _write_ticket(self, batch: Batch) -> None:
        """Write the pickled ticket, after allocating a larger area if it does not fit."""
        ticket = batch.ticket
        key = ticket.seed, ticket.epoch, ticket.shard, ticket.start, ticket.size
        body = pickle.dumps((*key, ticket.indices.tobytes()))  # faster to pickle than arrays
        if len(body) > self._area_bytes:
            self._area_bytes = max(1 << 10, 1 << len(body).bit_length())
            places = self._capacity + self._pool.workers + 1
            self._areas.append(Memory(self._area_bytes * places, "the tickets of batches"))
            self._offsets = deque(self._area_bytes * i for i in range(places))
            self._pool.share("tickets", len(self._areas) - 1, self._areas[-1])
        batch.area, batch.offset = len(self._areas) - 1, self._offsets.popleft()
        self._areas[-1].buffer[batch.offset : batch.offset + len(body)] = body

    def _take_slot(self, batch: Batch) -> None:
        """Take a slot; if none is free, workers send the batch's slices through their sockets."""
        if self._fields is None or not any(self._fields) or batch.rows == 0:
            return
        if self.ring is None or self.ring.layout.rows < batch.rows:
            layout = Layout(self._fields, batch.rows)
            generation = 0 if self.ring is None else self.ring.generation + 1
            slots = self._capacity + HELD
            ring = Ring(layout, slots, generation, self._pin)
            self._rings.append(ring)
            self._pool.share("ring", generation, ring.memory, layout)
            self.ring = ring
            self._retire_outgrown()
        slot = self.ring.take()
        if slot is not None:
            batch.ring, batch.slot = self.ring, slot

    def _retire_outgrown(self) -> None:
        """Free each outgrown ring that no batch in flight uses."""
        for ring in list(self._rings):
            if ring is not self.ring and ring.taken == 0:
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
            batch.parts.clear()  # views in the parts would keep the slot in use
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
        self._retire_outgrown()
        if batch.area == len(self._areas) - 1 and batch.offset >= 0:
            self._offsets.append(batch.offset)
        batch.offset = -1

    def close(self) -> None:
        """Free the memory; batches that the consumer holds stay valid."""
        for area in self._areas:
            area.close()
        for ring in self._rings:
            ring.close()
        self._areas, self._rings, self.ring = [], [], None


def _set_written_leaves(part: Part, rows: list[Array | None]) -> None:
    """Replace the leaves that a worker wrote to the slot by views of the slot."""
    done = part.done
    if done is None:
        return
    for i, (placed, leaf) in enumerate(zip(done.placed, rows)):
        if placed and leaf is not None:
            done.leaves[i] = leaf[part.first : part.first + done.samples]
