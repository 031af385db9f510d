"""Test that the planner gives a task each of its indices once per epoch, whatever others do."""

from __future__ import annotations

import numpy as np
import pytest

from needle.errors import DataError, UnknownNameError
from needle.sharing import Planner


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
