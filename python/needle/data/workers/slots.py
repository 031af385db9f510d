"""Where batches under way lie in shared memory: their indices, and the slots of the ring.

Memories grow with the largest batch seen; outgrown ones go once nobody uses them. Which batch is
asked for when is processes.py's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..samples.pytree import Field, Slice, concatenate
from .pending import Batch, Part
from .process_pool import Crew
from .shared_memory import Memory
from .shared_ring import Layout, Ring, learn_fields


class Space:
    """Indices and slots for ``capacity`` batches under way and ``held_slots`` with the consumer.

    fields: the leaves of a batch where they are known; None: learned from the first slice. pin:
    lets a device read the slots while its result is held.
    """

    def __init__(
        self,
        crew: Crew,
        capacity: int,
        held_slots: int,
        fields: Sequence[Field | None] | None,
        pin: Callable[[Any], Any] | None = None,
    ) -> None:
        self._crew, self._capacity, self._held_slots = crew, capacity, held_slots
        self._fields = None if fields is None else tuple(fields)
        self._pin = pin
        self._areas: list[Memory] = []
        self._area_rows = 0
        self._places: deque[int] = deque()
        self.ring: Ring | None = None
        self._rings: list[Ring] = []

    def settle(self, batch: Batch) -> None:
        """Gives the batch a place for its indices, which are written, and a slot for its rows.

        Raises WorkerError where there is not enough memory.
        """
        if not batch.ticket.is_stream:
            self._write_indices(batch, batch.ticket.indices)
        self._take_slot(batch)

    def learn(self, done: Slice) -> None:
        """Takes the fields of batches from the first slice, where nobody has told them."""
        if self._fields is None and done.samples:
            self._fields = learn_fields(done.leaves, done.samples)

    def _write_indices(self, batch: Batch, indices: npt.NDArray[np.int64]) -> None:
        """Lays the batch's indices beside the board, in a larger memory where they need it."""
        if batch.rows > self._area_rows or not self._areas:
            rows = max(64, 1 << max(0, batch.rows - 1).bit_length())
            places = self._capacity + self._crew.workers + 1
            self._areas.append(Memory(8 * rows * places, "the indices of batches"))
            self._area_rows, self._places = rows, deque(range(places))
            self._crew.introduce("indices", len(self._areas) - 1, self._areas[-1])
        batch.area, batch.place = len(self._areas) - 1, self._places.popleft()
        batch.offset = batch.place * self._area_rows * 8
        buffer = self._areas[-1].buffer
        np.frombuffer(buffer, np.int64, batch.rows, batch.offset)[:] = indices

    def _take_slot(self, batch: Batch) -> None:
        """A slot for the batch; without one its slices come over the workers' sockets."""
        if self._fields is None or not any(self._fields) or batch.rows == 0:
            return
        if self.ring is None or self.ring.layout.rows < batch.rows:
            layout = Layout(self._fields, batch.rows)
            generation = 0 if self.ring is None else self.ring.generation + 1
            slots = self._capacity + self._held_slots
            ring = Ring(layout, slots, generation, self._pin)
            self._rings.append(ring)
            self._crew.introduce("ring", generation, ring.memory, layout)
            old, self.ring = self.ring, ring
            if old is not None:
                self._retire(old)
        slot = self.ring.take()
        if slot is not None:
            batch.ring, batch.slot = self.ring, slot

    def _retire(self, ring: Ring) -> None:
        """Lets an outgrown ring go once no batch under way uses it."""
        if ring is not self.ring and ring.taken == 0 and ring in self._rings:
            self._rings.remove(ring)
            self._crew.forget("ring", ring.generation)
            ring.close()

    def assemble(self, batch: Batch) -> Slice:
        """The slices as one, in place; copied out where the consumer holds enough already."""
        slices = [part.done for part in batch.parts if part.done is not None]
        ring, rows = batch.ring, None
        if ring is not None:
            rows = ring.lend(batch.slot, batch.rows)
            batch.ring = None
            for part in batch.parts:
                _point(part, rows)
        try:
            whole = concatenate(slices, rows)
        finally:
            batch.parts.clear()  # their views would hold the slot
        if ring is not None and ring.lent > self._held_slots:
            whole.leaves = [_copied(leaf) for leaf in whole.leaves]
        return whole

    def release(self, batch: Batch) -> None:
        """Gives back slot and place of a batch that nobody works on any more."""
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
        """Gives the memory back; batches with the consumer stay valid."""
        for area in self._areas:
            area.close()
        for ring in self._rings:
            ring.close()
        self._areas, self._rings, self.ring = [], [], None


def _point(part: Part, rows: list[npt.NDArray[Any] | None]) -> None:
    """Puts the part's rows of the slot where its slice says that they were placed."""
    done = part.done
    if done is None:
        return
    for i, placed in enumerate(done.placed):
        whole = rows[i] if placed else None
        if whole is not None:
            done.leaves[i] = whole[part.first : part.first + done.samples]


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
