"""Run Communicator and DataParallel under mpiexec, with 1 to 4 processes."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from launch import needs_mpi, run

from tests.gpu import place as gpu

pytestmark = [needs_mpi, pytest.mark.slow]
RANKS = Path(__file__).with_name("ranks.py")


def trained(out: Path, processes: int, *arguments: object) -> dict[str, np.ndarray]:
    done = run(processes, RANKS, "train", out, *arguments)
    assert done.returncode == 0, done.stderr
    return dict(np.load(out))


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_methods_of_the_communicator(processes: int) -> None:
    done = run(processes, RANKS, "sums")
    assert done.returncode == 0, done.stderr


def test_the_same_bits_on_any_number_of_processes(tmp_path: Path) -> None:
    one = trained(tmp_path / "1.npz", 1, 8)
    for processes in (2, 4, 8):
        other = trained(tmp_path / f"{processes}.npz", processes, 8)
        for name, value in one.items():
            np.testing.assert_array_equal(other[name], value, err_msg=f"{name}, {processes}")


def test_slices_without_samples(tmp_path: Path) -> None:
    found = [trained(tmp_path / f"{n}.npz", n, 8, 1, 5) for n in (1, 2)]
    for name, value in found[0].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)


@pytest.mark.parametrize("processes", [2, 3])
def test_overlap_gives_the_sums_of_slices(tmp_path: Path, processes: int) -> None:
    """Buckets sent during backward and sums added in order afterwards agree up to rounding."""
    ordered = trained(tmp_path / "o.npz", 1 if processes == 2 else 3, processes, 0)
    for captured in (0, 1):
        found = trained(tmp_path / f"{captured}.npz", processes, 0, captured)
        for name, value in ordered.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_overlap_with_a_rank_without_samples(tmp_path: Path) -> None:
    ordered = trained(tmp_path / "o.npz", 3, 3, 1, 2)
    found = trained(tmp_path / "f.npz", 3, 0, 1, 2)
    for name, value in ordered.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_gradients_of_gpus_are_averaged(tmp_path: Path) -> None:
    assert gpu.first().device.enabled()  # skips the test where there is no GPU
    host = trained(tmp_path / "cpu.npz", 2, 0, 1, 8)
    found = trained(tmp_path / "gpu.npz", 2, 0, 1, 8, "gpu")
    for name, value in host.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_synchronised_batch_norm_gives_what_one_process_computes(tmp_path: Path) -> None:
    found = {}
    for processes, captured in ((1, 0), (2, 0), (3, 1)):
        out = tmp_path / f"{processes}.npz"
        done = run(processes, RANKS, "synchronised", out, captured)
        assert done.returncode == 0, done.stderr
        found[processes] = dict(np.load(out))
    for processes in (2, 3):
        for name, value in found[1].items():
            np.testing.assert_allclose(
                found[processes][name], value, rtol=1e-9, atol=1e-12, err_msg=f"{name}, {processes}"
            )


@pytest.mark.parametrize("processes", [2, 3])
def test_the_ranks_of_a_machine_read_each_sample_once(tmp_path: Path, processes: int) -> None:
    reads = tmp_path / "reads"
    done = run(processes, RANKS, "folds", READS=str(reads))
    assert done.returncode == 0, done.stderr
    (server,) = set(json.loads(done.stdout))
    assert sorted(map(int, reads.read_text().split())) == list(range(60))
    assert ends(server)


def test_a_shared_loader_ends_with_the_ranks(tmp_path: Path) -> None:
    done = run(3, RANKS, "folds", "dies", READS=str(tmp_path / "reads"))
    assert done.returncode != 0
    (server,) = set(json.loads(done.stdout.splitlines()[0]))
    assert ends(server)


def ends(process: int) -> bool:
    """Return True once the process has ended, within ten seconds."""
    for _ in range(200):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("differ", ("bias", "[1]")),
        ("disagree", ("seed", "0 on ranks 0, 2", "3 on rank 1")),
        ("other_model", ("the model", "on rank 2")),
        ("fail", ("rank 1 of 3", "the reason")),
    ],
)
def test_a_failure_ends_all_ranks_and_says_why(case: str, words: tuple[str, ...]) -> None:
    done = run(3, RANKS, case)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr, done.stderr
    assert done.stderr.count("Traceback") == 1, done.stderr


def test_a_dead_rank_ends_all_ranks() -> None:
    done = run(3, RANKS, "die", seconds=60)
    assert done.returncode != 0


def test_a_rank_that_hangs_is_named_once() -> None:
    done = run(3, RANKS, "hang", NEEDLE_COLLECTIVE_TIMEOUT="4", seconds=60)
    assert done.returncode != 0
    assert done.stderr.count("rank 1 (process") == 1, done.stderr
    assert "all_reduce" in done.stderr


def test_a_rank_stopped_before_mpi_has_started_ends_all_ranks() -> None:
    stop = """
import os, signal
from needle import config, distributed
if next(os.environ[name] for name in config.RANKS if name in os.environ) == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
distributed.communicator()
"""
    done = run(3, "-c", stop, NEEDLE_COLLECTIVE_TIMEOUT="1", seconds=60)
    assert done.returncode != 0
    assert "NEEDLE_COLLECTIVE_TIMEOUT" in done.stderr


def test_a_rank_that_waits_leaves_the_processor_to_others() -> None:
    done = run(2, RANKS, "idle")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) < 0.5
