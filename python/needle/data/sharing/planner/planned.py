"""The policy ``planned``: followers copy the order that a leader has drawn for its whole epoch.

For tasks on one set that started at different times it reads less than ``coupled``. What it
promises is weaker: each task's order is uniform given the task's own past, not given everybody's.
"""

from __future__ import annotations

from random import Random

import numpy as np

from .coupled import Coupled, overlaps
from .independent import shuffled
from .members import Indices, Members
from .policy import Policy, policy


@policy("planned")
class Planned(Policy):
    """A leader plays an order of its set, drawn when its epoch begins. A follower takes the
    leader's index whenever it misses it; else it fills the place with an index that the leader
    will not come to in what is left of both their epochs. Fills are coupled among themselves.

    Why a follower's order is uniform given its own past (proof: docs/shared_loader_proofs.md):
    within an epoch of the leader places are exchangeable, and so are indices; the orders that a
    follower has had until now therefore say nothing about the rest of the leader's. This needs
    leader and follower to go in step from the follower's first draw under this plan or of its
    epoch to the end of either epoch. As soon as they do not (one is paused, drops an epoch or
    leaves) the plan is given up; all are coupled round by round until a task begins an epoch, and
    that one leads.
    """

    def __init__(self, members: Members, random: Random) -> None:
        super().__init__(members, random)
        self._coupled = Coupled(members, random)
        self._fresh: set[int] = set()  # slots at the beginning of a whole epoch
        self._leader = -1
        self._plan: Indices = np.empty(0, np.int64)
        self._give_up()

    def begin(self, slot: int, indices: Indices, whole: bool) -> None:
        if whole:
            self._fresh.add(slot)
        else:  # what it drew before, perhaps under this plan, is not known
            self._give_up()

    def end(self, slot: int) -> None:
        if slot in self._bound and (slot == self._leader or self.members.left[slot]):
            self._give_up()
        self._bound.discard(slot)
        self._fresh.discard(slot)

    def draw(self, slots: list[int]) -> dict[int, int]:
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
        """Whether there is a plan and all of these are bound to it, those that may lead or follow
        from now on too.
        """
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
        """Settles which indices of the plan it takes, and what fills its other places."""
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
        """Where the leader's epoch ends first: the fills until then, and the hits refused.

        So many places of a uniform order have a random number of indices that are the leader's
        too. As many are taken here, hits before others; the rest of the fills is the task's own.
        """
        sample = shuffled(self.random, missed)[:places]
        common = np.isin(sample, self._plan)
        wanted = int(common.sum())
        more = shuffled(self.random, others[np.isin(others, self._plan)])
        fills = np.concatenate((sample[~common], more[: max(wanted - len(hits), 0)]))
        return fills, shuffled(self.random, hits)[wanted:]

    def _give_up(self) -> None:
        self._leader, self._next = -1, 0
        self._bound: set[int] = set()  # slots that drew under this plan in their present epoch
        self._refused: dict[int, int] = {}  # for an index of the plan the slots that let it pass
        self._fills = Members()
        self._coupled_fills = Coupled(self._fills, self.random)
