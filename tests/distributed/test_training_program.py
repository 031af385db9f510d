"""Run apps/train.py under mpiexec: equal weights, exact evaluation, resuming, errors, Ctrl-C."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch import ROOT, command, environment, needs_mpi, run

import needle
from needle import config

pytest.importorskip("matplotlib")

pytestmark = [needs_mpi, pytest.mark.slow]
PROGRAM = ROOT / "apps" / "train.py"
SMALL = ("--data", "digits", "--limit", "203", "--batch-size", "48", "--no-report")


def trained(
    out: Path, processes: int, *options: object, ok: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    done = run(processes, PROGRAM, *SMALL, "--out", out, *options, **variables)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done


def arrays(folder: Path, name: str = "checkpoint.safetensors") -> dict[str, np.ndarray]:
    return dict(needle.io.load(folder / name))


def same_bits(one: Path, other: Path) -> None:
    for name, array in arrays(one).items():
        np.testing.assert_array_equal(arrays(other)[name], array, err_msg=name)
    assert results(one) == results(other)


def results(folder: Path) -> list[list[str]]:
    """Return the rows of epochs.csv without the times."""
    with open(folder / "epochs.csv", newline="", encoding="utf-8") as file:
        return [
            [value for name, value in row.items() if "seconds" not in name and "per_" not in name]
            for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize("model", ["lenet5", "resnet20"])
def test_virtual_replicas_give_the_same_bits(tmp_path: Path, model: str) -> None:
    """Weights, optimiser, statistics, losses and accuracies are equal, even with a short last
    batch.
    """
    options = ("--model", model, "--epochs", "2", "--virtual-replicas", "4", "--ema", "0.5")
    for processes in (1, 2, 4):
        trained(tmp_path / str(processes), processes, *options)
    same_bits(tmp_path / "1", tmp_path / "2")
    same_bits(tmp_path / "1", tmp_path / "4")


def test_a_run_continues_on_fewer_processes_to_the_same_bits(tmp_path: Path) -> None:
    options = ("--virtual-replicas", "4", "--epochs")
    trained(tmp_path / "whole", 1, *options, "3", "--schedule", "constant")
    trained(tmp_path / "parts", 4, *options, "1", "--schedule", "constant")
    again = ("--out", tmp_path / "parts", "--resume", "--epochs", "3", "--no-report")
    done = run(2, PROGRAM, *again)
    assert done.returncode == 0, done.stderr
    same_bits(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_train_like_one(tmp_path: Path, processes: int) -> None:
    """Runs in one and in several processes agree up to rounding; every sample counts once."""
    trained(tmp_path / "one", 1, "--epochs", "2", "--weight-decay", "0")
    done = trained(tmp_path / "all", processes, "--epochs", "2", "--workers", "1")
    assert done.stdout.count("epoch 2/2") == 1
    assert f"{processes} processes" in done.stdout
    for one, other in zip(results(tmp_path / "one"), results(tmp_path / "all")):
        np.testing.assert_allclose(np.float64(one), np.float64(other), atol=0.03)
    found = arrays(tmp_path / "all")
    for name, value in arrays(tmp_path / "one").items():
        if name.startswith("model."):
            np.testing.assert_allclose(found[name], value, atol=0.02, err_msg=name)
    facts = json.loads((tmp_path / "all" / "run.json").read_text())
    assert facts["samples"] == {"training": 203, "test": 203}


def test_synchronised_batch_norm_trains_like_one_process(tmp_path: Path) -> None:
    options = ("--model", "resnet20", "--epochs", "1", "--weight-decay", "0")
    trained(tmp_path / "one", 1, *options)
    trained(tmp_path / "apart", 2, *options)
    trained(tmp_path / "together", 2, *options, "--sync-batch-norm")
    one, apart, together = (
        float(results(tmp_path / name)[0][2]) for name in ("one", "apart", "together")
    )  # training losses of the three runs
    assert abs(together / one - 1) < 1e-3 < abs(apart / one - 1)


def test_accumulated_parts(tmp_path: Path) -> None:
    trained(tmp_path / "a", 2, "--epochs", "1")
    trained(tmp_path / "b", 2, "--epochs", "1", "--accumulate", "3")
    for one, other in zip(results(tmp_path / "a"), results(tmp_path / "b")):
        np.testing.assert_allclose(np.float64(one), np.float64(other), atol=0.03)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--virtual-replicas", "6"), "--virtual-replicas: must be the number of processes (4)"),
        (("--batch-size", "42"), "--batch-size: must be divisible by the 4 slices"),
        (("--find-lr",), "--find-lr: needs one process, got 4"),
        (("--sync-batch-norm", "--virtual-replicas", "4"), "leave out --virtual-replicas"),
        (("--sync-batch-norm", "--batch-size", "40"), "each of the 4 processes, got 3"),
        (("--model", "lenet6"), "unknown model 'lenet6'"),
    ],
)
def test_an_error_is_printed_once(tmp_path: Path, options: Any, words: str) -> None:
    done = trained(tmp_path / "run", 4, *options, ok=False)
    assert done.stderr.count(words) == 1, done.stderr


def test_a_rank_with_another_seed_is_refused(tmp_path: Path) -> None:
    """Two ranks get different command lines, as from a faulty script."""
    line = [str(PROGRAM), *SMALL, "--out", str(tmp_path / "run"), "--epochs", "1"]
    first = command(1, *line, "--seed", 1)
    second = ["-n", "1", sys.executable, *line, "--seed", "2"]
    done = subprocess.run(
        [*first, ":", *second], env=environment(), cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "--seed must be the same on all ranks, got 1 on rank 0, 2 on rank 1" in done.stderr


def running(out: Path) -> subprocess.Popen[str]:
    """Start a long run of two processes, and return when its first epoch has ended."""
    program = subprocess.Popen(
        command(2, PROGRAM, *SMALL, "--out", out, "--epochs", "500"),
        env=environment(NEEDLE_COLLECTIVE_TIMEOUT="5"),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    while "epoch   1/500" not in program.stdout.readline():
        assert program.poll() is None
    return program


def process_of_rank(program: subprocess.Popen[str], rank: int) -> int:
    """Return the process of a rank, found among the descendants of mpiexec."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # the process has ended
            continue
    for process in parents:
        ancestor = process
        while ancestor in parents and ancestor != program.pid:
            ancestor = parents[ancestor]
        if ancestor == program.pid and ranked(process, rank):
            return process
    raise AssertionError(f"no process of rank {rank}")


