"""The buffers of a recording, represented by slots that kernel arguments refer to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..backends.base import View
from ..backends.writes import note_write

_new_view = tuple.__new__


@dataclass(eq=False)
class BufferSlot:
    """A placeholder for a buffer; ``bind`` gives it the buffer of the current replay.

    ``uses`` lists the argument positions that refer to it. There are four kinds of slot. A
    *temporary* has a fixed place in memory that belongs to the recording. A *fresh* slot gets a new
    buffer at each replay, because the program may keep it. A *bound* slot refers to an array of the
    Python state or of a host step. A *constant* has memory of its own, whose contents survive the
    replay.

    ``first_use`` and ``last_use`` are call numbers, counted from 1; they are 0 if no call uses the
    slot. ``exposed``: arrays are made on the slot. ``written``: kernels write to it although it is
    bound; ``bind`` notes this for graphs that need its old values. ``lazy``: views are created only
    by ``update_views``, before a kernel is called directly, since launching a graph needs none.
    ``stale``: the views are out of date.
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
    handle: Any = None
    shift: int = 0
    uses: list[tuple[list[Any], int, str | None, View]] = field(default_factory=list)
    """(arguments, position, field of the named tuple at that position or None, view)"""
    lazy: bool = False
    stale: bool = True

    @property
    def temporary(self) -> bool:
        """True if the buffer is needed only within a replay."""
        return not (self.fresh or self.bound or self.constant)

    @property
    def bytes(self) -> int:
        """The size in bytes; 0 for a bound slot."""
        return int(self.size * self.dtype.itemsize)

    def bind(self, handle: Any, offset: int = 0) -> None:
        """Bind the slot to ``handle``; ``offset`` is the start of its view."""
        if self.written:
            note_write(handle)
        if self.lazy:
            self._clear_views()
        self.handle, self.shift = handle, offset - self.offset
        if not self.lazy:
            self.update_views()

    def update_views(self) -> None:
        """Write the current views of all uses into the argument lists."""
        handle, shift, self.stale = self.handle, self.shift, False
        for args, position, name, view in self.uses:
            _, shape, strides, start, dtype = view
            new = _new_view(View, (handle, shape, strides, start + shift, dtype))
            args[position] = new if name is None else args[position]._replace(**{name: new})

    def release(self) -> None:
        """Drop the reference to the buffer, which the slot does not own."""
        self.handle = None
        self._clear_views()

    def _clear_views(self) -> None:
        if not self.stale:
            self.stale = True
            for args, position, name, _ in self.uses:
                args[position] = None if name is None else args[position]._replace(**{name: None})

    def view(self, like: View) -> View:
        """Return the recorded view ``like`` on the current buffer."""
        _, shape, strides, start, dtype = like
        return View(self.handle, shape, strides, start + self.shift, dtype)
