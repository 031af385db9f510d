"""Tests of the data module's benchmark: its arithmetic, all studies, its pages."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from apps.bench.data import __main__ as bench
from apps.bench.data import gallery, harness, peers, pictures, process_tree, results
from apps.bench.data.case import Calls, Case, Once
from apps.bench.data.epochs import Epochs
from apps.bench.data.harness import Outcome, Result, compare, recheck, run_study
from apps.bench.data.settings import Settings
from apps.bench.data.studies import STUDIES
from apps.bench.data.target import Target, short, spread, table
from needle.data.batching import collate
from needle.data.samples import tensor_hook

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def programs_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let contestants import the sources; restore the Tensor hook that studies may remove."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), str(ROOT)]))
    monkeypatch.setattr(tensor_hook.hook, "make", TENSOR)
    monkeypatch.setattr(tensor_hook.hook, "constant", tensor_hook.hook.constant)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(str(tmp_path_factory.mktemp("bench")), quick=True, rounds=1)


# ---- arithmetic ----------------------------------------------------------------------------------


def test_a_call_is_timed_by_the_item_and_repeated_until_it_lasts() -> None:
    moment = 0.0

    def step() -> None:
        nonlocal moment
        moment += 0.25

    calls = Calls(step, items=5, least=1.0, clock=lambda: moment)
    assert calls.calls == 4
    assert calls.run(False) == {"us": 50_000.0}


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


def test_twins_must_give_the_same_bytes_and_all_the_same_mean() -> None:
    cases = [Case(name, Once, same_bytes=tag, same_mean="a") for name, tag in ("ab", "bb", "c ")]
    seen = {"samples": 4, "labels": 6, "bytes": 77, "mean": 0.1, "deviation": 1.0}
    witnesses = {"a": seen, "b": seen, "c": {**seen, "bytes": 1, "mean": 0.12}}
    assert compare(cases, witnesses) == []
    witnesses["b"] = {**seen, "bytes": 78}
    assert compare(cases, witnesses) == ["b and a do not return the same bytes (b)"]
    witnesses["b"], witnesses["c"] = seen, {**seen, "mean": 0.2}
    assert compare(cases, witnesses) == ["c and a do not return the same mean (a)"]


def test_timed_runs_must_give_every_sample() -> None:
    witness = {"samples": 10, "labels": 45}
    assert recheck("case", {"samples": 20, "labels": 90}, witness) == []
    assert recheck("case", {"samples": 15, "labels": 67}, witness) != []
    assert recheck("case", {"samples": 20, "labels": 91}, witness) != []
    assert recheck("case", {"us": 1.0}, {}) == []


def test_targets_say_whether_they_are_reached() -> None:
    least = Target("speed", 2.0, 1.85, "ours")
    most = Target("delay", 0.6, 0.5, "ours", at_most=True, unit="s")
    unknown = Target("nothing", float("nan"), 1.0, "ours")
    assert [t.reached for t in (least, most, unknown)] == [True, False, False]
    assert least.row() == "| speed | ours |  | 2 × | ≥ 1.85 × | reached |"
    assert most.row() == "| delay | ours |  | 0.6 s | ≤ 0.5 s | **not reached** |"
    assert unknown.verdict == "not measured"
    assert results.score(least) == pytest.approx(2 / 1.85)
    assert results.score(most) == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (123456, "123 000"),
        (1234.5, "1 230"),
        (345.6, "346"),
        (1.2345, "1.23"),
        (0.00456, "0.00456"),
    ],
)
def test_numbers_have_three_figures(value: float, text: str) -> None:
    assert short(value) == text


def test_ranges_and_tables_are_written() -> None:
    assert spread(2.0, (1.0, 3.0)) == "2 (1–3)"
    assert spread(2.0, (2.0, 2.0)) == "2"
    assert table(("", "a"), [["row", "1"]]) == ["|  | a |", "|---|---:|", "| row | 1 |", ""]


def test_cpu_time_and_memory_of_a_tree_grow_with_use() -> None:
    before, started = process_tree.cpu_seconds(os.getpid()), time.process_time()
    while time.process_time() - started < 0.1:
        sum(range(1000))
    assert process_tree.cpu_seconds(os.getpid()) - before >= 0.05
    if process_tree.PROC.is_dir():
        block = bytearray(os.urandom(1)) * (32 << 20)
        with process_tree.PeakMemory(os.getpid()) as memory:
            pass
        assert memory.peak >= len(block)


# ---- taking turns --------------------------------------------------------------------------------


class Recorder:
    """A stand-in for a contestant's process; its second run fails if its name says so."""

    log: list[str]

    def __init__(self, study: str, case: Case, settings: Settings) -> None:
        self.case, self.numbers, self.runs = case, {"first_batch": 0.5}, 0

    def witness(self) -> tuple[dict[str, float], int]:
        return {"samples": 2.0, "labels": 1.0}, 64

    def run(self) -> dict[str, float]:
        self.log.append(self.case.name)
        self.runs += 1
        if self.case.name == "fails" and self.runs == 2:
            raise harness.ContestantError("out of luck")
        labels = 3.0 if self.case.name == "lazy" else 1.0
        return {"samples": 2.0, "labels": labels, "rate": self.runs}

    def close(self) -> None:
        self.log.append(f"closed {self.case.name}")

    def kill(self) -> None:
        self.log.append(f"killed {self.case.name}")


