"""Sequential residual coupling, which greedily minimises the reads of one round.

A pivot task draws from its distribution (its law). Every other task accepts the pivot's index with
the greatest probability that its own law allows. Tasks that reject it then draw from the residual
of their law, which does not depend on the draw.
"""

from __future__ import annotations

from random import Random

import numpy as np

from .policy import Laws, Members

REVISIONS = 64
"""Times per epoch that the first pivot is chosen anew."""


class Coupled:
    """The draws of a round: given the past, each is uniform among the indices its task still needs.

    members: the indices that the task of each slot still needs. random: the only source of
    randomness. Which slots are active is decided before anything is drawn.

    Proof: task j accepts the index y of pivot p with probability q_p(y) min(1, q_j(y) / q_p(y)) =
    min(q_p, q_j)(y). It rejects with probability 1 - sum min, and then draws from (q_j - min) / (1
    - sum min). The two probabilities of y add up to q_j(y). Among the tasks without an index, the
    pivot is the one whose law has most in common with the others. Its choice may depend on anything
    except future draws.
    """

    def __init__(self, members: Members, random: Random) -> None:
        self.members, self.random = members, random
        self._seen: tuple[object, int, list[int]] = (None, 0, [])
        self._membership = np.zeros((0, 0))
        self._pivot = 0
        self._countdown = 0

    def draw(self, slots: list[int]) -> dict[int, int]:
        """Return the drawn indices, each with the mask of the slots that get it.

        Every slot must have an index left. Each slot is in exactly one mask, and needs the index of
        that mask. Nothing is removed from ``members``.
        """
        self._refresh(slots)
        members, left, random = self.members, self.members.left, self.random.random
        p = slots[self._pivot]
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
        if refused:
            self._couple_refused(drawn, slots, refused)
        return drawn

    def _couple_refused(self, drawn: dict[int, int], slots: list[int], refused: list[int]) -> None:
        """Draw for the refused slots from their residual laws, until each has an index."""
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
            # If rounding makes a residual zero (probability below 1e-9), draw from the law itself.
            laws = np.where(rest.any(1, keepdims=True), rest, others)

    def _item(self, row: int) -> int:
        items = self.members.items[row]
        return items[int(self.random.random() * len(items))]

    def _refresh(self, slots: list[int]) -> None:
        """Update the tables after changes, and periodically choose a new first pivot."""
        members = self.members
        rows, known, active = self._seen
        if rows is not members.rows or known != len(members.rows) or active != slots:
            self._membership = members.membership(slots)
            self._seen = members.rows, len(members.rows), slots
            self._countdown *= rows is members.rows and active == slots
        if self._countdown == 0:
            # With two laws the overlap is symmetric, so either may be the pivot.
            self._pivot = int(overlaps(members, slots).argmax()) if len(slots) > 2 else 0
            self._countdown = min(members.left[j] for j in slots) // REVISIONS + 1
        self._countdown -= 1


def overlaps(members: Members, slots: list[int]) -> Laws:
    """Return the overlap of each slot's law with the laws of all slots: float64 ``(slots,)``."""
    laws = members.membership(slots) * members.counts()
    return _overlaps(laws / laws.sum(1, keepdims=True))


def _overlaps(laws: Laws) -> Laws:
    """Return, for each law, the sum of its overlaps (sums of minima) with all laws."""
    return np.asarray(np.minimum(laws[:, None], laws).sum((1, 2)))


def _choose(ends: Laws, u: float) -> int:
    """Return the position that a uniform u in [0, 1) selects among these cumulative sums."""
    return int(ends.searchsorted(u * ends[-1], "right"))
