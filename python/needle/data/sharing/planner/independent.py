"""The policy ``independent``: each task has an order of its own; tasks meet by chance only."""

from __future__ import annotations

from random import Random

import numpy as np

from .members import Indices, Members
from .policy import Policy, policy


@policy("independent")
class Independent(Policy):
    """What separate loaders do; the baseline of sharing."""

    def __init__(self, members: Members, random: Random) -> None:
        super().__init__(members, random)
        self._orders: dict[int, list[int]] = {}

    def begin(self, slot: int, indices: Indices, whole: bool) -> None:
        self._orders[slot] = shuffled(self.random, indices).tolist()

    def end(self, slot: int) -> None:
        del self._orders[slot]

    def draw(self, slots: list[int]) -> dict[int, int]:
        drawn: dict[int, int] = {}
        for slot in slots:
            index = self._orders[slot].pop()
            drawn[index] = drawn.get(index, 0) | 1 << slot
        return drawn


def shuffled(random: Random, indices: Indices) -> Indices:
    """The indices in a uniformly random order: the stable argsort of 64 random bits each."""
    bits = np.frombuffer(random.randbytes(8 * len(indices)), np.uint64)
    return indices[np.argsort(bits, kind="stable")]
