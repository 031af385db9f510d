"""Test the harness that all benchmarks share: statistics, turns, command line and report."""

import importlib.util
import os
import time
from pathlib import Path

import pytest

import needle
from apps.bench.against.__main__ import BENCHMARK
from apps.bench.data import process_tree
from apps.bench.harness import program, report, turns
from apps.bench.harness.case import PEAK, Calls, Case, Once
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, versus
from apps.bench.harness.turns import Outcome, Result, run_study
from needle.backend_selection import BACKEND

pytestmark = pytest.mark.usefixtures("programs_find_us")
QUICK = Settings(BENCHMARK.module, quick=True, rounds=1)


# ---- arithmetic ----------------------------------------------------------------------------------


def test_a_sample_is_milliseconds_by_the_item_and_lasts_long_enough() -> None:
    times, moment = [], 0.0

    def step() -> None:
        nonlocal moment
        times.append(moment)
        moment += 0.25

    calls = Calls({"one": step}, 1.0, items=5, clock=lambda: moment)
    before = len(times)
    assert calls.run() == {"one": 50.0} and len(times) == before + 5


def test_the_peak_is_measured_before_and_after_each_sample() -> None:
    order: list[str] = []
    peaks = iter([1.0, 3.0])

    def peak() -> float:
        order.append("peak")
        return next(peaks)

    calls = Calls({"a": lambda: order.append("call")}, 0.0, peak=peak)
    assert calls.run()["a" + PEAK] == 2.0
    assert order[-3:] == ["peak", "call", "peak"]


def test_outcomes_give_median_and_range() -> None:
    outcome = Outcome("case")
    for value in (3, 1, 2):
        outcome.add({"rate": value})
    assert (outcome.median("rate"), outcome.span("rate")) == (2, (1, 3))
    assert outcome.median("other") != outcome.median("other")
    result = Result("study", {"case": outcome, "other": Outcome("other", {"rate": [4.0]})})
    assert result.ratio("other", "case", "rate") == 2
    assert result.best(["case", "other", "missing"], "rate") == ("other", 4.0)
    assert Result.from_dict(result.to_dict()) == result


def test_two_cases_make_a_target_and_all_numbers_a_table() -> None:
    found = {"ours": Outcome("ours", {"rate": [2.0, 4.0, 3.0]}), "lost": Outcome("lost")}
    result = Result("study", {**found, "peer": Outcome("peer", {"rate": [2.0], "ms": [5.0]})})
    target = versus("speed", result, ("ours", "peer"), 1.2, unit="rows/s")
    assert (target.value, target.ours) == (1.5, "ours: 3 (2–4) rows/s")
    assert report.all_numbers(result)[2:4] == ["| ours | 3 (2–4) | – |", "| peer | 2 | 5 |"]


def test_targets_say_whether_they_are_reached() -> None:
    least = Target("speed", 2.0, 1.85, "ours")
    most = Target("delay", 0.6, 0.5, "ours", at_most=True, unit="s")
    unknown = Target("nothing", float("nan"), 1.0, "ours")
    assert [t.reached for t in (least, most, unknown)] == [True, False, False]
    assert least.row() == "| speed | ours |  | 2 × | ≥ 1.85 × | reached |"
    assert most.row() == "| delay | ours |  | 0.6 s | ≤ 0.5 s | **not reached** |"
    assert unknown.verdict == "not measured"
    assert report.score(least) == pytest.approx(2 / 1.85)
    assert report.score(most) == pytest.approx(5 / 6)


def test_cpu_time_of_a_tree_grows_with_use() -> None:
    before, started = process_tree.cpu_seconds(os.getpid()), time.process_time()
    while time.process_time() - started < 0.1:
        sum(range(1000))
    assert process_tree.cpu_seconds(os.getpid()) - before >= 0.05


# ---- taking turns --------------------------------------------------------------------------------


class Recorder:
    """A stand-in for a contestant's process; its second run fails if its name says so."""

    log: list[str]

    def __init__(self, study: str, case: Case, settings: Settings) -> None:
        self.case, self.runs = case, 0

    def run(self) -> dict[str, float]:
        self.log.append(self.case.name)
        self.runs += 1
        if self.case.name == "fails" and self.runs == 2:
            raise turns.ContestantError("out of luck")
        return {"rate": self.runs}

    def close(self) -> None:
        self.log.append(f"closed {self.case.name}")

    def kill(self) -> None:
        self.log.append(f"killed {self.case.name}")


