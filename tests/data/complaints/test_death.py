"""Kill workers and their parents, and send Ctrl-C: complaints 4, 9 and 19."""

import os
import random
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from proc import alive, becomes, children, descriptors, remaining, supervisors

from needle import data
from needle.data.workers import deaths
from needle.errors import WorkerError

from .programs import linux, start, threads
from .sets import Numbers, Pausing, Workers

pytestmark = linux


FATAL = ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")


@contextmanager
def storm(seconds: float, interval: float, rng: random.Random) -> Iterator[threading.Event]:
    """Kill workers and their supervisor again and again until the event is set."""
    over = threading.Event()
    end = time.monotonic() + seconds

    def kill() -> None:
        while time.monotonic() < end and not over.wait(rng.expovariate(1 / interval)):
            found = sorted(children())
            if found:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(found), getattr(signal, rng.choice(FATAL)))

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join()


def epochs_in_a_storm(seconds: float, interval: float, seed: int) -> None:
    """Check that each epoch has every sample once, however long the kills delay it."""
    before = remaining()
    with (
        data.DataLoader(Pausing(64, 2e-3), 8, True, seed=seed, num_workers=3) as loader,
        warnings.catch_warnings(),
        storm(seconds, interval, random.Random(seed)) as over,
    ):
        warnings.simplefilter("ignore", RuntimeWarning)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = [i for _, labels in loader for i in labels.numpy().tolist()]
            assert sorted(seen) == list(range(64))
        over.set()
    assert becomes(lambda: remaining() <= before)


def test_4_processes_killed_faster_than_they_start_cost_time_and_not_the_epoch():
    """For three seconds, a random process of the loader gets one of seven signals every 50 ms."""
    before = descriptors()
    epochs_in_a_storm(3.0, 0.05, 1)
    assert descriptors() <= before


@pytest.mark.soak
@pytest.mark.parametrize("interval", [0.01, 0.1, 0.5, 1.0])
def test_4_a_minute_of_kills(interval: float):
    """No sample is lost under a minute of random signals at each of four rates."""
    epochs_in_a_storm(60.0, interval, 2)


def test_4_kills_without_progress_are_reported(monkeypatch: pytest.MonkeyPatch):
    """Several deaths cause a warning; a long time without any progress is an error."""
    monkeypatch.setattr(deaths, "_PATIENCE", 5.0)  # enough for nine deaths on a busy machine

    class ArrivesLate(Numbers):
        def __setstate__(self, state: dict[str, int]) -> None:
            time.sleep(60)

    with (
        data.DataLoader(ArrivesLate(8), 4, num_workers=1) as loader,
        storm(60.0, 0.02, random.Random(3)),
        pytest.warns(RuntimeWarning, match=r"worker processes died 9 times in .*restarting them"),
        pytest.raises(WorkerError, match=r"died \d+ times in .* before they finished anything"),
    ):
        next(iter(loader))


BUSY = """
import sys, time
from proc import children
from complaints.sets import Pausing, Slow
from needle import data
from needle.data.workers import launch
if __name__ == "__main__":
    engine, waiting = sys.argv[1], sys.argv[2] == "waiting"
    dataset = Slow(1000, 40, 60.0) if waiting else Pausing(10**6, 1e-4)
    launch.START_METHOD = engine
    name = "threads" if engine == "threads" else "processes"
    loader = data.DataLoader(dataset, 4, num_workers=2, engine=name)
    for number, batch in enumerate(loader):
        if number == 5:
            print(*children(), flush=True)
"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NEEDLE_NUM_THREADS": "1"}
STATES = [
    ("forkserver", "waiting"),
    ("forkserver", "busy"),
    ("spawn", "waiting"),
    ("threads", "waiting"),
    ("threads", "busy"),
]


def busy(folder: Path, engine: str, state: str) -> tuple[subprocess.Popen[str], list[int]]:
    program = start(folder, BUSY, engine, state, variables=ONE_THREAD)
    assert program.stdout is not None
    pids = [int(word) for word in program.stdout.readline().split()]
    if len(pids) != {"threads": 0}.get(engine, 3):
        program.kill()
        raise AssertionError(program.communicate())
    return program, pids


def interrupt(folder: Path, engine: str, state: str, delay: float) -> float:
    """Send Ctrl-C to the process group, as a terminal does; return the seconds until it ends."""
    program, pids = busy(folder, engine, state)
    time.sleep(delay)
    began = time.monotonic()
    os.killpg(program.pid, signal.SIGINT)
    try:
        _, err = program.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        raise
    taken = time.monotonic() - began
    assert err.count("Traceback (most") == 1, err
    assert err.rstrip().endswith("KeyboardInterrupt"), err
    assert not any(alive(pid) for pid in pids)
    return taken


@pytest.mark.parametrize(("engine", "state"), STATES)
def test_9_control_c_is_one_traceback_and_no_process_is_left(engine, state, tmp_path: Path):
    """SIGINT to the whole group ends it cleanly, whether the program waits or works."""
    interrupt(tmp_path, engine, state, 0.3 if state == "waiting" else 0.05)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["forkserver", "spawn", "threads"])
def test_9_control_c_at_forty_moments_takes_less_than_a_second(engine, tmp_path: Path):
    """SIGINT at random moments ends the whole group cleanly within a second."""
    for moment in range(40):
        assert interrupt(tmp_path, engine, "busy", moment * 0.005) < 1


@pytest.mark.parametrize(("engine", "state"), [s for s in STATES if s[0] != "threads"])
def test_9_a_parent_killed_leaves_no_orphan(engine, state, tmp_path: Path):
    """After kill -9 of the program its workers exit by themselves and print nothing."""
    program, pids = busy(tmp_path, engine, state)
    program.kill()
    _, err = program.communicate(timeout=30)
    assert err == ""
    assert becomes(lambda: not any(alive(pid) for pid in pids))


def test_19_workers_have_one_thread_each():
    """With BLAS and kernels in use, 2 workers have at most 4 threads in total."""
    with data.DataLoader(Workers(400), 10, num_workers=2) as loader:
        mine, most = set(threading.enumerate()), 0
        for pids, counts in loader:
            started = {*loader._engine.running().process_ids(), *supervisors()}
            assert set(pids.numpy().tolist()) <= started
            assert (counts.numpy() == 1).all()
            new = set(threading.enumerate()) - mine
            most = max(most, sum(map(threads, started)) + len(new))
    assert most <= 2 + 2
