"""The engine of threads: parallel slices, in-place results, cancelling, and no leaked thread."""

import gc
import threading
import weakref

import numpy as np
import pytest

from needle.data.batching.pipeline import Pipeline
from needle.data.samples.ticket import Ticket
from needle.data.workers.threads import ThreadsEngine
from needle.errors import WorkerError


def request(serial, *indices):
    return Ticket(0, 0, 0, np.array(indices, np.int64), serial=serial)


def test_threads_do_not_keep_an_engine_alive_and_close_waits_for_them():
    before = set(threading.enumerate())
    engine = ThreadsEngine(Pipeline(list(range(100))), workers=3, prefetch=1)
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
