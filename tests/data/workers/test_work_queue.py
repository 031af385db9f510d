"""The work queue: FIFO, each entry to one worker, even if the lock's holder dies."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from needle.data.samples.ticket import Ticket
from needle.data.workers import work_queue
from needle.data.workers.work_queue import ANY_WORKER, Entry, WorkQueue, key_of
from needle.errors import WorkerError

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # os.fork warns


def entry(number: int, worker: int = ANY_WORKER) -> Entry:
    return Entry(*[0] * len(Entry._fields))._replace(number=number, worker=worker, last=number * 2)


def test_every_number_comes_over_as_it_is() -> None:
    queue = WorkQueue.create(2, 1)
    for seed in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        ticket = Ticket(-1, seed, 2**63 - 1, shard=5, start=6, size=7)
        sent = Entry(0, ANY_WORKER, *range(2, 8), *key_of(ticket))
        queue.put(1, sent)
        claimed = queue.claim(0)
        assert claimed == (1, sent) and claimed[1].ticket() == ticket
        queue.free(1)
    queue.close()


def claim_all(queue: WorkQueue, worker: int, pipe: Any) -> None:
    found = []
    while (claimed := queue.claim(worker)) is not None:
        found.append(claimed[1].number)
    pipe.send(found)
    os._exit(0)


def forked(target: Any, *arguments: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            target(*arguments)
        finally:
            os._exit(1)
    return pid


def test_each_unit_goes_to_one_process() -> None:
    queue = WorkQueue.create(400, 3)
    for record in range(400):
        queue.put(record, entry(record))
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
    pids = [forked(claim_all, queue, i, writer) for i, (_, writer) in enumerate(pipes)]
    found = [reader.recv() for reader, _ in pipes]
    for pid in pids:
        os.waitpid(pid, 0)
    assert Counter(ticket for tickets in found for ticket in tickets) == Counter(range(400))
    assert all(tickets == sorted(tickets) for tickets in found)
    queue.close()


def hold_the_lock(queue: WorkQueue, pipe: Any) -> None:
    with queue._locked(None):
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


class Exchange(RuleBasedStateMachine):
    """A work queue against a model: the open entries, and the worker that claimed each record."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue.create(5, 3)
        self.next, self.open, self.claimed = 0, dict[int, Entry](), dict[int, int]()

    def teardown(self) -> None:
        self.queue.close()

    @precondition(lambda self: len(self.open) + len(self.claimed) < 5)
    @rule(worker=st.sampled_from([-1, -1, 0, 1, 2]))
    def put(self, worker: int) -> None:
        record = min(set(range(5)) - set(self.open) - set(self.claimed))
        self.open[record] = entry(self.next, worker)
        self.next += 1
        self.queue.put(record, self.open[record])

    @rule(worker=st.integers(0, 2))
    def claim(self, worker: int) -> None:
        mine = {r: u for r, u in self.open.items() if u.worker in (-1, worker)}
        expected = min(mine.items(), key=lambda item: item[1].number) if mine else None
        assert self.queue.claim(worker) == expected
        if expected is not None:
            del self.open[expected[0]]
            self.claimed[expected[0]] = worker

    @rule(record=st.integers(0, 4))
    def withdraw(self, record: int) -> None:
        if record in self.open:
            assert self.queue.withdraw(record)
            del self.open[record]
        elif record in self.claimed:
            assert not self.queue.withdraw(record)

    @precondition(lambda self: bool(self.claimed))
    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        record = data.draw(st.sampled_from(sorted(self.claimed)))
        self.queue.free(record)
        del self.claimed[record]

    @invariant()
    def the_same(self) -> None:
        assert self.queue.open_entries() == len(self.open)
        for worker in range(3):
            owned = [record for record, owner in self.claimed.items() if owner == worker]
            assert self.queue.owned(worker) == sorted(owned)


TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
