"""Two concurrent trainings through one server learn what each learns alone, with one read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forks import ROOT
from server_checks import folder, server_process

from needle.sharing.client.joining import ask_status

PROGRAM = Path(__file__).parent / "training_program.py"
DATA = Path(os.environ.get("NEEDLE_TEST_DATA", "data"))
Rates = tuple[str, str]


def start(where: str, rate: str, epochs: int, server: str) -> subprocess.Popen[str]:
    """Start a training in a process of its own."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)])}
    command = [sys.executable, str(PROGRAM), where, rate, str(epochs), server]
    environment = {**os.environ, **paths, "NEEDLE_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def accuracies(where: str, rates: Rates, epochs: int, server: str) -> list[float]:
    """Return the accuracies of concurrent trainings with these learning rates."""
    programs = [start(where, rate, epochs, server) for rate in rates]
    found = []
    for program in programs:
        told, _ = program.communicate()
        assert program.returncode == 0
        found.append(float(told))
    return found


def compare(
    where: str, dataset: str, rates: Rates, samples: int, epochs: int, least: float, off: float
) -> None:
    alone = accuracies(where, rates, epochs, "alone")
    with folder() as place:
        path = place / "s.sock"
        with server_process(path, dataset) as server:
            shared = accuracies(where, rates, epochs, str(path))
            status = ask_status(path)
            assert status is not None
            assert status["totals"] == {"reads": samples, "delivered": 2 * epochs * samples}
            assert server.is_alive()
    assert min(alone + shared) > least, (alone, shared)
    for one, other in zip(alone, shared):
        assert abs(one - other) < off, (alone, shared)


@pytest.mark.slow
def test_two_trainings_on_digits_reach_what_they_reach_alone() -> None:
    compare("digits", "digits?layout=HWC", ("0.003", "0.006"), 1497, 4, 0.95, 0.03)


@pytest.mark.soak
@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="needs mnist/ in NEEDLE_TEST_DATA")
def test_two_trainings_on_mnist_reach_what_they_reach_alone() -> None:
    name = f"mnist:{DATA}?layout=HWC&dtype=uint8"
    compare(str(DATA), name, ("0.0015", "0.003"), 60_000, 2, 0.98, 0.005)
