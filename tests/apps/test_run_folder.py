"""Test a run's files and its recovery: records, checkpoints, full disks, lost workers."""

import csv
import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps import train as program
from apps.training import folder as folder_module
from apps.training import run as run_module
from apps.training.evaluation import ranks
from apps.training.folder import BEST, CHECKPOINT, MODEL, RunFolder, latest_folder, new_folder
from apps.training.records import COLUMNS, Clock, Records, read_records
from needle.backend_selection import BACKEND
from needle.errors import NeedleError
from tests.data import proc
from tests.test_io import files_no_larger_than

for package in program.PACKAGES:
    pytest.importorskip(package)

if BACKEND != "nd":
    pytest.skip("nothing here depends on the array namespace", allow_module_level=True)
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("no_pictures")
SMALL = ["--batch-size", "128", "--epochs", "2"]  # 12 batches of the 1497 digits


def run(out: Path, *more: str) -> int:
    return program.main([*SMALL, "--out", str(out), *more])


def weights(path: Path) -> dict[str, bytes]:
    return {k: a.tobytes() for k, a in needle.io.load(path).items() if k.startswith("model.")}


# ---- records -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "write_report", lambda *arguments: None)
        assert run(out, "--keep", "1") == 0
    return out


def test_each_split_batch_and_epoch_has_a_record(finished: Path) -> None:
    rows = read_records(finished / "metrics.csv")
    assert (finished / "metrics.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    epoch = [*[2] * 12, 0, 1]
    assert [row["type"] for row in rows] == [10, 11, *epoch, *epoch]
    assert [row["value1"] for row in rows[:2]] == [1497, 300]
    batches = [row for row in rows if row["type"] == 2]
    assert [(r["epoch"], r["value1"], r["value2"]) for r in batches] == [
        (e, b, 12) for e in (1, 2) for b in range(1, 13)
    ]


def test_seconds_of_an_epoch_and_since_the_start_are_kept_apart(finished: Path) -> None:
    rows = [row for row in read_records(finished / "metrics.csv") if row["epoch"] > 0]
    for kind in (0, 1):
        first, second = (row for row in rows if row["type"] == kind)
        assert first["duration_since_start"] == first["duration"] > first["loading"] > 0
        for name in ("loading", "duration"):
            total = first[name] + second[name]
            assert second[f"{name}_since_start"] == pytest.approx(total, abs=2e-6)
        assert second["start"] >= first["start"] + first["duration"] - 1e-3
    batches = [r for r in rows if r["type"] == 2 and r["epoch"] == 2]
    assert all(a["duration"] < b["duration"] for a, b in pairwise(batches))
    last, epoch = batches[-1], next(r for r in rows if r["type"] == 0 and r["epoch"] == 2)
    assert (last["loading"], last["duration"]) == (epoch["loading"], epoch["duration"])


def test_top_five_is_true_top_five() -> None:
    """Test that top-5 counts five ranks."""
    logits = np.array([np.arange(9, -1, -1.0)] * 3 + [np.zeros(10)])
    assert ranks(logits, np.array([0, 4, 5, 3])).tolist() == [0, 4, 5, 3]
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((50, 10)), rng.integers(0, 10, 50)
    order = np.argsort(-logits, axis=1, kind="stable")
    expected = [list(row).index(label) for row, label in zip(order, labels, strict=True)]
    assert ranks(logits, labels).tolist() == expected


def test_run_json_says_all_of_the_run(finished: Path) -> None:
    facts = json.loads((finished / "run.json").read_text())
    assert facts["needle"] == needle.__version__ and facts["packages"]["numpy"] == np.__version__
    assert facts["settings"]["batch_size"] == 128 and facts["seed"] == 0
    assert facts["settings"]["augment"] == [{"transform": "RandomCrop", "padding": 2}]
    assert facts["samples"] == {"training": 1497, "test": 300}
    assert facts["machine"]["cores"] == os.cpu_count() and facts["device"] == "cpu"
    assert facts["result"]["epoch"] == 2 and 0 < facts["result"]["test_accuracy"] <= 1
    assert facts["expected"] == {}  # the recipe's figure belongs to other options
    assert {"commit", "command", "started", "workers"} <= set(facts)


def test_tensorboard_events_hold_each_epoch(finished: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto import event_pb2

    (path,) = (finished / "tensorboard").iterdir()
    content, found = path.read_bytes(), {}
    while content:  # a record: length u64, its checksum u32, the event, its checksum u32
        size = int.from_bytes(content[:8], "little")
        event = event_pb2.Event.FromString(content[12 : 12 + size])
        found.update({(event.step, v.tag): v.simple_value for v in event.summary.value})
        content = content[16 + size :]
    with open(finished / "epochs.csv") as file:
        head, *lines = (line.strip().split(",") for line in file)
    for line in lines:
        for name, value in zip(head[1:], line[1:], strict=True):
            assert found[int(line[0]), name] == pytest.approx(float(value), rel=1e-6)


def test_checkpoints_last_best_and_pruned(finished: Path, tmp_path: Path) -> None:
    assert {p.name for p in finished.glob("*.safetensors")} == {
        *(CHECKPOINT, BEST, "model.safetensors", "checkpoint-0002.safetensors")
    }
    history = needle.io.checkpoint_extra(finished / CHECKPOINT)["progress"]["history"]
    accuracies = [row["test_accuracy"] for row in history]
    best = needle.io.checkpoint_extra(finished / BEST)["progress"]["epochs_done"]
    assert best == 1 + accuracies.index(max(accuracies))


def test_the_average_is_what_is_saved_and_evaluated(tmp_path: Path) -> None:
    assert run(tmp_path, "--ema", "0.9", "--flip-test") == 0
    arrays = needle.io.load(tmp_path / CHECKPOINT)
    saved = needle.io.load(tmp_path / "model.safetensors")
    for name, array in saved.items():
        np.testing.assert_array_equal(array, arrays[f"average.{name}"])
    assert any(not np.array_equal(a, arrays[f"model.{n}"]) for n, a in saved.items())


def test_a_run_starts_from_weights_and_is_resumed_without_their_file(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes((finished / "model.safetensors").read_bytes())
    options = ["--weights", str(file), "--schedule", "constant", "--lr", "1e-9"]
    assert run(tmp_path / "run", *options) == 0
    saved = needle.io.load(tmp_path / "run" / "model.safetensors")
    for name, array in needle.io.load(file).items():
        np.testing.assert_allclose(saved[name], array, atol=1e-6)
    file.unlink()
    more = ["--out", str(tmp_path / "run"), "--resume", "--epochs", "3"]
    assert program.main(more) == 0
    assert run(tmp_path / "other", *options) == 1
    assert f"no file at {file}" in capsys.readouterr().err


# ---- the folder ----------------------------------------------------------------------------------


def test_a_run_is_not_overwritten_unless_forced(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.iterdir() if p.name != ".lock"}
    assert run(finished) == 1
    assert "holds a run already" in capsys.readouterr().err
    assert {p: p.stat().st_mtime_ns for p in finished.iterdir() if p.name != ".lock"} == before


def test_force_replaces_the_run_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"old")
    (tmp_path / "checkpoint-0009.safetensors").write_bytes(b"old")
    (tmp_path / "notes.txt").write_text("mine")
    assert run(tmp_path, "--force") == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "checkpoint-0009.safetensors").exists()
    assert needle.io.checkpoint_extra(tmp_path / CHECKPOINT)["progress"]["epochs_done"] == 2


def test_two_runs_in_one_folder_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = RunFolder(tmp_path)
    for option in ("--force", "--resume"):
        assert run(tmp_path, option) == 1
        assert f"is in use by process {os.getpid()}" in capsys.readouterr().err
    first.close()
    assert run(tmp_path) == 0


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    code = "import sys, pathlib; from apps.training.folder import RunFolder;"
    code += "f = RunFolder(pathlib.Path(sys.argv[1])); print('in', flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "in\n"
    with pytest.raises(NeedleError, match=f"is in use by process {holder.pid}"):
        RunFolder(tmp_path)
    holder.kill()
    holder.communicate(timeout=60)
    RunFolder(tmp_path).close()


def test_folders_are_numbered(tmp_path: Path) -> None:
    assert new_folder("a", tmp_path) == latest_folder("a", tmp_path) == tmp_path / "a"
    for expected in ("a", "a-2", "a-3"):
        folder = new_folder("a", tmp_path)
        assert folder == tmp_path / expected
        folder.mkdir()
        (folder / "run.json").write_text("{}")
        assert latest_folder("a", tmp_path) == folder


# ---- survival ------------------------------------------------------------------------------------


class NoSpace(OSError):
    def __init__(self) -> None:
        super().__init__(28, "No space left on device")


def test_a_disk_too_small_for_a_checkpoint_is_told_before_the_first_step(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with files_no_larger_than(200_000):
        assert run(tmp_path) == 1
    said = capsys.readouterr()
    assert "could not write" in said.err and "epoch 1" not in said.out
    assert not (tmp_path / CHECKPOINT).exists() and not list(tmp_path.glob("*partial*"))


@pytest.mark.parametrize("failing", [3, 14, 17])
def test_a_record_that_cannot_be_written_stops_the_run_between_two_steps(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: int,
) -> None:
    """Test stops in a batch of the first epoch, at its end, and in the second epoch."""
    with monkeypatch.context() as patch:
        count, original = 0, Records._write

        def write(self: Records, text: str) -> None:
            nonlocal count
            count += 1
            if count > failing:
                raise NoSpace
            original(self, text)

        patch.setattr(Records, "_write", write)
        assert run(tmp_path) == 1
    said = capsys.readouterr().err
    assert "No space left" in said and "--resume" in said
    assert program.main(["--out", str(tmp_path), "--resume"]) == 0
    assert weights(tmp_path / CHECKPOINT) == weights(finished / CHECKPOINT)
    kept, whole = (read_records(p / "metrics.csv") for p in (tmp_path, finished))
    names = ("type", "epoch", "value1")
    assert [[r[n] for n in names] for r in kept] == [[r[n] for n in names] for r in whole]


def test_records_stay_whole_where_the_disk_is_full(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.batch(1, 0.0, Clock(), 1, 2)
    size, before = records.size(), (tmp_path / "metrics.csv").read_bytes()
    with files_no_larger_than(size + 9), pytest.raises(OSError, match="File too large"):
        records.batch(1, 0.0, Clock(), 2, 2)
    assert (tmp_path / "metrics.csv").read_bytes() == before and records.size() == size
    records.batch(1, 0.0, Clock(), 2, 2)
    records.close()
    assert [row["value1"] for row in read_records(tmp_path / "metrics.csv")] == [1, 2]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        calls, original = 0, os.replace

        def replace(source: Any, target: Any) -> None:
            nonlocal calls
            calls += Path(target).name == CHECKPOINT
            if calls == 2:
                raise NoSpace
            original(source, target)

        patch.setattr(os, "replace", replace)
        assert run(tmp_path) == 1
    assert needle.io.checkpoint_extra(tmp_path / CHECKPOINT)["progress"]["epochs_done"] == 0
    assert program.main(["--out", str(tmp_path), "--resume"]) == 0
    assert weights(tmp_path / CHECKPOINT) == weights(finished / CHECKPOINT)


class Killed(BaseException):
    """Raised to end the program at a certain point."""


@pytest.mark.parametrize("at", [CHECKPOINT, BEST, "checkpoint-0002.safetensors", "epochs.csv"])
def test_a_run_killed_between_two_files_of_an_epoch_is_completed_by_resuming(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with monkeypatch.context() as patch:
        original, history = os.replace, tmp_path / "epochs.csv"

        def replace(source: Any, target: Any) -> None:
            if Path(target).name == at and history.exists():  # kills the run in the second epoch
                raise Killed
            original(source, target)

        patch.setattr(os, "replace", replace)
        with pytest.raises(Killed):
            run(tmp_path, "--keep", "1")
    (tmp_path / f".{CHECKPOINT}.123-456.partial").write_bytes(b"by a writer that was killed")
    assert program.main(["--out", str(tmp_path), "--resume", "--keep", "1"]) == 0
    names = [{p.name for p in each.iterdir() if p.is_file()} for each in (tmp_path, finished)]
    assert names[0] == names[1]
    for name in (BEST, "checkpoint-0002.safetensors"):
        assert weights(tmp_path / name) == weights(finished / name)
    kept, whole = ([*csv.DictReader((p / "epochs.csv").open())] for p in (tmp_path, finished))
    assert [r["test_loss"] for r in kept] == [r["test_loss"] for r in whole]


@pytest.mark.parametrize("option", ["--resume", "--force"])
def test_partial_files_of_killed_writers_are_removed(tmp_path: Path, option: str) -> None:
    save = "import os, needle; os.fsync = lambda file: os.kill(os.getpid(), 9);"
    for name in (CHECKPOINT, MODEL):
        program = f"{save} needle.io.save({str(tmp_path / name)!r}, {{}})"
        subprocess.run([sys.executable, "-c", program])
    for name in (f".{BEST}.partial", ".run.json.partial", ".epochs.csv.partial", "own.partial"):
        (tmp_path / name).write_bytes(b"")
    assert len([*tmp_path.glob("*partial*")]) == 6
    RunFolder(tmp_path, resume=option == "--resume", force=option == "--force").close()
    assert [path.name for path in tmp_path.glob("*partial*")] == ["own.partial"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
def test_a_killed_worker_changes_nothing(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    original = run_module.Run._step

    def step(self: Any, *batch: Any) -> float:
        if self.progress.batches in (2, 5) and self.progress.epochs_done == 0:
            killed.append(max(proc.remaining() - set(killed)))
            os.kill(killed[-1], signal.SIGKILL)
        return original(self, *batch)

    monkeypatch.setattr(run_module.Run, "_step", step)
    assert run(tmp_path, "--workers", "2") == 0
    assert len(killed) == 2
    assert weights(tmp_path / CHECKPOINT) == weights(finished / CHECKPOINT)


def test_a_run_killed_before_its_first_checkpoint_is_begun_again(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Test a run without a checkpoint: it has run.json and perhaps a profile."""

    class Killed(BaseException):
        pass

    def killed(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(program, "_train", killed)
        with pytest.raises(Killed):
            run(tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()
    assert run(tmp_path) == 1
    assert "continue it with --resume" in capsys.readouterr().err
    assert program.main(["--out", str(tmp_path), "--resume", "--lr", "7"]) == 1
    assert "was started with --lr" in capsys.readouterr().err
    assert program.main(["--out", str(tmp_path), "--resume"]) == 0
    assert "starts again" in capsys.readouterr().out
    assert weights(tmp_path / CHECKPOINT) == weights(finished / CHECKPOINT)
    (tmp_path / "none").mkdir()
    assert program.main(["--out", str(tmp_path / "none"), "--resume"]) == 1
    assert "there is no run to continue" in capsys.readouterr().err


def test_the_commit_is_that_of_the_source() -> None:
    commit = folder_module._commit()
    assert commit is None or len(commit.rstrip("+")) == 40
