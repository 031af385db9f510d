"""The policy ``coupled``: sequential residual coupling, as few reads a round as a greedy can have.

A pivot draws from its law; another task joins it as often as its own law allows; those that refuse
go on with what their law has left over, residual to the pivot's, whatever the pivot drew.
"""

from __future__ import annotations

from bisect import bisect_right
from random import Random

import numpy as np

from .members import Laws, Members
from .policy import Policy, policy

REVISIONS = 64
"""How often in an epoch the first pivot is chosen anew."""
FEW = 16
"""Of so many atoms one is found faster by looking at each than by NumPy's calls."""


@policy("coupled")
class Coupled(Policy):
    """Each task's next index is uniform on what it misses, given everything drawn before.

    Proof: j takes y by joining pivot p with q_p(y) min(1, q_j(y) / q_p(y)) = min(q_p, q_j)(y); it
    refuses with 1 - sum min, and then draws from (q_j - min) / (1 - sum min). The sum is q_j(y).
    The pivot is the task whose law has most in common with the others', of those still without;
    it may depend on anything but what is yet to be drawn.
    """

    def __init__(self, members: Members, random: Random) -> None:
        super().__init__(members, random)
        self._seen: tuple[object, int, list[int]] = (None, 0, [])
        self._membership = np.zeros((0, 0))
        self._pivot = 0
        self._countdown = 0

    def draw(self, slots: list[int]) -> dict[int, int]:
        self._look(slots)
        members, left, random = self.members, self.members.left, self.random.random
        p = slots[self._pivot]
        if len(members.rows) <= FEW:
            index = self._item(self._row(p, random()))
        else:
            ends = (self._membership[self._pivot] * members.counts()).cumsum()
            index = self._item(_choose(ends, random()))
        ### BEGIN YOUR SOLUTION [shared-draw]
        mask, share, limit = members.masks[index], random(), left[p]
        taken, refused = 1 << p, []
        for place, j in enumerate(slots):
            if j != p:
                if mask >> j & 1 and share * left[j] < limit:
                    taken |= 1 << j
                else:
                    refused.append(place)
        ### END YOUR SOLUTION
        drawn = {index: taken}
        if len(refused) == 1 and len(members.rows) <= FEW:
            slot = slots[refused[0]]
            index = self._item(self._residual_row(slot, p, random()))
            drawn[index] = drawn.get(index, 0) | 1 << slot
        elif refused:
            self._couple_refused(drawn, slots, refused)
        return drawn

    def _couple_refused(self, drawn: dict[int, int], slots: list[int], refused: list[int]) -> None:
        """Goes on with the residual laws of those at these places, until all have drawn."""
        left, random = self.members.left, self.random.random
        bits = np.array([1 << slots[i] for i in refused], np.uint64)
        density = self._membership[refused] / np.array([[left[slots[i]]] for i in refused])
        common = self._membership[self._pivot] / left[slots[self._pivot]]
        laws = np.maximum(density - common, 0.0) * self.members.counts()
        while True:
            laws /= laws.sum(1, keepdims=True)
            p = int(_overlaps(laws).argmax()) if len(laws) > 2 else 0
            row = _choose(laws[p].cumsum(), random())
            index, shares = self._item(row), laws[:, row]
            joins = random() * shares[p] < shares
            taken = int(np.bitwise_or.reduce(bits[joins]))
            drawn[index] = drawn.get(index, 0) | taken
            if joins.all():
                return
            refuses = ~joins
            bits, others = bits[refuses], laws[refuses]
            rest = np.maximum(others - laws[p], 0.0)
            # Where rounding leaves nothing over, which has a chance below 1e-9, the law stays.
            laws = np.where(rest.any(1, keepdims=True), rest, others)

    def _row(self, slot: int, u: float) -> int:
        """The row that u falls on by the law of this slot, as ``_choose``."""
        wanted, end, found = u * self.members.left[slot], 0, -1
        for mask, row in self.members.rows.items():
            if mask >> slot & 1 and self.members.items[row]:
                end, found = end + len(self.members.items[row]), row
                if end > wanted:
                    break
        return found

    def _residual_row(self, slot: int, pivot: int, u: float) -> int:
        """The row that u falls on by what the pivot's law leaves of this slot's."""
        members = self.members
        own, common = 1.0 / members.left[slot], 1.0 / members.left[pivot]
        rows, ends, end = [], [], 0.0
        for mask, row in members.rows.items():
            density = own - common if mask >> pivot & 1 else own
            if mask >> slot & 1 and density > 0.0 and members.items[row]:
                end += density * len(members.items[row])
                rows.append(row)
                ends.append(end)
        return rows[min(bisect_right(ends, u * end), len(rows) - 1)]

    def _item(self, row: int) -> int:
        items = self.members.items[row]
        return items[int(self.random.random() * len(items))]

    def _look(self, slots: list[int]) -> None:
        """Follows changes of tasks and atoms; from time to time chooses the first pivot anew."""
        members = self.members
        rows, known, active = self._seen
        if rows is not members.rows or known != len(members.rows) or active != slots:
            self._membership = members.membership(slots)
            self._seen = members.rows, len(members.rows), slots
            self._countdown *= rows is members.rows and active == slots
        if self._countdown == 0:
            # Two laws have equally much in common with each other.
            self._pivot = int(overlaps(members, slots).argmax()) if len(slots) > 2 else 0
            self._countdown = min(members.left[j] for j in slots) // REVISIONS + 1
        self._countdown -= 1


def overlaps(members: Members, slots: list[int]) -> Laws:
    """What the law of each slot's next index has in common with the others': float64 (slots,)."""
    laws = members.membership(slots) * members.counts()
    return _overlaps(laws / laws.sum(1, keepdims=True))


def _overlaps(laws: Laws) -> Laws:
    """For each law the sum over all laws of the sum of minima."""
    return np.asarray(np.minimum(laws[:, None], laws).sum((1, 2)))


def _choose(ends: Laws, u: float) -> int:
    """The place that a uniform u in [0, 1) falls on between these cumulated masses."""
    return int(ends.searchsorted(u * ends[-1], "right"))
