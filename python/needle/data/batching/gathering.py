"""The images of one slice, collected group by group: one array while their shapes are equal.

pipeline.py asks for room before it transforms a group and adds the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..samples.buffer_pool import empty

Array = npt.NDArray[Any]


class Gathering:
    """Up to ``count`` images; ``out`` are rows to write them to, if there are any."""

    def __init__(self, count: int, out: Array | None) -> None:
        self.count, self.filled = count, 0
        self._given, self._rows = out, out
        self._room: Array | None = None
        self._together = True

    @property
    def in_place(self) -> bool:
        """True if all images lie in the rows that were given."""
        return self.array() is not None and self._rows is self._given

    def room(self, images: int) -> Array | None:
        """Return the rows for the next ``images``, or None if they are unknown."""
        if self._rows is None or not self._together:
            self._room = None
        else:
            self._room = self._rows[self.filled : self.filled + images]
        return self._room

    def add(self, made: Array | list[Any]) -> None:
        """Add the next images: the array of ``room``, another array, or a list."""
        if made is not self._room:
            if self._rows is None and self.filled == 0 and isinstance(made, np.ndarray):
                self._rows = self._with_room(made)
            else:
                self._together = False
        self.filled += len(made)

    def array(self) -> Array | None:
        """Return all images as one array; None if they do not lie together or there are none."""
        if self._rows is None or not self._together or self.filled == 0:
            return None
        return self._rows[: self.filled]

    def _with_room(self, made: Array) -> Array:
        """Return rows for all images, of which the first are ``made``."""
        if len(made) == self.count:
            return made
        rows = empty((self.count, *made.shape[1:]), made.dtype)
        rows[: len(made)] = made
        return rows
