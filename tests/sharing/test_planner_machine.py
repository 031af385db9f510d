"""Test the planner with random actions: tasks join, leave, pause, resume and drop epochs.

Each task still gets every index of its set exactly once per epoch.
"""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from needle.sharing import Planner

SETS = st.frozensets(st.integers(0, 30), min_size=1, max_size=20)


class Machine(RuleBasedStateMachine):
    """A state machine that compares the planner with a model made of plain sets."""

    tasks = Bundle("tasks")

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.planner = Planner(seed)
        self.sets: dict[str, set[int]] = {}
        self.missing: dict[str, set[int]] = {}
        self.joined = 0

    def check(self, active: list[str], count: int) -> None:
        for draws in self.planner.rounds(active, count):
            due = {task for task in active if self.missing[task]}
            assert len({draw.index for draw in draws}) == len(draws)
            assert sorted(task for draw in draws for task in draw.tasks) == sorted(due)
            for draw in draws:
                for task in draw.tasks:
                    self.missing[task].remove(draw.index)

    @rule(target=tasks, own=SETS)
    def join(self, own: frozenset[int]) -> str:
        self.joined += 1
        name = f"t{self.joined}"
        self.planner.join(name, np.array(sorted(own)))
        self.sets[name], self.missing[name] = set(own), set(own)
        return name

    @rule(task=consumes(tasks))
    def leave(self, task: str) -> None:
        self.planner.leave(task)
        del self.sets[task], self.missing[task]

    @rule(target=tasks, task=consumes(tasks), back=st.integers(0, 3))
    def resume(self, task: str, back: int) -> object:
        pending = sorted(self.sets[task] - self.missing[task])[:back]
        self.missing[task].update(pending)
        self.planner.leave(task)
        left = np.array(sorted(self.missing[task]), np.int64)
        self.planner.join(task, np.array(sorted(self.sets[task])), remaining=left)
        return multiple(task)

    @rule(data=st.data(), count=st.integers(1, 25))
    def rounds(self, data: st.DataObject, count: int) -> None:
        paused = data.draw(st.sets(st.sampled_from(sorted(self.sets) or ["none"])))
        self.check([task for task in self.sets if task not in paused], count)

    @rule(task=tasks)
    def next_epoch(self, task: str) -> None:
        self.planner.leave(task)
        self.planner.join(task, np.array(sorted(self.sets[task])))
        self.missing[task] = set(self.sets[task])

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "planner"):
            return
        for index in range(32):
            missed = sum(index in missing for missing in self.missing.values())
            assert self.planner.need(index) == missed


def test_exactly_once_whatever_happens() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None)
    )
