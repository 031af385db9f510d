"""A buffer of a recording, and the kernel calls that see it. Made by ``recorder``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..backends.base import View

_new_view = tuple.__new__


@dataclass(eq=False)
class Slot:
    """A buffer of the recording. ``uses`` are the places in argument lists that show it.

    A *temporary* has a buffer of the recording's own; a *fresh* one gets a new buffer at each
    replay, since somebody may keep it; any other is bound to what a place or a host step holds.
    ``shown``: arrays are made on it too. ``waits``: views are made when a kernel call needs them
    (``show``), which a graph does not; ``stale`` while they are not made.
    """

    number: int
    size: int
    dtype: Any
    offset: int = 0
    own: bool = True
    fresh: bool = False
    shown: bool = False
    first: int = 0
    last: int = 0
    handle: Any = None
    shift: int = 0
    uses: list[tuple[list[Any], int, str | None, View]] = field(default_factory=list)
    """(arguments, place, field of the named tuple at that place or None, view)"""
    waits: bool = False
    stale: bool = True

    def bind(self, handle: Any, offset: int = 0) -> None:
        """Lets every use show ``handle`` from now on; ``offset`` is where its view begins."""
        if self.waits:
            self._forget()
            self.handle, self.shift = handle, offset - self.offset
        else:
            self.handle, self.shift = handle, offset - self.offset
            self.show()

    def show(self) -> None:
        """Makes the views of all uses."""
        handle, shift, self.stale = self.handle, self.shift, False
        for args, place, name, view in self.uses:
            _, shape, strides, start, dtype = view
            shown = _new_view(View, (handle, shape, strides, start + shift, dtype))
            args[place] = shown if name is None else args[place]._replace(**{name: shown})

    def release(self) -> None:
        """Forgets the buffer, which belongs to others."""
        self.handle = None
        self._forget()

    def _forget(self) -> None:
        if not self.stale:
            self.stale = True
            for args, place, name, _ in self.uses:
                args[place] = None if name is None else args[place]._replace(**{name: None})

    def view(self, like: View) -> View:
        """The buffer as ``like`` showed it in the recording."""
        _, shape, strides, start, dtype = like
        return View(self.handle, shape, strides, start + self.shift, dtype)
