"""Simulates a planner for many epochs and tests its orders, for test_planner.py.

Each test returns a p-value, which is below ``ALPHA`` once in ten thousand runs of a correct
planner. Seeds are fixed, so that a test that passes once passes always.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from needle.sharing.planner.planned import Planned
from needle.sharing.planner.policy import Members

stats = pytest.importorskip("scipy.stats")

ALPHA = 1e-4
Orders = npt.NDArray[np.int64]


@dataclass
class Task:
    """A task in a scenario: its set, the round in which it joins, and when it is active."""

    indices: Sequence[int]
    start: int = 0
    active: Callable[[int], bool] = lambda time: True


@dataclass
class Played:
    """Each task's finished epochs, int (epochs, n), and the counts of reads and deliveries."""

    epochs: list[Orders]
    reads: int = 0
    delivered: int = 0


class RoundByRound(Planned):
    """A policy without a leader: ``Coupled`` draws every round."""

    def draw(self, slots: list[int]) -> dict[int, int]:
        return self._coupled.draw(slots)


def play(policy: type[Planned], tasks: Sequence[Task], rounds: int, seed: int = 0) -> Played:
    """Run all tasks for ``rounds`` rounds; each begins its next epoch when it is active again."""
    members = Members()
    draws = policy(members, Random(seed))
    got: list[list[int]] = [[] for _ in tasks]
    played = Played([])
    for time in range(rounds):
        active = []
        for slot, task in enumerate(tasks):
            if time >= task.start and task.active(time):
                if not members.left[slot]:
                    draws.end(slot)
                    members.enter(slot, np.array(task.indices))
                    draws.begin(slot, whole=True)
                active.append(slot)
        for index, taken in draws.draw(active).items() if active else ():
            members.take(index, taken)
            played.reads += 1
            played.delivered += taken.bit_count()
            for slot in active:
                if taken >> slot & 1:
                    got[slot].append(index)
    for indices, task in zip(got, tasks):
        whole = len(indices) // len(task.indices)
        orders = np.array(indices[: whole * len(task.indices)])
        played.epochs.append(orders.reshape(whole, len(task.indices)))
    return played


def uniform(counts: npt.NDArray[np.integer]) -> float:
    """Test the hypothesis that all cells are equally likely; return the p-value."""
    return float(stats.chisquare(counts).pvalue)


def permutations_equal(orders: Orders) -> float:
    """Test the hypothesis that all orders of at most five indices are equally likely; return p."""
    cells = {order: i for i, order in enumerate(itertools.permutations(sorted(orders[0])))}
    numbers = [cells[tuple(order)] for order in orders.tolist()]
    return uniform(np.bincount(numbers, minlength=len(cells)))


def successive_independent(orders: Orders) -> float:
    """Test the hypothesis that a small set's orders in successive epochs are independent; return p.

    Pairs that share an epoch are tested separately; the result is twice the smaller p-value.
    """
    cells = {order: i for i, order in enumerate(itertools.permutations(sorted(orders[0])))}
    numbers = np.array([cells[tuple(order)] for order in orders.tolist()])
    values = []
    for first in (0, 1):
        even = numbers[first : first + (len(numbers) - first) // 2 * 2].reshape(-1, 2)
        pairs = even[:, 0] * len(cells) + even[:, 1]
        values.append(uniform(np.bincount(pairs, minlength=len(cells) ** 2)))
    return min(1.0, 2 * min(values))


def positions_equal(orders: Orders) -> float:
    """Test the hypothesis that each index is equally likely at each position; return p."""
    count, n = orders.shape
    table = np.zeros((n, n))
    np.add.at(table, (np.searchsorted(np.sort(orders[0]), orders), np.arange(n)), 1)
    return _table(table, count * n, n)


def quarters_independent(orders: Orders) -> float:
    """Test the hypothesis that an index's quarters in successive epochs are independent."""
    count, n = orders.shape
    assert n % 4 == 0
    quarters = np.argsort(orders, axis=1) * 4 // n  # indices in ascending order
    table = np.zeros((4, 4))
    np.add.at(table, (quarters[:-1], quarters[1:]), 1)
    return _table(table, (count - 1) * n, n)


def _table(table: npt.NDArray[np.float64], total: int, n: int) -> float:
    """Return the chi-square p-value for summed tables, with margins fixed by permutations of n."""
    expected = total / table.size
    statistic = ((table - expected) ** 2).sum() / expected * (n - 1) / n
    return float(stats.chi2.sf(statistic, (len(table) - 1) ** 2))
