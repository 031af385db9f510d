"""The engine of threads: parallel slices, in-place results, cancelling, and no leaked thread."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from needle.data.batching.pipeline import Pipeline
from needle.data.samples.ticket import Ticket
from needle.data.workers.threads import ThreadsEngine
from needle.errors import WorkerError


class Watched:
    """Sample i is an array of i and waits for ``gates``; ``threads`` are those that have read."""

    def __init__(self, gates=()):
        self.gates = {i: threading.Event() for i in gates}
        self.reads, self.threads = [], set()

    def __len__(self):
        return 100

    def __getitem__(self, index):
        self.reads.append(index)
        self.threads.add(threading.get_ident())
        if index in self.gates:
            assert self.gates[index].wait(20)
        if index == 99:
            raise ZeroDivisionError("sample 99")
        return np.full(3, index, np.float32), str(index)


@pytest.fixture
def engine_of():
    engines = []

    def make(dataset, workers=3, prefetch=2, collate=None):
        engines.append(
            ThreadsEngine(Pipeline(dataset, None, collate), workers=workers, prefetch=prefetch)
        )
        return engines[-1]

    yield make
    for engine in engines:
        for gate in getattr(engine.pipeline.dataset, "gates", {}).values():
            gate.set()
        engine.close()


def request(serial, *indices):
    return Ticket(0, 0, 0, np.array(indices, np.int64), serial=serial)


def test_slices_of_one_batch_are_made_side_by_side(engine_of):
    dataset = Watched(gates=[0, 2, 4])
    engine = engine_of(dataset)
    engine.submit(request(7, *range(6)))
    end = time.monotonic() + 10
    while len(dataset.threads) < 3 and time.monotonic() < end:
        time.sleep(0.001)
    assert len(dataset.threads) == 3
    for gate in dataset.gates.values():
        gate.set()
    answer = engine.collect(10)
    assert answer.ticket.serial == 7 and answer.samples == 6
    np.testing.assert_array_equal(answer.batch[0], np.repeat(np.arange(6), 3).reshape(6, 3))
    assert answer.batch[1] == list("012345")


def test_threads_do_not_keep_an_engine_alive_and_close_waits_for_them():
    before = set(threading.enumerate())
    engine = ThreadsEngine(Pipeline(Watched()), workers=3, prefetch=1)
    assert set(threading.enumerate()) <= before  # threads start with the first request
    engine.submit(request(0, 1, 2, 3))
    engine.collect(10)
    assert len(set(threading.enumerate()) - before) == 3
    closing = weakref.finalize(engine, lambda: None)
    engine.close()
    engine.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(WorkerError, match="closed"):
        engine.submit(request(1, 4))
    with pytest.raises(WorkerError, match="closed"):
        engine.collect(10)
    del engine
    gc.collect()
    assert not closing.alive
