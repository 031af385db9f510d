"""The table of indices that tasks still need, from which coupled.py and planned.py draw."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...data.samples.ticket import Indices

Laws = npt.NDArray[np.float64]

MAX_TASKS = 64
MAX_INDEX = 2**31
"""Exclusive upper bound of an index; the tables take 12 bytes per index up to the largest."""


class Members:
    """A table of the indices still needed in current epochs, by the set of tasks that need them.

    A set of tasks is a mask with one bit per slot. The indices with the same mask (an atom) lie in
    one row, unordered, so that any index can be removed by swapping it with the last one.

    masks: for each index, the mask of slots that need it, 0 if none does. left: the number of
    indices that each slot needs. rows: maps the mask of an atom (never 0) to its row; a row may be
    empty. items: the indices in each row.
    """

    def __init__(self) -> None:
        self.masks = array("Q")
        self.left = [0] * MAX_TASKS
        self.rows: dict[int, int] = {}
        self.items: list[array[int]] = []
        self._places = array("I")
        self._rebuild({})

    def enter(self, slot: int, indices: Indices) -> None:
        """Add these distinct indices for a slot that has none."""
        if not len(indices):
            return
        self._grow(int(indices.max()) + 1)
        bit = 1 << slot
        masks = np.frombuffer(self.masks, np.uint64)
        joining = np.zeros(len(masks), bool)
        joining[indices] = True
        atoms = {bit: np.sort(indices[masks[indices] == 0])}
        masks[indices] |= np.uint64(bit)
        for mask, items in self._atoms().items():
            moves = joining[items]
            atoms[mask | bit], atoms[mask] = items[moves], items[~moves]
        self._rebuild(atoms)
        self.left[slot] = len(indices)

    def drop(self, slot: int) -> None:
        """Remove all indices of a slot."""
        if not self.left[slot]:
            return
        bit = 1 << slot
        atoms = self._atoms()
        masks = np.frombuffer(self.masks, np.uint64)
        for mask in [mask for mask in atoms if mask & bit]:
            items = atoms.pop(mask)
            masks[items] = mask ^ bit
            others = atoms.get(mask ^ bit)
            atoms[mask ^ bit] = items if others is None else np.concatenate((others, items))
        atoms.pop(0, None)
        self._rebuild(atoms)
        self.left[slot] = 0

    def take(self, index: int, taken: int) -> None:
        """Remove ``index`` for the slots in the mask ``taken``; all of them must have it."""
        masks, places, rows = self.masks, self._places, self.rows
        mask = masks[index]
        row = rows[mask]
        items = self.items[row]
        place, last = places[index], items.pop()
        if last != index:
            items[place] = last
            places[last] = place
        self._counts[row] -= 1.0
        masks[index] = mask = mask ^ taken
        if mask:
            row = rows[mask] if mask in rows else self._new_row(mask)
            places[index] = len(self.items[row])
            self.items[row].append(index)
            self._counts[row] += 1.0
        left = self.left
        while taken:
            low = taken & -taken
            left[low.bit_length() - 1] -= 1
            taken ^= low

    def missing(self, slot: int) -> Indices:
        """Return the indices that this slot needs in ascending order: int64 ``(n,)``."""
        missed = np.frombuffer(self.masks, np.uint64) & np.uint64(1 << slot)
        return np.flatnonzero(missed)

    def counts(self) -> Laws:
        """Return a live view of the length of each row: float64 ``(rows,)``."""
        return self._count_view[: len(self.items)]

    def membership(self, slots: list[int]) -> Laws:
        """Return 1 where the slot is in the mask of the row, else 0: float64 ``(slots, rows)``."""
        masks = np.fromiter(self.rows, np.uint64, len(self.rows))
        bits = np.array(slots, np.uint64)[:, None]
        return (masks >> bits & np.uint64(1)).astype(np.float64)

    def _atoms(self) -> dict[int, npt.NDArray[np.uint32]]:
        full = ((mask, self.items[row]) for mask, row in self.rows.items() if self.items[row])
        return {mask: np.frombuffer(items, np.uint32) for mask, items in full}

    def _rebuild(self, atoms: Mapping[int, npt.NDArray[np.integer]]) -> None:
        """Replace all rows by one row for each of these atoms."""
        kept = {mask: items for mask, items in atoms.items() if len(items)}
        places = np.frombuffer(self._places, np.uint32)
        for items in kept.values():
            places[items] = np.arange(len(items), dtype=np.uint32)
        self.rows = {mask: row for row, mask in enumerate(kept)}
        self.items = [array("I", items.astype(np.uint32).tobytes()) for items in kept.values()]
        self._make_counts()

    def _new_row(self, mask: int) -> int:
        self.rows[mask] = len(self.items)
        self.items.append(array("I"))
        if len(self.items) > len(self._counts):
            self._make_counts()
        return len(self.items) - 1

    def _make_counts(self) -> None:
        counts = [float(len(items)) for items in self.items]
        self._counts = array("d", counts + [0.0] * (len(counts) + 16))
        self._count_view = np.frombuffer(self._counts, np.float64)

    def _grow(self, length: int) -> None:
        more = max(length - len(self.masks), 0)
        for table in (self.masks, self._places):
            table.frombytes(bytes(more * table.itemsize))


class Draw(NamedTuple):
    """An index, and the tasks that get it in this round."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is never called on a Draw
    tasks: tuple[str, ...]


def shuffled(random: Random, indices: Indices) -> Indices:
    """Return the indices in uniformly random order, by a stable argsort of 64-bit random keys."""
    bits = np.frombuffer(random.randbytes(8 * len(indices)), np.uint64)
    return indices[np.argsort(bits, kind="stable")]
