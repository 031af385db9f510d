"""Collect the images of a slice, in groups, into one array as long as their shapes are equal.

pipeline.py requests rows before it transforms a group, and then adds the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..samples.buffer_pool import empty
from ..samples.native_kernels import Array


class Gathering:
    """A collector of up to ``count`` images. ``out``: rows to which to write them, or None."""

    def __init__(self, count: int, out: Array | None) -> None:
        self.count, self.filled = count, 0
        self._given, self._rows = out, out

    @property
    def in_place(self) -> bool:
        """True if all images were written to the rows given as ``out``."""
        return self.array() is not None and self._rows is self._given

    def room(self, images: int) -> Array | None:
        """Return rows for the next ``images`` images, or None if their shape is unknown."""
        return None if self._rows is None else self._rows[self.filled : self.filled + images]

    def add(self, made: Array | list[Any], room: Array | None) -> None:
        """Add the next images: the array returned by ``room``, another array, or a list."""
        if made is not room:
            first = self._rows is None and self.filled == 0
            self._rows = self._with_room(made) if first and isinstance(made, np.ndarray) else None
        self.filled += len(made)

    def array(self) -> Array | None:
        """Return all images as one array; None if they are not contiguous or there are none."""
        return None if self._rows is None or self.filled == 0 else self._rows[: self.filled]

    def _with_room(self, made: Array) -> Array:
        """Return rows for all images; the first rows are a copy of ``made``."""
        if len(made) == self.count:
            return made
        rows = empty((self.count, *made.shape[1:]), made.dtype)
        rows[: len(made)] = made
        return rows
