"""Tests of the benchmark: its arithmetic with a simulated clock, and that all work runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.bench import __main__ as bench
from apps.bench import work


def test_samples_are_seconds_of_one_call_in_turns() -> None:
    moment, order = 0.0, []

    def takes(name: str, seconds: float) -> work.Step:
        def step() -> None:
            nonlocal moment
            moment += seconds
            order.append(name)

        return step

    steps = {"a": takes("a", 0.015625), "b": takes("b", 0.5)}
    times = bench.measure(steps, rounds=3, clock=lambda: moment)
    assert times == {"a": [0.015625] * 3, "b": [0.5] * 3}
    assert order[-9:] == ["a", "a", "b"] * 3  # a is repeated to last LEAST_SECONDS


def test_a_row_gives_medians_and_paired_ratios() -> None:
    times = {"cpu": [0.001, 0.004, 0.002], "torch": [0.002, 0.004, 0.001]}
    assert bench.row("work", ["cpu", "torch"], times) == "| work | 2 (1.00) | 2 |"


@pytest.mark.parametrize("title", sorted(work.WORK))
def test_each_work_runs_for_each_contestant(title: str) -> None:
    for name in work.contestants():
        if name in ("cpu", "cpu_numpy", "torch"):  # other tests register backends too, slow ones
            work.WORK[title](name)()


def test_the_table_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"nothing": lambda contestant: lambda: None}
    monkeypatch.setattr(bench, "WORK", short)
    monkeypatch.setattr(bench, "LEAST_SECONDS", 1e-5)
    assert bench.main(["--rounds", "2", "--out", str(tmp_path / "R.md")]) == 0
    assert (tmp_path / "R.md").read_text().splitlines()[-1].startswith("| nothing | ")