def test_cases_of_a_group_take_turns_and_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder.log = log = []
    monkeypatch.setattr(harness, "Contestant", Recorder)
    cases = [
        Case("a", Once, group="one"),
        Case("fails", Once, group="one"),
        Case("lazy", Once, group="two", rounds=1),
        Case("absent", Once, needs=("no_such_module",), group="two"),
    ]
    result = run_study("study", cases, Settings("", rounds=3), lambda line: None)
    one = log[: log.index("closed a")]
    assert [sorted(one[:2]), one.count("a"), one.count("fails")] == [["a", "fails"], 3, 2]
    assert log[-2:] == ["lazy", "closed lazy"]
    assert result.outcomes["a"].values["rate"] == [1, 2, 3]
    assert result.outcomes["a"].values["pss"] == [64]
    assert result.notes == [
        "fails: failed in round 2: out of luck",
        "absent: left out, needs no_such_module, not installed",
    ]
    assert result.failed_checks == ["lazy: a timed run did not return every sample once"]


def test_contestants_are_processes_of_their_own(quick: Settings) -> None:
    cases = [case for case in STUDIES["arrays"].cases(quick) if case.name.endswith("in order")]
    cases = [case for case in cases if not case.needs]
    broken = Case("no such case", Once)
    result = run_study("arrays", [*cases, broken], quick, lambda line: None)
    assert result.failed_checks == []
    for case in cases:
        values = result.outcomes[case.name].values
        assert {"rate", "cpu", "first_batch", "rate_from_construction"} <= set(values)
        assert all(rate > 0 for rate in values["rate"])
    assert "StopIteration" in str(result.outcomes["no such case"].error)


# ---- studies -------------------------------------------------------------------------------------