def ranked(process: int, rank: int) -> bool:
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return any(f"{name}={rank}".encode() in variables for name in config.RANKS)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_stops_ends_all(tmp_path: Path, number: int) -> None:
    """If a rank dies or stops, a complete checkpoint remains, from which one process resumes."""
    out = tmp_path / "run"
    program = running(out)
    os.kill(process_of_rank(program, 1), number)
    _, errors = program.communicate(timeout=60)
    assert program.returncode != 0
    if number == signal.SIGSTOP:
        assert errors.count("rank 1 (process") == 1, errors
    saved = needle.io.checkpoint_extra(out / "checkpoint.safetensors")["progress"]
    epochs = str(saved["epochs_done"] + 1)
    again = ("--out", out, "--resume", "--no-report")
    assert run(1, PROGRAM, *again, "--epochs", epochs).returncode == 0


def test_ctrl_c_stops_and_saves_once(tmp_path: Path, interruptible: None) -> None:
    out = tmp_path / "run"
    program = running(out)
    program.send_signal(signal.SIGINT)
    rest, _ = program.communicate(timeout=60)
    assert rest.count("stopped; saved in") == 1
    saved = needle.io.checkpoint_extra(out / "checkpoint.safetensors")["progress"]
    assert saved["epochs_done"] >= 1
    epochs = str(saved["epochs_done"] + 1)
    again = ("--out", out, "--resume", "--no-report")
    assert "rate goes" in run(1, PROGRAM, *again, "--epochs", epochs).stdout
