"""The server's policy: followers copy the order that a leader drew for its whole epoch.

Tasks that share a data set but started at different times need fewer reads than with ``Coupled``
alone, which draws when no task can lead. The order of a task is uniform given that task's past, but
another task's past may predict part of it.
"""

from __future__ import annotations

from random import Random

import numpy as np

from ...data.samples.ticket import Indices
from .coupled import Coupled, overlaps
from .policy import Members, shuffled


class Planned:
    """A policy with a leader; the leader's order is drawn at the start of its epoch.

    A follower takes the leader's index whenever it still needs it. Otherwise it fills the position
    with an index that the leader will not reach before either epoch ends. The fills of several
    followers are coupled with one another.

    The order of a follower is uniform given its own past, as docs/internals/shared_loader_proofs.md
    proves. Within an epoch of the leader, positions are exchangeable and so are indices. Hence the
    past orders of a follower say nothing about the rest of the leader's order. This requires leader
    and follower to stay in step, from the follower's first draw under this plan or in its epoch
    until either epoch ends. If one is paused, drops an epoch or leaves, the plan is abandoned. All
    tasks are then coupled round by round until one begins an epoch and becomes the leader.
    """

    def __init__(self, members: Members, random: Random) -> None:
        self.members, self.random = members, random
        self._coupled = Coupled(members, random)
        self._fresh: set[int] = set()  # slots that are at the start of a whole epoch
        self._leader = -1
        self._plan: Indices = np.empty(0, np.int64)
        self._give_up()

    def begin(self, slot: int, whole: bool) -> None:
        """Start or continue an epoch of a slot; ``members`` already holds its indices."""
        if whole:
            self._fresh.add(slot)
        else:  # its earlier draws are unknown, and may have been made under this plan
            self._give_up()

    def end(self, slot: int) -> None:
        """End the epoch of a slot; ``members`` still holds its remaining indices."""
        if slot in self._bound and (slot == self._leader or self.members.left[slot]):
            self._give_up()
        self._bound.discard(slot)
        self._fresh.discard(slot)

    def draw(self, slots: list[int]) -> dict[int, int]:
        """Return the drawn indices; see ``Coupled.draw``."""
        if not self._ready(slots):
            return self._coupled.draw(slots)
        index = int(self._plan[self._next])
        self._next += 1
        takers = self.members.masks[index] & ~self._refused.get(index, 0)
        drawn = {index: takers & sum(1 << slot for slot in slots)}
        fillers = [slot for slot in slots if not takers >> slot & 1]
        if fillers:
            fills = self._coupled_fills.draw(fillers)
            for fill, taken in fills.items():
                self._fills.take(fill, taken)
            drawn.update(fills)
        return drawn

    def _ready(self, slots: list[int]) -> bool:
        """Bind the slots to a plan, drawing one if needed; return False if no slot can lead."""
        left = self.members.left
        if self._leader >= 0 and any(left[slot] for slot in self._bound.difference(slots)):
            self._give_up()
        if self._leader < 0 or not left[self._leader]:
            self._give_up()
            if self._fresh.isdisjoint(slots):
                return False
            common = dict(zip(slots, overlaps(self.members, slots).tolist()))
            self._leader = max(sorted(self._fresh.intersection(slots)), key=common.__getitem__)
            self._plan = shuffled(self.random, self.members.missing(self._leader))
        for slot in slots:
            if slot not in self._bound:
                self._bind(slot)
        return True

    def _bind(self, slot: int) -> None:
        """Decide which indices of the plan this slot takes, and what fills its other positions."""
        self._bound.add(slot)
        self._fresh.discard(slot)
        if slot == self._leader:
            return
        missed = self.members.missing(slot)
        window = self._plan[self._next : self._next + len(missed)]
        seen = np.isin(missed, window)
        fills, hits = missed[~seen], missed[seen]
        if len(window) < len(missed):
            fills, refused = self._part(missed, fills, hits, len(window))
            for index in refused.tolist():
                self._refused[index] = self._refused.get(index, 0) | 1 << slot
        self._fills.drop(slot)
        self._fills.enter(slot, fills)

    def _part(
        self, missed: Indices, others: Indices, hits: Indices, places: int
    ) -> tuple[Indices, Indices]:
        """Return the fills and the refused hits if the leader's epoch ends before the slot's.

        In the first ``places`` positions of a uniform order, the number of indices shared with the
        leader is random. The slot takes that many shared indices, hits first, and fills the other
        positions from its own.
        """
        sample = shuffled(self.random, missed)[:places]
        common = np.isin(sample, self._plan)
        wanted = int(common.sum())
        more = shuffled(self.random, others[np.isin(others, self._plan)])
        fills = np.concatenate((sample[~common], more[: max(wanted - len(hits), 0)]))
        return fills, shuffled(self.random, hits)[wanted:]

    def _give_up(self) -> None:
        self._leader, self._next = -1, 0
        # slots that have drawn under this plan in their current epoch
        self._bound: set[int] = set()
        self._refused: dict[int, int] = {}  # the mask of the slots that do not take this index
        self._fills = Members()
        self._coupled_fills = Coupled(self._fills, self.random)
