"""Test that the planner's orders are uniform and independent between epochs, for every rule."""

from __future__ import annotations

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

from needle.sharing.planner.planned import Planned

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
