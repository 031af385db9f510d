"""Disturb training runs with signals at random moments and with disks that fill up (soak).

Runs are stopped and resumed repeatedly. Each finished run is bitwise equal to an undisturbed one,
and no process outlives the one that was stopped.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import needle
from apps import train as program
from apps.training.folder import CHECKPOINT, MODEL
from needle.backend_selection import BACKEND

for package in program.PACKAGES:
    pytest.importorskip(package)

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["--batch-size", "128", "--epochs", "3"]
NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
MARK = "NEEDLE_TEST_OF_SIGNALS"
SIGNALS = 60
Whole = tuple[dict[str, bytes], float]


def command(out: Path, workers: int = 0) -> list[str]:
    """Return the command that starts the program, which resumes the run if there is one."""
    going_on = ["--resume"] if (out / CHECKPOINT).exists() else [*OPTIONS, "--force"]
    program = [sys.executable, str(ROOT / "apps" / "train.py")]
    return [*program, "--out", str(out), "--workers", str(workers), *going_on]


def started(arguments: list[str], out: Path) -> subprocess.Popen[str]:
    """Start the program with ``out`` in the command lines of all its processes."""
    return subprocess.Popen(
        arguments,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), MARK: str(out)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def weights(run: Path) -> dict[str, bytes]:
    """Return the exact bytes of the run's results."""
    return {name: array.tobytes() for name, array in needle.io.load(run / MODEL).items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return the weights of an undisturbed run, and its duration in seconds."""
    out, began = tmp_path_factory.mktemp("whole") / "run", time.monotonic()
    process = started(command(out), out)
    assert process.communicate(timeout=300)[1] == "" and process.returncode == 0
    return weights(out), time.monotonic() - began


def left_over(out: Path) -> list[int]:
    """Return the processes of runs in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"{MARK}={out}\0".encode() in environment:
            found.append(int(entry.name))
    return found


def nothing_left(out: Path) -> bool:
    """Return True if all of these processes end within some seconds."""
    end = time.monotonic() + 10
    while left_over(out):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.soak
@pytest.mark.skipif(BACKEND != "nd", reason="the program is the same in both modes")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
def test_signals_at_random_moments(tmp_path: Path, whole: Whole) -> None:
    draws, parts = random.Random(0), tmp_path / "parts"
    sent = finished = 0
    while sent < SIGNALS or not finished:
        process = started(command(parts, draws.choice((0, 2))), parts)
        number = draws.choice(NUMBERS)
        try:
            process.wait(draws.uniform(0, whole[1]) if sent < SIGNALS else 300)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            sent += 1
        errors = process.communicate(timeout=120)[1]
        assert "Traceback" not in errors and nothing_left(parts)
        if (parts / CHECKPOINT).exists():
            needle.io.checkpoint_extra(parts / CHECKPOINT)
        if process.returncode == 0:
            assert weights(parts) == whole[0]
            shutil.rmtree(parts)
            finished += 1
        else:
            assert number in (process.returncode - 128, -process.returncode), errors


@pytest.mark.soak
@pytest.mark.skipif(BACKEND != "nd", reason="the program is the same in both modes")
@pytest.mark.parametrize("kilobytes", [300, 800, 1100, 1600, 2000, 2300, 2500, 2700])
def test_a_disk_that_becomes_full(tmp_path: Path, whole: Whole, kilobytes: int) -> None:
    """Fill the disk: a checkpoint has 750 kB and needs twice that while it is replaced."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {small} || exit 77"
    copy = f"code=$?; cp -a {small} {kept}; exit $code"
    inside = f'{mount}; "$@"; {copy}'
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
    process = started([*unshare, *command(small / "run")], small)
    errors = process.communicate(timeout=300)[1]
    if process.returncode == 77 or "unshare" in errors:
        pytest.skip(f"no mount for this process: {errors}")
    assert "Traceback" not in errors
    if process.returncode:
        assert process.returncode == 1 and "No space left on device" in errors
    resumed = started(command(kept / "run"), kept)
    errors = resumed.communicate(timeout=300)[1]
    assert resumed.returncode == 0 and errors == ""
    assert weights(kept / "run") == whole[0]
