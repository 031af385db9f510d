"""A ring buffer of batch slots in shared memory: workers write rows, the consumer gets views.

A slot is reused only after the last view of it is gone. pending.py assigns slots to batches.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..samples.pytree import Field
from .shared_memory import PAGE, Memory

_ALIGN = 64


@dataclass(frozen=True)
class Layout:
    """The picklable layout of a slot: array leaves of up to ``rows`` samples, and their offsets.

    fields: one per leaf of the batch; None for a leaf that is not an array with fixed-size rows.
    """

    fields: tuple[Field | None, ...]
    rows: int
    offsets: tuple[int, ...] = field(init=False)
    slot_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        ### BEGIN YOUR SOLUTION [ring-layout]
        offsets, at = [], 0
        for each in self.fields:
            offsets.append(at)
            row_bytes = 0 if each is None else each.row_bytes
            at += -(-row_bytes * self.rows // _ALIGN) * _ALIGN
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "slot_bytes", max(PAGE, -(-at // PAGE) * PAGE))
        ### END YOUR SOLUTION

    def views(self, slot: Any, rows: int) -> list[npt.NDArray[Any] | None]:
        """Return each leaf's first ``rows`` rows as views of ``slot``, which has ``slot_bytes``."""
        return [
            None if each is None else _view(slot, offset, rows, each)
            for each, offset in zip(self.fields, self.offsets)
        ]


class Ring:
    """The consumer's side of a ring with ``slots`` slots in one block of shared memory.

    A slot is free, taken by a batch that workers write, or lent to the consumer. pin: registers
    the memory with a device, which may read it until ``close``.
    """

    def __init__(
        self,
        layout: Layout,
        slots: int,
        generation: int,
        pin: Callable[[Any], Any] | None = None,
    ) -> None:
        self.layout, self.slots, self.generation = layout, slots, generation
        self.memory = Memory(layout.slot_bytes * slots, f"{slots} batches of {layout.rows} samples")
        self._pinned = None if pin is None else pin(self.memory.buffer)
        self._taken: set[int] = set()
        self._lent: dict[int, weakref.ref[Any]] = {}

    @property
    def free(self) -> list[int]:
        """The free slots."""
        return [i for i in range(self.slots) if i not in self._taken and i not in self._lent]

    @property
    def taken(self) -> int:
        """The number of slots that workers are writing to."""
        return len(self._taken)

    @property
    def lent(self) -> int:
        """The number of slots that arrays of the consumer refer to."""
        return len(self._lent)

    def take(self) -> int | None:
        """Take a free slot for a batch and return it, or None if no slot is free."""
        free = self.free
        if not free:
            return None
        self._taken.add(free[0])
        return free[0]

    def give_back(self, slot: int) -> None:
        """Free a taken slot if its batch will not be delivered."""
        self._taken.discard(slot)

    def lend(self, slot: int, rows: int) -> list[npt.NDArray[Any] | None]:
        """Return the arrays of a taken slot, which becomes free once all their views are gone."""
        ### BEGIN YOUR SOLUTION [ring-lend]
        size, start = self.layout.slot_bytes, slot * self.layout.slot_bytes
        block = (ctypes.c_char * size).from_buffer(self.memory.buffer, start)
        # The garbage collector may run the callback in any thread; it is a C function, since
        # Python code could swallow a Ctrl-C.
        self._lent[slot] = weakref.ref(block, partial(self._lent.pop, slot))
        self._taken.discard(slot)
        return self.layout.views(block, rows)
        ### END YOUR SOLUTION

    def close(self) -> None:
        """Free the memory; lent arrays stay valid."""
        self._pinned = None
        self.memory.close()


def slot_views(memory: Memory, layout: Layout, slot: int) -> list[npt.NDArray[Any] | None]:
    """Return all rows of one slot as writable arrays; called by workers."""
    start = slot * layout.slot_bytes
    view = memoryview(memory.buffer)[start : start + layout.slot_bytes]
    return layout.views(view, layout.rows)


def _view(slot: Any, offset: int, rows: int, each: Field) -> npt.NDArray[Any]:
    shape = (rows, *each.row_shape)
    return np.ndarray(shape, dtype=each.dtype, buffer=slot, offset=offset)
