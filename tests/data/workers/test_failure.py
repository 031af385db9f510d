"""Test failures of the process engine: dying workers, errors, Ctrl-C, and a parent that is gone."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import engine_datasets as datasets
import numpy as np
import pytest
from proc import alive, becomes, supervisors
from process_checks import ask, numbers_are, one, running, stream

from needle.data.batching.pipeline import Pipeline
from needle.data.samples.ticket import Ticket
from needle.data.workers.processes import ProcessEngine
from needle.errors import WorkerError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.mark.parametrize(
    ("how", "times", "text"),
    [
        (int(signal.SIGKILL), 2, ""),
        (int(signal.SIGKILL), 3, "killed by SIGKILL"),
        (-3, 3, "with exit code 3"),
    ],
)
def test_a_worker_that_dies_is_replaced_and_a_third_death_at_a_sample_is_an_error(
    how: int, times: int, text: str, tmp_path: Path
) -> None:
    with running(datasets.Deadly(100, 13, times, str(tmp_path), how), 2) as engine:
        wanted = [np.arange(i * 10, i * 10 + 10) for i in range(10)]
        done = stream(engine, wanted)
        if text:
            error = done.pop(1).error
            assert isinstance(error, WorkerError)
            assert "3 times at sample 13" in str(error) and text in str(error)
        for serial, each in done.items():
            numbers_are(each, wanted[serial])
        assert len(engine.process_ids()) == 2
    assert len(os.listdir(tmp_path)) == times


class Forking(datasets.Deadly):
    """A worker that dies at sample ``victim`` leaves a child behind, which holds its socket."""

    def __getitem__(self, index: int) -> Any:
        if index == self.victim and not Path(self.folder, "0").exists():
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            Path(self.folder, "child").write_text(str(child))
        return super().__getitem__(index)


def test_a_death_is_noticed_although_a_child_of_the_worker_has_its_socket(tmp_path: Path) -> None:
    with running(Forking(10, 3, 1, str(tmp_path)), 1) as engine:
        numbers_are(one(engine, 0, range(10)), range(10))
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_batched_fetch_that_kills_names_its_samples(tmp_path: Path) -> None:
    with running(datasets.DeadlyFetch(100, 13, 99, str(tmp_path)), 1) as engine:
        error = one(engine, 0, [2, 13, 5]).error
        assert "3 times at samples [2, 13, 5]" in str(error)
        numbers_are(one(engine, 1, [1, 2]), [1, 2])


def test_a_stream_goes_on_where_its_worker_died() -> None:
    with running(datasets.Countdown(), 2) as engine:
        seen = []
        for serial, start in enumerate(range(0, 25, 5)):
            engine.submit(Ticket(0, 3, 0, serial=serial, shard=1, start=start, size=5))
            seen += engine.collect(30).batch[0].tolist()
            for pid in engine.process_ids():
                os.kill(pid, signal.SIGKILL)
        assert seen == list(range(1000, 1025))


class ArrivesLate(datasets.Numbers):
    """An object that is slow to unpickle."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(0.5)
        self.__dict__.update(state)


def test_the_supervisor_killed_while_workers_start_is_started_again() -> None:
    """Workers that die with their supervisor restart: their data set need not be the cause."""
    with running(ArrivesLate(), 3) as engine:
        ask(engine, 0, range(9))
        workers = set(engine.process_ids())
        for supervisor in supervisors():
            os.kill(supervisor, signal.SIGKILL)
        assert becomes(lambda: not any(alive(pid) for pid in workers))
        numbers_are(engine.collect(30), range(9))


class DiesOnArrival(datasets.Numbers):
    """An object whose unpickling ends the process, or raises an exception."""

    def __init__(self, code: int | None) -> None:
        super().__init__()
        self.code = code

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["code"] is not None:
            os._exit(state["code"])
        raise ImportError("no module of that name here")


def test_workers_that_die_while_starting_are_an_error() -> None:
    with running(DiesOnArrival(7), 2) as engine:
        ask(engine, 0, [1])
        with pytest.raises(WorkerError, match=r"die while they start \(ended with exit code 7\)"):
            engine.collect(30)


def test_a_data_set_that_cannot_be_unpickled_is_an_error() -> None:
    with running(DiesOnArrival(None), 2) as engine:
        ask(engine, 0, [1])
        with pytest.raises(WorkerError, match="could not unpickle.*no module of that name here"):
            engine.collect(30)


def test_of_several_errors_in_a_batch_the_first_row_counts() -> None:
    class Bad(datasets.Numbers):
        def __getitem__(self, index: int) -> Any:
            if index < 20:
                time.sleep(0.2)
            raise ValueError(f"bad {index}")

    with running(Bad(), 2) as engine:
        for serial in range(3):
            assert str(one(engine, serial, [10, 11, 30, 31]).error) == "bad 10"


def test_an_odd_result_is_an_error_of_its_batch() -> None:
    def collate(samples: list[Any]) -> Any:
        return samples if samples[0][1] == 1 else (threading.Lock() for _ in samples)

    with running(datasets.Numbers(), 1, collate=collate) as engine:
        assert one(engine, 0, [2]).error is not None
        assert one(engine, 1, [1]).error is None


def test_close_ends_workers_that_are_busy() -> None:
    engine = ProcessEngine(Pipeline(datasets.Slow(10, 3, 60.0)), workers=2)
    one(engine, 0, [1])
    ask(engine, 1, [3])
    time.sleep(0.1)
    pids = engine.process_ids()
    start = time.monotonic()
    engine.close()
    assert time.monotonic() - start < 30  # a sample takes 60 s
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
