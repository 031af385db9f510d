"""Rules known to be wrong must fail the tests that the planner's policies pass."""

from __future__ import annotations

import numpy as np
import pytest
from planning import (
    ALPHA,
    Task,
    permutations_equal,
    planner_by,
    play,
    successive_independent,
    uniform,
)

from needle.sharing.planner.coupled import Coupled
from needle.sharing.planner.planned import Planned
from needle.sharing.planner.policy import DrawPolicy, Indices


class Printed(DrawPolicy):
    """The published rule for three sets, where a task may still join after another was refused."""

    def draw(self, slots: list[int]) -> dict[int, int]:
        members, random = self.members, self.random.random
        together = sum(1 << j for j in slots)
        common = [
            i for m, r in members.rows.items() if m & together == together for i in members.items[r]
        ]
        shared, last = common[int(random() * len(common))], len(common)
        drawn: dict[int, int] = {}
        for j in sorted(slots, key=members.left.__getitem__):
            index = shared
            if random() * members.left[j] < last:
                last = members.left[j]
            else:
                others = np.setdiff1d(members.missing(j), common)
                index = int(others[int(random() * len(others))])
            drawn[index] = drawn.get(index, 0) | 1 << j
        return drawn


class UnionShuffled(DrawPolicy):
    """All indices in one fixed random order: each task takes its own indices in that order every
    epoch.
    """

    order: Indices | None = None

    def draw(self, slots: list[int]) -> dict[int, int]:
        if self.order is None:
            self.order = np.array(self.random.sample(range(8), 8))
        drawn: dict[int, int] = {}
        for j in slots:
            missing = set(self.members.missing(j).tolist())
            index = next(i for i in self.order.tolist() if i in missing)
            drawn[index] = drawn.get(index, 0) | 1 << j
        return drawn


class Blockwise(DrawPolicy):
    """Draws a block of 64 indices, then an index in it, which favours the last, shorter block."""

    def draw(self, slots: list[int]) -> dict[int, int]:
        missing = self.members.missing(slots[0])
        block = self.random.choice(np.unique(missing // 64).tolist())
        return {int(self.random.choice(missing[missing // 64 == block].tolist())): 1 << slots[0]}


class Unthinned(Planned):
    """Copies the leader without thinning by the share of its own set that the leader has."""

    def _part(
        self, missed: Indices, others: Indices, hits: Indices, places: int
    ) -> tuple[Indices, Indices]:
        return others, hits[:0]


def firsts(policy: type[DrawPolicy], sets: list[range], trials: int) -> list[np.ndarray]:
    """Return, for each task, how often each index came first."""
    counts = [np.zeros(len(own), int) for own in sets]
    for seed in range(trials):
        planner = planner_by(policy, seed)
        for name, own in enumerate(sets):
            planner.join(str(name), own)
        for draw in planner.round(planner.tasks):
            for name in map(int, draw.tasks):
                counts[name][draw.index] += 1
    return counts


def test_the_printed_rule_for_three_sets_is_biased() -> None:
    counts = firsts(Printed, [range(2), range(4), range(8)], 1000)
    assert uniform(counts[1]) > ALPHA > uniform(counts[2])
    assert counts[2][:2].sum() / 1000 == pytest.approx(0.375, abs=0.05)  # 0.25 would be correct


def test_shuffling_the_union_repeats_itself() -> None:
    orders = play(UnionShuffled, [Task([0, 1, 2]), Task([1, 2, 3])], 600).epochs[0]
    assert successive_independent(orders) < ALPHA


def test_picking_by_blocks_is_biased() -> None:
    assert uniform(firsts(Blockwise, [range(129)], 1000)[0]) < ALPHA
    assert uniform(firsts(Coupled, [range(129)], 1000)[0]) > ALPHA


def test_copying_a_leader_of_a_smaller_set_takes_its_indices_too_early() -> None:
    tasks = [Task([0, 1, 2, 3]), Task([2, 3, 4], start=2)]
    assert permutations_equal(play(Unthinned, tasks, 2000, seed=1).epochs[1]) < ALPHA
    assert permutations_equal(play(Planned, tasks, 2000, seed=1).epochs[1]) > ALPHA