def runs_here(case: Case) -> bool:
    """Return True if a case can be opened in this process: no peer workers, all installed."""
    ours = not {"torch", "grain"} & set(case.needs)
    return not case.missing() and (ours or ", 0 workers" in case.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_runs(name: str, quick: Settings) -> None:
    study = STUDIES[name]
    if hasattr(study, "prepare"):
        pytest.importorskip("simplejpeg")
        study.prepare(quick)
    cases = [case for case in study.cases(quick) if runs_here(case)]
    result, witnesses = Result(name), {}
    for case in cases:
        subject = case.open(quick)
        try:
            outcome = result.outcomes[case.name] = Outcome(case.name)
            outcome.add(subject.first)
            witnesses[case.name] = subject.run(True)
            numbers = subject.run(False)
        finally:
            subject.close()
            collate.set_tensor_type(TENSOR)
        assert numbers
        outcome.add(numbers)
        assert recheck(case.name, numbers, witnesses[case.name]) == []
    assert cases
    assert compare(cases, witnesses) == []
    assert any("|" in line for line in study.tables(result))
    assert all(target.row().count("|") == 7 for target in study.targets(result))


TENSOR = tensor_hook.hook.make


def test_peers_give_what_ours_gives() -> None:
    np = pytest.importorskip("numpy")
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    made = peers.augment_small(image, np.random.default_rng(1))
    assert made.shape == (3, 32, 32) and made.dtype == np.float32
    black = (0 - peers.SMALL_MEAN) / peers.SMALL_STD
    white = (1 - peers.SMALL_MEAN) / peers.SMALL_STD
    assert (made.min(axis=(1, 2)) >= black - 1e-6).all()
    assert (made.max(axis=(1, 2)) <= white + 1e-6).all()


def test_batched_torch_crops_and_flips_as_it_should() -> None:
    torch = pytest.importorskip("torch")
    np = pytest.importorskip("numpy")
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    loader = peers.BatchedSmallPictures(images, np.arange(6), 6)
    torch.manual_seed(0)
    made, labels = next(iter(loader))
    restored = (made * loader.std + loader.mean).mul(255).round().to(torch.uint8).numpy()
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    for picture, label in zip(restored, labels):
        windows = [
            window[:, ::step]
            for top in range(9)
            for left in range(9)
            for step in (1, -1)
            for window in [padded[label, top : top + 32, left : left + 32]]
        ]
        assert any(np.array_equal(picture.transpose(1, 2, 0), window) for window in windows)


def test_an_epoch_that_gives_less_is_seen(quick: Settings) -> None:
    images, labels = pictures.small_pictures(quick)

    class Shrinking:
        epochs = 0

        def __iter__(self) -> Any:
            self.epochs += 1
            yield images[self.epochs :], labels[self.epochs :]

    subject = Epochs(Shrinking, lambda batch: batch, least=1e-9)
    witness = subject.run(True)
    assert witness["samples"] == len(labels) - 2
    assert recheck("shrinking", subject.run(False), witness) != []


# ---- the page ------------------------------------------------------------------------------------


def test_the_page_is_written_and_earlier_studies_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("needle, resume at 99 %",)
    faults = STUDIES["faults"]
    cases = faults.cases
    monkeypatch.setattr(
        faults, "cases", lambda settings: [c for c in cases(settings) if c.name in chosen]
    )
    rate = Outcome("T2, 2 workers", {"rate": [19.0]})
    earlier = Result(
        "loader", {"T2, 2 workers": rate, "T2, sequential": Outcome("", {"rate": [10]})}
    )
    bench.write_results(tmp_path / "results.json", {"loader": earlier})
    assert bench.main(["faults", "--quick", "--rounds", "1", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "| T2: 2 workers over sequential | 19 images/s |" in page
    assert "its numbers mean nothing" in page
    assert "| needle, resume at 99 % |" in (tmp_path / "DETAILS.md").read_text(encoding="utf-8")
    assert "of the 2 measured targets are reached" in page
    pytest.importorskip("matplotlib")
    assert (tmp_path / "results.png").read_bytes()[:4] == b"\x89PNG"


def test_a_study_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.parse(["louder"])
    assert "unknown study louder; give loader" in capsys.readouterr().err


def test_the_gallery_shows_every_augmentation_and_is_small(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg")
    image = pytest.importorskip("PIL.Image")
    out = tmp_path / "gallery.png"
    assert gallery.main(["--out", str(out)]) == 0
    assert out.stat().st_size < 600_000
    with image.open(out) as picture:
        assert picture.width > 1000
    import needle.data.transforms as known

    transforms = {
        name
        for name, kind in vars(known).items()
        if isinstance(kind, type) and issubclass(kind, (known.Transform, known.BatchTransform))
    }
    shown = repr([*gallery.AUGMENTATIONS.values(), *gallery.MIXING.values()])
    unseen = {name for name in transforms if name not in shown}
    assert unseen <= {"BatchTransform", "Transform", "Compose", "ToCHW"}
