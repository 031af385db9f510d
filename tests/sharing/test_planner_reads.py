"""Planner: the distinct reads of a round, compared with bounds and with a linear programme.

The optimum of a round is a linear programme over all ways to partition the tasks into groups and to
give each group a part of the family; only these tests solve it.
"""

from __future__ import annotations

from itertools import product
from math import sqrt
from random import Random

import numpy as np
import pytest
from planning import Task, play

from needle.sharing.planner.coupled import Coupled
from needle.sharing.planner.planned import Planned
from needle.sharing.planner.policy import DrawPolicy, Members

optimize = pytest.importorskip("scipy.optimize")


def family(sets: list[range] | list[np.ndarray]) -> Members:
    members = Members()
    for slot, own in enumerate(sets):
        members.enter(slot, np.asarray(own))
    return members


def random_family(random: Random, tasks: int, universe: int = 24) -> Members:
    """Return sets of random sizes, some of them equal or nested."""
    sets: list[np.ndarray] = []
    for _ in range(tasks):
        pool = random.choice(sets).tolist() if sets and random.random() < 0.4 else range(universe)
        sets.append(np.array(sorted(random.sample(pool, random.randint(1, len(pool))))))
    return family(sets)


def groupings(tasks: list[int]) -> list[list[int]]:
    """Return all partitions of the tasks into groups, each group as a mask."""
    if not tasks:
        return [[]]
    found = []
    for grouping in groupings(tasks[1:]):
        bit = 1 << tasks[0]
        found.append([bit, *grouping])
        found += [
            [*grouping[:i], group | bit, *grouping[i + 1 :]] for i, group in enumerate(grouping)
        ]
    return found


def optimum(members: Members, tasks: int) -> float:
    """Return the fewest groups a round can have on average if all marginals are uniform."""
    atoms = {mask: len(members.items[row]) for mask, row in members.rows.items()}
    places = {key: i for i, key in enumerate(product(range(tasks), atoms))}
    columns, costs = [], []
    for grouping in groupings(list(range(tasks))):
        fitting = [[atom for atom in atoms if atom & group == group] for group in grouping]
        for labels in product(*fitting):
            column = np.zeros(len(places))
            for group, atom in zip(grouping, labels):
                for j in range(tasks):
                    column[places[j, atom]] += group >> j & 1
            columns.append(column)
            costs.append(len(grouping))
    wanted = [atoms[atom] / members.left[j] if atom >> j & 1 else 0.0 for j, atom in places]
    solved = optimize.linprog(costs, A_eq=np.array(columns).T, b_eq=wanted, method="highs")
    return float(solved.fun)


def reads(kind: type[DrawPolicy], members: Members, tasks: int, rounds: int) -> tuple[float, float]:
    """Return the mean number of distinct indices per round, and its standard error."""
    policy = kind(members, Random(7))
    counts = [len(policy.draw(list(range(tasks)))) for _ in range(rounds)]
    return float(np.mean(counts)), float(np.std(counts)) / sqrt(rounds)


@pytest.mark.parametrize("sizes", [(10, 10, 10), (8, 20, 8), (12, 30, 5), (7, 9, 0), (1, 6, 1)])
def test_two_tasks_meet_as_often_as_any_two_can(sizes: tuple[int, int, int]) -> None:
    first, second, common = sizes
    members = family([range(first), range(first - common, first - common + second)])
    mean, _ = reads(Coupled, members, 2, 4000)
    bound = common / max(first, second)
    assert 2 - mean == pytest.approx(bound, abs=4 * sqrt(bound * (1 - bound) / 4000) + 1e-9)


def test_random_families_come_near_the_optimum() -> None:
    random, ratios = Random(3), []
    for tasks in (2, 3, 4) * 12:
        members = random_family(random, tasks)
        least = optimum(members, tasks)
        mean, error = reads(Coupled, members, tasks, 600)
        assert mean <= 1.15 * least + 4 * error
        assert mean >= least - 4 * error
        ratios.append(mean / least)
    assert np.mean(ratios) <= 1.04


@pytest.mark.parametrize("start", [0.25, 0.5])
def test_a_follower_copies_the_plan_of_its_leader(start: float) -> None:
    """If it starts a fraction s of an epoch later, 1 - s (1 - s) of its draws coincide."""
    n, epochs = 200, 30
    tasks = [Task(range(n)), Task(range(n), start=int(start * n))]
    played = play(Planned, tasks, n * epochs)
    together = (played.delivered - played.reads) / (n * epochs - tasks[1].start)
    assert together == pytest.approx(1 - start * (1 - start), abs=0.02)
