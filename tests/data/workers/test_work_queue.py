"""Test that the work queue survives the death of its lock's holder, and reports one that stops."""

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import pytest

from needle.data.workers import work_queue
from needle.data.workers.work_queue import ANY_WORKER, Entry, WorkQueue
from needle.errors import WorkerError

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # os.fork warns


def entry(number: int, worker: int = ANY_WORKER) -> Entry:
    return Entry(*[0] * len(Entry._fields))._replace(number=number, worker=worker, last=number * 2)


def forked(target: Any, *arguments: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            target(*arguments)
        finally:
            os._exit(1)
    return pid


def fall_asleep_and_wake(queue: WorkQueue, workers: int) -> None:
    while True:
        for worker in range(workers):
            queue.sleep(worker, True)
        for worker in range(workers):
            queue.sleep(worker, False)


def test_workers_fall_asleep_while_the_parent_looks_for_sleeping_ones() -> None:
    queue = WorkQueue.create(4, 16)
    pid = forked(fall_asleep_and_wake, queue, 16)
    try:
        for _ in range(20_000):
            queue.awakened(16)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    queue.close()


def hold_the_lock(queue: WorkQueue, pipe: Any) -> None:
    with queue._locked():
        pipe.send("held")
        time.sleep(60)


def test_the_lock_of_a_process_that_dies_is_free() -> None:
    queue = WorkQueue.create(4, 1)
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = forked(hold_the_lock, queue, writer)
    assert reader.recv() == "held"
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    queue.put(0, entry(1))  # blocks until the lock's holder is killed
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert queue.claim(0) == (0, entry(1))
    queue.close()


def test_a_holder_that_stops_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "_LOCK_SECONDS", 0.1)
    queue = WorkQueue.create(4, 1)
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = forked(hold_the_lock, queue, writer)
    try:
        assert reader.recv() == "held"
        with pytest.raises(WorkerError, match="held the lock of the work queue"):
            queue.put(0, entry(1))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    queue.close()
