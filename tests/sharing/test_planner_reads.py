"""Compare how many of the tasks' draws coincide with the bounds on the page of proofs."""

from __future__ import annotations

from math import sqrt
from random import Random

import numpy as np
import pytest
from planning import Task, play

from needle.sharing.planner.coupled import Coupled
from needle.sharing.planner.planned import Planned
from needle.sharing.planner.policy import Members


@pytest.mark.parametrize("sizes", [(10, 10, 10), (8, 20, 8), (12, 30, 5), (7, 9, 0), (1, 6, 1)])
def test_two_tasks_meet_as_often_as_any_two_can(sizes: tuple[int, int, int]) -> None:
    first, second, common = sizes
    members, rounds = Members(), 4000
    members.enter(0, np.arange(first))
    members.enter(1, np.arange(first - common, first - common + second))
    policy = Coupled(members, Random(7))
    met = sum(len(policy.draw([0, 1])) == 1 for _ in range(rounds)) / rounds
    bound = common / max(first, second)
    assert met == pytest.approx(bound, abs=4 * sqrt(bound * (1 - bound) / rounds) + 1e-9)


@pytest.mark.parametrize("start", [0.25, 0.5])
def test_a_follower_copies_the_plan_of_its_leader(start: float) -> None:
    """If a task starts a fraction s of an epoch later, 1 - s (1 - s) of its draws coincide."""
    n, epochs = 200, 30
    tasks = [Task(range(n)), Task(range(n), start=int(start * n))]
    played = play(Planned, tasks, n * epochs)
    together = (played.delivered - played.reads) / (n * epochs - tasks[1].start)
    assert together == pytest.approx(1 - start * (1 - start), abs=0.02)
