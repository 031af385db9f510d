"""Which tasks still miss each index, and for each such set of tasks the indices that have it.

A set of tasks is a mask with a bit a slot. The indices of equal mask (an atom) lie in one array
without order, so that taking any of them is an exchange with the last. Policies draw from here.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

MAX_TASKS = 64
MAX_INDEX = 2**31
"""Indices are below this: tables of 12 bytes an index are kept up to the largest."""


class Members:
    """The indices that the current epochs still miss.

    masks: for each index the slots that miss it, 0 where none does. atoms: for each mask in use
    (never 0) its indices. left: for each slot how many indices it misses.
    """

    def __init__(self) -> None:
        self.masks = array("Q")
        self.atoms: dict[int, array[int]] = {}
        self.left = [0] * MAX_TASKS
        self._places = array("I")

    def enter(self, slot: int, indices: Indices) -> None:
        """Slot, which misses nothing yet, misses these distinct indices from now on."""
        if not len(indices):
            return
        self._grow(int(indices.max()) + 1)
        bit = 1 << slot
        masks = np.frombuffer(self.masks, np.uint64)
        joining = np.zeros(len(masks), bool)
        joining[indices] = True
        fresh = np.sort(indices[masks[indices] == 0])
        masks[indices] |= np.uint64(bit)
        for mask in list(self.atoms):
            items = np.frombuffer(self.atoms[mask], np.uint32)
            moves = joining[items]
            self._place(mask | bit, items[moves])
            self._place(mask, items[~moves])
        self._place(bit, fresh)
        self.left[slot] = len(indices)

    def drop(self, slot: int) -> None:
        """Slot misses nothing any more."""
        bit = 1 << slot
        for mask in [mask for mask in self.atoms if mask & bit]:
            items = np.frombuffer(self.atoms[mask], np.uint32)
            np.frombuffer(self.masks, np.uint64)[items] = mask ^ bit
            staying = np.frombuffer(self.atoms.get(mask ^ bit, array("I")), np.uint32)
            if mask != bit:
                self._place(mask ^ bit, np.concatenate((staying, items)))
            del self.atoms[mask]
        self.left[slot] = 0

    def take(self, index: int, taken: int) -> None:
        """The slots of ``taken``, all of which miss ``index``, miss it no more."""
        masks, atoms, places = self.masks, self.atoms, self._places
        mask = masks[index]
        items = atoms[mask]
        place, last = places[index], items.pop()
        if last != index:
            items[place] = last
            places[last] = place
        elif not items:
            del atoms[mask]
        masks[index] = mask = mask ^ taken
        if mask:
            items = atoms.get(mask) or atoms.setdefault(mask, array("I"))
            places[index] = len(items)
            items.append(index)
        left = self.left
        while taken:
            low = taken & -taken
            left[low.bit_length() - 1] -= 1
            taken ^= low

    def missing(self, slot: int) -> Indices:
        """The indices that this slot misses, in rising order: int64 (n,)."""
        missed = np.frombuffer(self.masks, np.uint64) & np.uint64(1 << slot)
        return np.flatnonzero(missed)

    def _grow(self, length: int) -> None:
        more = max(length - len(self.masks), 0)
        for table in (self.masks, self._places):
            table.frombytes(bytes(more * table.itemsize))

    def _place(self, mask: int, items: npt.NDArray[np.integer]) -> None:
        """These are all the indices of this mask."""
        if len(items):
            self.atoms[mask] = array("I", items.astype(np.uint32).tobytes())
            np.frombuffer(self._places, np.uint32)[items] = np.arange(len(items), dtype=np.uint32)
        else:
            self.atoms.pop(mask, None)
