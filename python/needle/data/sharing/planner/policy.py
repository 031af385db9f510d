"""What a policy is: it gives each active task its next index; one file a policy, found by name.

Every policy leaves each task a uniformly random order of its own set, epoch by epoch. How often
tasks meet at one index, and so are served by one read, is what policies differ in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

from ....errors import unknown_name
from .members import Indices, Members


class Draw(NamedTuple):
    """An index and the tasks that get it this round, in the order in which they joined."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks a Draw
    tasks: tuple[str, ...]


class Policy(ABC):
    """Draws for the tasks of ``members``, which are known by slot number here.

    random: the only source of chance. Its state and everything else a policy looks at belong to
    the past: which tasks are active is settled before anything is drawn.
    """

    def __init__(self, members: Members, random: Random) -> None:
        self.members, self.random = members, random

    def begin(self, slot: int, indices: Indices, whole: bool) -> None:
        """Slot begins an epoch, or goes on with one if not ``whole``; ``members`` has its rest."""

    def end(self, slot: int) -> None:
        """Slot's epoch is over; what it may have left (``members`` still has it) is dropped."""

    @abstractmethod
    def draw(self, slots: list[int]) -> dict[int, int]:
        """For slots that all have something left: each index drawn and the mask that gets it.

        Each slot is in exactly one mask, whose index it misses. Nothing is taken from members.
        """


_POLICIES: dict[str, type[Policy]] = {}
Kind = TypeVar("Kind", bound=type[Policy])


def policy(name: str) -> Callable[[Kind], Kind]:
    """Registers a class of policies under this name."""

    def register(kind: Kind) -> Kind:
        _POLICIES[name] = kind
        return kind

    return register


def find(name: str) -> type[Policy]:
    """The policy of this name; UnknownNameError lists those there are."""
    if name not in _POLICIES:
        raise unknown_name("policy", name, _POLICIES)
    return _POLICIES[name]


def policies() -> list[str]:
    """The names of all policies."""
    return sorted(_POLICIES)
