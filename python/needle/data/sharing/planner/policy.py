"""The interface of a policy, the registry of policies, and the policy ``independent``.

A policy gives each active task its next index. With every policy each task sees its own set in a
uniformly random order, epoch by epoch. Policies differ in how often tasks get the same index in
one round, which then costs one read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

import numpy as np

from ....errors import unknown_name
from .members import Indices, Members


class Draw(NamedTuple):
    """An index and the tasks that get it in this round, in the order in which they joined."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a Draw
    tasks: tuple[str, ...]


class DrawPolicy(ABC):
    """Rule that draws one index per round for each task; tasks are slot numbers here.

    members: the indices that each slot still misses. random: the only source of randomness. Which
    slots are active is decided before anything is drawn.
    """

    def __init__(self, members: Members, random: Random) -> None:
        self.members, self.random = members, random

    def begin(self, slot: int, indices: Indices, whole: bool) -> None:
        """Start an epoch of a slot, or the rest of one if ``whole`` is False.

        ``members`` already has the indices.
        """

    def end(self, slot: int) -> None:
        """End the epoch of a slot; ``members`` still has the indices that are left."""

    @abstractmethod
    def draw(self, slots: list[int]) -> dict[int, int]:
        """Return the drawn indices, each with the mask of the slots that get it.

        Every slot has an index left. Each slot is in exactly one mask, and misses that index.
        Nothing is removed from ``members``.
        """


_POLICIES: dict[str, type[DrawPolicy]] = {}
Kind = TypeVar("Kind", bound=type[DrawPolicy])


def policy(name: str) -> Callable[[Kind], Kind]:
    """Return a decorator that registers a policy class under this name."""

    def register(kind: Kind) -> Kind:
        _POLICIES[name] = kind
        return kind

    return register


def find_policy(name: str) -> type[DrawPolicy]:
    """Return the policy of this name; UnknownNameError lists the known names."""
    if name not in _POLICIES:
        raise unknown_name("policy", name, _POLICIES)
    return _POLICIES[name]


def policies() -> list[str]:
    """Return the names of all policies."""
    return sorted(_POLICIES)


@policy("independent")
class Independent(DrawPolicy):
    """One random order per task, as separate loaders have; two tasks meet by chance only."""

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
    """Return the indices in a uniformly random order: a stable argsort of 64 random bits each."""
    bits = np.frombuffer(random.randbytes(8 * len(indices)), np.uint64)
    return indices[np.argsort(bits, kind="stable")]