def test_cases_of_a_group_take_turns_and_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder.log = log = []
    monkeypatch.setattr(turns, "Contestant", Recorder)
    cases = [
        Case("a", Once, group="one"),
        Case("fails", Once, group="one"),
        Case("short", Once, group="two", rounds=1),
        Case("absent", Once, needs=("no_such_module",), group="two"),
    ]
    result = run_study("study", cases, Settings("", rounds=3), lambda line: None)
    one = log[: log.index("closed a")]
    assert [sorted(one[:2]), one.count("a"), one.count("fails")] == [["a", "fails"], 3, 2]
    assert log[-2:] == ["short", "closed short"]
    assert result.outcomes["a"].values["rate"] == [1, 2, 3]
    assert result.notes == [
        "fails: failed in round 2: out of luck.",
        "absent: left out, needs no_such_module, not installed.",
    ]


@pytest.mark.skipif(BACKEND != "nd", reason="needs needle's own arrays")
def test_contestants_are_processes_of_their_own_and_the_page_keeps_earlier_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = Outcome("needle", {"64 × 64 × 64": [1.0, 2.0, 4.0]})
    old, gone = Result("matmul, 2 threads", {"needle": earlier}), Result("removed, 1 thread")
    report.write_results(tmp_path / "results.json", {each.study: each for each in (old, gone)})
    assert (
        program.main(BENCHMARK, ["matmul", "--quick", "--threads", "1", "--out", str(tmp_path)])
        == 0
    )
    details = (tmp_path / "DETAILS.md").read_text(encoding="utf-8")
    assert "## Matrix products, float32 (`matmul, 1 thread`)" in details
    assert "| 16 × 16 × 16 |" in details and "| 64 × 64 × 64 |" in details
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "## " not in page and len(page.splitlines()) < 40
    assert "its numbers mean nothing" in page
    assert "| matmul, 2 threads, the least of all sizes |" in page
    if importlib.util.find_spec("torch") is None:
        assert "PyTorch, eager: left out, needs torch, not installed." in page
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "results.png").read_bytes()[:4] == b"\x89PNG"


def test_an_error_of_a_contestant_is_its_own() -> None:
    cases = [Case("no such case", Once)]
    result = run_study("matmul", cases, QUICK, lambda line: None)
    assert "StopIteration" in str(result.outcomes["no such case"].error)


# ---- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "error", "failed"),
    [
        ("needle", "broken", True),
        ("PyTorch, compiled", "no compiler", False),
        ("needle", None, False),
    ],
)
def test_an_error_of_ours_fails_the_run_and_one_of_a_peer_does_not(
    case: str, error: str | None, failed: bool
) -> None:
    assert program.ours_failed(Result("study", {case: Outcome(case, error=error)})) == failed


def test_options_reach_the_contestants() -> None:
    given = ["--eager", "--threads", "1,2"]
    options = program.parse(BENCHMARK, given)
    alone, both = (
        program.settings_of(BENCHMARK, options, threads, "") for threads in options.threads
    )
    assert (alone.compiled, alone.rounds, alone.threads) == (False, 5, 1)
    assert Settings.from_json(both.to_json()).threads == 2
    assert both.environment()["OMP_NUM_THREADS"] == "2"
    names = {case.name for case in BENCHMARK.studies["lenet5"].cases(alone)}
    assert "PyTorch, compiled" not in names
    assert {"needle, captured", "PyTorch, eager, batch 128"} <= names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet19"], "unknown study resnet19; give lenet5"),
        (["--threads", "0"], "must be 1 or more, got 0"),
    ],
)
def test_options_that_cannot_be_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.parse(BENCHMARK, arguments)
    assert words in capsys.readouterr().err


def test_without_a_gpu_it_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    if needle.cuda().enabled():
        pytest.skip("there is a GPU")
    assert program.main(BENCHMARK, ["--device", "cuda"]) == 1
    assert capsys.readouterr().out.startswith("needle: cuda: ")
