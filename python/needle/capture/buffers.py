"""The buffers of a recording, represented by slots that kernel arguments refer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..backends.base import View
from ..backends.writes import note_write

UNBOUND = None, 0


@dataclass(eq=False)
class BufferSlot:
    """A placeholder for a buffer; ``bind`` gives it the buffer of the current replay.

    There are four kinds of slot. A *temporary* has a fixed place in memory that belongs to the
    recording. A *fresh* slot gets a new buffer at each replay, because the program may keep it. A
    *bound* slot refers to an array of the Python state or of a host step. A *constant* has memory
    of its own, whose contents survive the replay.

    ``first_use`` and ``last_use`` are call numbers, counted from 1; they are 0 if no call uses the
    slot. ``exposed``: arrays are made on the slot. ``written``: kernels write to it although it is
    bound; ``bind`` notes this for graphs that need its old values. ``place``: the current buffer,
    and the number of elements to add to the recorded offsets of views.
    """

    number: int
    size: int
    dtype: Any
    offset: int = 0
    fresh: bool = False
    bound: bool = False
    constant: bool = False
    exposed: bool = False
    written: bool = False
    first_use: int = 0
    last_use: int = 0
    place: tuple[Any, int] = UNBOUND

    @property
    def temporary(self) -> bool:
        """True if the buffer is needed only within a replay."""
        return not (self.fresh or self.bound or self.constant)

    @property
    def bytes(self) -> int:
        """The size in bytes; 0 for a bound slot."""
        return int(self.size * self.dtype.itemsize)

    @property
    def handle(self) -> Any:
        """The current buffer."""
        return self.place[0]

    def bind(self, handle: Any, offset: int = 0) -> None:
        """Bind the slot to ``handle``; ``offset`` is the start of its view."""
        if self.written:
            note_write(handle)
        self.place = handle, offset - self.offset

    def release(self) -> None:
        """Drop the reference to the buffer, which the slot does not own."""
        self.place = UNBOUND

    def view(self, like: View) -> View:
        """Return the recorded view ``like`` on the current buffer."""
        _, shape, strides, start, dtype = like
        handle, shift = self.place
        return View(handle, shape, strides, start + shift, dtype)
