"""Test the process engine: correct batches, fast starts, bounded resources and no leaks."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import engine_datasets as datasets
import numpy as np
import pytest
from complaints.sets import Counted, reads
from proc import becomes, children, remaining
from process_checks import ask, numbers_are, one, running

from needle.data.batching.pipeline import Pipeline
from needle.data.samples.ticket import Ticket
from needle.data.workers.processes import ProcessEngine
from needle.errors import LoaderTimeout, WorkerError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def test_large_leaves_over_the_socket_do_not_stop_the_others() -> None:
    with running(datasets.Numbers(50, (300, 1000)), 2) as engine:
        ask(engine, 0, range(20))
        ask(engine, 1, range(20, 40))
        time.sleep(0.3)  # both workers wait until their 12 MB are read
        for _ in range(2):
            done = engine.collect(30)
            numbers_are(done, np.arange(20) + 20 * done.ticket.serial)


@pytest.mark.soak
def test_closing_does_not_wait_for_a_process_that_has_not_started_a_worker() -> None:
    before = children()
    engine = ProcessEngine(Pipeline(datasets.Numbers()), workers=2)
    stopped = children() - before
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)  # simulates a slow import
    start = time.monotonic()
    engine.close()
    assert time.monotonic() - start < 0.9  # the timeout is one second
    assert remaining() <= before
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)


def test_arrays_of_the_data_set_are_shared() -> None:
    dataset = datasets.Held()
    with running(dataset, 2) as engine:
        rows = one(engine, 0, range(8)).batch
    expected = [1, 1, *dataset.turned.strides, dataset.plain[-1], 1]
    np.testing.assert_array_equal(rows, [expected] * 8)


def test_timeout_names_the_sample(tmp_path: Path) -> None:
    dataset = Gated(10, 3, tmp_path)
    with running(dataset, 1) as engine:
        one(engine, 0, [0])
        ask(engine, 1, range(10))
        assert becomes(lambda: reads(dataset)[-1:] == [3])
        with pytest.raises(LoaderTimeout, match=r"timeout=0.3 s.*worker 0 .* is at sample 3"):
            engine.collect(0.3)


class Gated(Counted):
    """A data set that counts its reads; the read of ``gate`` lasts until the file "open" exists."""

    def __init__(self, length: int, gate: int, folder: Path) -> None:
        super().__init__(length, folder / "reads")
        self.gate, self.open = gate, folder / "open"

    def __getitem__(self, index: int) -> Any:
        found = super().__getitem__(index)
        while index == self.gate and not self.open.exists():
            time.sleep(0.005)
        return found


def test_cancel_stops_a_slice_at_its_next_sample(tmp_path: Path) -> None:
    dataset = Gated(200, 3, tmp_path)
    with running(dataset, 1) as engine:
        one(engine, 0, [0])
        ask(engine, 1, range(200))
        assert becomes(lambda: reads(dataset)[-1:] == [3])
        engine.cancel()
        dataset.open.touch()
        assert one(engine, 2, [7]).ticket.serial == 2
    assert reads(dataset) == [0, 0, 1, 2, 3, 7]


def test_streams_stay_with_their_worker() -> None:
    with running(datasets.Countdown(), 2) as engine:
        readers: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
        serial = 0
        for start in range(0, 30, 10):
            for shard in readers:
                engine.submit(Ticket(0, 3, 0, serial=serial, shard=shard, start=start, size=10))
                serial += 1
                done = engine.collect(30)
                wanted = np.arange(start, min(25, start + 10)) + 1000 * shard
                assert done.error is None and done.samples == len(wanted)
                np.testing.assert_array_equal(done.batch[0], wanted)
                readers[shard] |= set(done.batch[1].tolist())
        assert all(len(pids) == 1 for pids in readers.values())
        assert readers[0] == readers[2] != readers[1]


def test_a_forked_copy_of_the_parent_leaves_the_workers_alone() -> None:
    with running(datasets.Numbers(), 2) as engine:
        one(engine, 0, [1])
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with pytest.raises(WorkerError, match="belong to the process that forked"):
                    ask(engine, 1, [1])
                engine.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        numbers_are(one(engine, 2, [5, 6]), [5, 6])


def test_closed_engines_say_so() -> None:
    before = remaining()
    with running(datasets.Numbers()) as engine:
        pass
    with pytest.raises(WorkerError, match="closed"):
        ask(engine, 0, [1])
    assert becomes(lambda: remaining() <= before)
