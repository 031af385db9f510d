"""Test that apps/train.py does not wait for the device within a step."""

import csv
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps import train as program
from apps.training import run as run_module
from apps.training import sources
from needle import nn
from tests.apps import few_digits
from tests.cuda_on_cpu import emulated

pytestmark = [
    *emulated.NEEDED,
    # Fail on the warning that no graph can be replayed because addresses differ between steps.
    pytest.mark.filterwarnings("error::needle.capture.CaptureWarning"),
]
for package in program.PACKAGES:
    pytest.importorskip(package)
SMALL = ["--data", "few", "--epochs", "2", "--batch-size", "8", "--device", emulated.NAME]


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide five batches of digits, and skip the report."""
    monkeypatch.setitem(sources.SOURCES, "few", few_digits.source(40, 8))
    monkeypatch.setattr(program, "write_report", lambda *arguments: None)


def results(folder: Path) -> list[Any]:
    """Return the weights and the run's counters, without times."""
    with open(folder / "epochs.csv", newline="") as file:
        rows = [{k: v for k, v in row.items() if "second" not in k} for row in csv.DictReader(file)]
    loaded = needle.io.load(folder / "model.safetensors")
    return [rows, {name: array.tobytes() for name, array in loaded.items()}]


def test_results_are_read_together_and_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, step, read = [], run_module.Run._step, run_module.Run._read
    for ahead, reads in ((1, [1] * 5), (3, [3, 2]), (16, [5])):
        seen: list[int] = []

        def counted(run: Any, *batch: Any, ahead: int = ahead) -> None:
            before = emulated.module.waits()
            step(run, *batch)
            assert emulated.module.waits() == before or ahead == 1

        def noted(run: Any, seen: list[int] = seen) -> None:
            seen.append(len(run._unread))
            read(run)

        with monkeypatch.context() as patch:
            unchecked = partial(needle.capture, check=False)  # a check would read values
            patch.setattr(needle, "capture", unchecked)
            patch.setattr(run_module, "STEPS_AHEAD", ahead)
            patch.setattr(run_module.Run, "_step", counted)
            patch.setattr(run_module.Run, "_read", noted)
            if ahead == 1:  # as on the CPU, which reads each loss at once
                patch.setattr(run_module, "LossOnDevice", nn.CrossEntropyLoss)
            assert program.main([*SMALL, "--out", str(tmp_path / str(ahead))]) == 0
        assert seen == reads * 2
        found.append(results(tmp_path / str(ahead)))
    assert found[0] == found[1] == found[2]


def test_a_run_that_stops_between_two_reads_is_resumed_to_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program.main([*SMALL, "--out", str(tmp_path / "whole")]) == 0
    step = run_module.Run._step

    def stopped(run: Any, *batch: Any) -> None:
        if (run.progress.epochs_done, run.progress.batches) == (1, 2):
            os.kill(os.getpid(), signal.SIGINT)
        step(run, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(run_module.Run, "_step", stopped)
        assert program.main([*SMALL, "--out", str(tmp_path / "parts")]) == 130
    np.random.seed(99)
    assert program.main(["--out", str(tmp_path / "parts"), "--resume"]) == 0
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_a_loss_that_is_not_finite_is_named_with_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = run_module.Run._step

    def spoilt(run: Any, images: Any, labels: Any) -> None:
        step(run, images * (float("nan") if run.progress.batches == 2 else 1.0), labels)

    monkeypatch.setattr(run_module.Run, "_step", spoilt)
    assert program.main([*SMALL, "--out", str(tmp_path / "run")]) == 1
    assert "got nan in epoch 1, batch 3; lower --lr" in capsys.readouterr().err
