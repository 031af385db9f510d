"""Test the planner: its draws, its refusals, and how often the tasks' draws coincide.

Orders are uniform and independent between epochs, for every rule; the bounds of coinciding draws
are those on the page of proofs.
"""

from __future__ import annotations

from math import sqrt
from random import Random

import numpy as np
import pytest
from planning import (
    ALPHA,
    RoundByRound,
    Task,
    permutations_equal,
    play,
    positions_equal,
    quarters_independent,
    successive_independent,
)

from needle.errors import DataError, UnknownNameError
from needle.sharing import Planner
from needle.sharing.planner.coupled import Coupled
from needle.sharing.planner.planned import Planned
from needle.sharing.planner.policy import Members


def test_same_seed_and_calls_same_draws() -> None:
    def log(seed: int) -> list[object]:
        planner = Planner(seed=seed)
        planner.join("a", range(50))
        planner.join("b", range(25, 80))
        log: list[object] = [*planner.rounds(["a"], 1), *planner.rounds(["b", "a"], 20)]
        planner.join("c", range(60), remaining=np.arange(30))
        return [*log, *planner.rounds(["a", "b", "c"], 40)]

    assert log(1) == log(1) != log(2)


def test_many_rounds_are_as_many_single_ones() -> None:
    one, many = Planner(seed=5), Planner(seed=5)
    for planner in (one, many):
        for name, indices in (("a", range(30)), ("b", range(10, 60)), ("c", range(5))):
            planner.join(name, indices)
    assert many.rounds("abc", 60) == [one.rounds("abc", 1)[0] for _ in range(50)]


def test_refusals_name_the_remedy() -> None:
    planner = Planner()
    planner.join("a", range(3))
    with pytest.raises(DataError, match="has already joined"):
        planner.join("a", range(3))
    for wrong in ([4, 1], [1, 1], [-1, 1], [0, 2**31], [], [[1]]):
        with pytest.raises(DataError, match="task 'b' must be ascending"):
            planner.join("b", np.array(wrong, np.int64))
    with pytest.raises(TypeError):
        planner.join("b", np.array([0.5]))  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="known: a"):
        planner.rounds(["b"], 1)
    for i in range(63):
        planner.join(f"t{i}", range(2))
    with pytest.raises(DataError, match="at most 64 tasks"):
        planner.join("b", range(3))


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


POLICIES = (RoundByRound, Planned)
SMALL = {
    "overlapping": [Task([0, 1, 2]), Task([1, 2, 3]), Task([0, 2])],
    "nested": [Task([0, 1]), Task([0, 1, 2]), Task([0, 1, 2, 3])],
    "staggered": [Task([0, 1, 2]), Task([0, 1, 2], start=1), Task([0, 1, 2, 3], start=2)],
    "pauses": [
        Task([0, 1, 2], active=lambda time: time % 5 != 2),
        Task([0, 1, 2], active=lambda time: time * 7 % 11 > 3),
        Task([1, 2, 3], active=lambda time: time // 50 % 2 == 0),
    ],
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("family", SMALL)
def test_all_orders_are_equally_likely_and_independent_of_the_last(
    policy: type[Planned], family: str
) -> None:
    for orders in play(policy, SMALL[family], 4000, seed=1).epochs:
        assert permutations_equal(orders) > ALPHA
        assert orders.shape[1] > 3 or successive_independent(orders) > ALPHA


@pytest.mark.parametrize("policy", POLICIES)
def test_positions_and_quarters_of_larger_sets(policy: type[Planned]) -> None:
    tasks = [Task(range(16)), Task(range(8, 24), start=5), Task(range(4, 16), start=11)]
    for orders in play(policy, tasks, 6000, seed=2).epochs:
        assert positions_equal(orders) > ALPHA
        assert quarters_independent(orders) > ALPHA
