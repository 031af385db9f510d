"""Planner: every task gets each index of its set once per epoch, whatever the other tasks do."""

from __future__ import annotations

import numpy as np
import pytest

from needle.errors import DataError, UnknownNameError
from needle.sharing import Planner


def epoch_of(planner: Planner, tasks: list[str], count: int = 10**6) -> dict[str, list[int]]:
    """Return each task's indices over ``count`` rounds; check that each round's are distinct."""
    got: dict[str, list[int]] = {task: [] for task in tasks}
    for draws in planner.rounds(tasks, count):
        assert len({draw.index for draw in draws}) == len(draws)
        for draw in draws:
            for task in draw.tasks:
                got[task].append(draw.index)
    return got


def test_an_epoch_is_the_whole_set_once() -> None:
    planner = Planner(3)
    planner.join("a", range(40))
    planner.join("b", np.arange(90, 20, -1))
    for _ in range(3):
        got = epoch_of(planner, ["a", "b"])
        assert sorted(got["a"]) == list(range(40)) and sorted(got["b"]) == list(range(21, 91))
        assert planner.remaining("a") == planner.remaining("b") == 0
        assert planner.round(["a", "b"]) == []
        planner.next_epoch("a")
        planner.next_epoch("b")


def test_a_task_joins_with_what_its_epoch_has_left() -> None:
    planner = Planner()
    planner.join("a", range(100))
    planner.join("b", range(100))
    first = epoch_of(planner, ["a", "b"], 30)["a"]
    planner.leave("a")
    planner.join("a", range(100), remaining=np.setdiff1d(np.arange(100), first[:-5]))
    rest = epoch_of(planner, ["a"])["a"]
    assert sorted(first[:-5] + rest) == list(range(100))


def test_need_counts_the_epochs_that_miss_an_index() -> None:
    planner = Planner()
    planner.join("a", range(10))
    planner.join("b", range(5, 20))
    assert [planner.need(index) for index in (0, 5, 19, 20, -1)] == [1, 2, 1, 0, 0]
    epoch_of(planner, ["a"])
    assert planner.need(5) == 1
    planner.leave("b")
    assert planner.need(5) == 0
    planner.next_epoch("a")
    assert planner.need(5) == 1


def test_same_seed_and_calls_same_draws() -> None:
    def log(seed: int) -> list[object]:
        planner = Planner(seed=seed)
        planner.join("a", range(50))
        planner.join("b", range(25, 80))
        log: list[object] = [planner.round(["a"]), *planner.rounds(["b", "a"], 20)]
        planner.join("c", range(60), remaining=np.arange(30))
        return [*log, *(planner.round(["a", "b", "c"]) for _ in range(40))]

    assert log(1) == log(1) != log(2)


def test_many_rounds_are_as_many_single_ones() -> None:
    one, many = Planner(seed=5), Planner(seed=5)
    for planner in (one, many):
        for name, indices in (("a", range(30)), ("b", range(10, 60)), ("c", range(5))):
            planner.join(name, indices)
    assert many.rounds("abc", 60) == [one.round("abc") for _ in range(50)]


def test_refusals_name_the_remedy() -> None:
    planner = Planner()
    planner.join("a", range(3))
    with pytest.raises(DataError, match="has joined already"):
        planner.join("a", range(3))
    with pytest.raises(DataError, match="distinct, got 4 twice"):
        planner.join("b", np.array([4, 1, 4]))
    with pytest.raises(DataError, match=r"\[0, 2\*\*31\), got -1"):
        planner.join("b", np.array([-1, 1]))
    with pytest.raises(DataError, match="integers, got float64"):
        planner.join("b", np.array([0.5]))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="empty"):
        planner.join("b", range(0))
    with pytest.raises(DataError, match="index 7 does not belong"):
        planner.join("b", range(3), remaining=np.array([7]))
    with pytest.raises(UnknownNameError, match="known: a"):
        planner.round(["b"])
    assert planner.tasks == ("a",) and planner.remaining("a") == 3
    for i in range(63):
        planner.join(f"t{i}", range(2))
    with pytest.raises(DataError, match="64 tasks at most"):
        planner.join("b", range(3))
