"""The images of one slice, made group by group: rows of one array while their shapes are one.

pipeline.py asks for room before each group and adds what came of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..samples.buffer_pool import empty

Array = npt.NDArray[Any]


class Gathering:
    """Up to ``count`` images; ``out`` are rows for them, None where nobody has any."""

    def __init__(self, count: int, out: Array | None) -> None:
        self.count, self.filled = count, 0
        self._given, self._rows = out, out
        self._room: Array | None = None
        self._together = True

    @property
    def in_place(self) -> bool:
        """Whether all images are in the rows that were given."""
        return self.array() is not None and self._rows is self._given

    def room(self, images: int) -> Array | None:
        """Where the next ``images`` are best written, if that is known."""
        if self._rows is None or not self._together:
            self._room = None
        else:
            self._room = self._rows[self.filled : self.filled + images]
        return self._room

    def add(self, made: Array | list[Any]) -> None:
        """The next images: ``room`` itself, an array elsewhere, or a list."""
        if made is not self._room:
            if self._rows is None and self.filled == 0 and isinstance(made, np.ndarray):
                self._rows = self._with_room(made)
            else:
                self._together = False
        self.filled += len(made)

    def array(self) -> Array | None:
        """All images as one array; None where they do not lie together, or there are none."""
        if self._rows is None or not self._together or self.filled == 0:
            return None
        return self._rows[: self.filled]

    def _with_room(self, made: Array) -> Array:
        """Rows for all of them, whose first ones are ``made``."""
        if len(made) == self.count:
            return made
        rows = empty((self.count, *made.shape[1:]), made.dtype)
        rows[: len(made)] = made
        return rows
