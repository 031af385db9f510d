"""The table of work: oldest first, each unit to one worker, whatever happens to its holder."""

from __future__ import annotations

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

from needle.data.workers import work_queue as boards
from needle.data.workers.work_queue import (
    NO_SAMPLE,
    Board,
    Unit,
    signed,
    unsigned,
)
from needle.errors import WorkerError

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # os.fork


def unit(ticket: int, preferred: int = -1) -> Unit:
    return Unit(*[0] * 16)._replace(ticket=ticket, preferred=preferred, last=ticket * 2)


def test_the_oldest_first_and_only_to_whom_it_is_open() -> None:
    board = Board.create(8, 3)
    for record, (ticket, preferred) in enumerate([(5, -1), (3, 1), (4, -1), (9, 2)]):
        board.put(record, unit(ticket, preferred))
    assert board.open_units() == 4
    assert board.claim(0) == (2, unit(4))
    assert board.claim(1) == (1, unit(3, 1))
    assert board.claim(0) == (0, unit(5))
    assert board.claim(1) is None and board.open_units() == 1
    assert board.owned(0) == [0, 2] and board.owned(1) == [1] and board.owned(2) == []
    assert board.owner(2) == 0 and board.owner(3) == boards.NOBODY
    board.close()


def test_withdrawing() -> None:
    board = Board.create(4, 1)
    board.put(0, unit(1))
    board.put(1, unit(2))
    assert board.claim(0) == (0, unit(1)) and board.wanted(0)
    assert not board.withdraw(0) and not board.wanted(0)
    assert board.withdraw(1)
    assert board.claim(0) is None and board.owned(0) == [0]
    board.free(0)
    assert board.owned(0) == []
    board.close()


def test_every_number_comes_over_as_it_is() -> None:
    board = Board.create(2, 1)
    for seed in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        assert unsigned(signed(seed)) == seed
        sent = Unit(*range(16))._replace(seed=signed(seed), epoch=2**63 - 1, preferred=-1)
        board.put(1, sent)
        assert board.claim(0) == (1, sent)
        board.free(1)
    board.close()


def test_what_workers_note() -> None:
    board = Board.create(3, 2)
    assert board.current(1) == NO_SAMPLE and board.sleepers() == 0
    board.note(1, -1)
    board.sleep(0, True)
    assert (board.current(0), board.current(1), board.sleepers()) == (NO_SAMPLE, -1, 1)
    board.sleep(0, False)
    assert board.sleepers() == 0
    board.close()


def claim_all(board: Board, worker: int, pipe: Any) -> None:
    found = []
    while (claimed := board.claim(worker)) is not None:
        found.append(claimed[1].ticket)
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
    board = Board.create(400, 3)
    for record in range(400):
        board.put(record, unit(record))
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
    pids = [forked(claim_all, board, i, writer) for i, (_, writer) in enumerate(pipes)]
    found = [reader.recv() for reader, _ in pipes]
    for pid in pids:
        os.waitpid(pid, 0)
    assert Counter(ticket for tickets in found for ticket in tickets) == Counter(range(400))
    assert all(tickets == sorted(tickets) for tickets in found)
    board.close()


def hold_the_lock(board: Board, pipe: Any) -> None:
    with board._locked(None):
        pipe.send("held")
        time.sleep(60)


def test_the_lock_of_a_process_that_dies_is_free() -> None:
    board = Board.create(4, 1)
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = forked(hold_the_lock, board, writer)
    assert reader.recv() == "held"
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    board.put(0, unit(1))  # waits until then
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert board.claim(0) == (0, unit(1))
    board.close()


def test_a_holder_that_stops_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "_PATIENCE", 0.1)
    board = Board.create(4, 1)
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = forked(hold_the_lock, board, writer)
    try:
        assert reader.recv() == "held"
        with pytest.raises(WorkerError, match="holds the table of work"):
            board.put(0, unit(1))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    board.close()


class Exchange(RuleBasedStateMachine):
    """Against a model: a list of open tickets, and who has claimed what."""

    def __init__(self) -> None:
        super().__init__()
        self.board = Board.create(5, 3)
        self.next, self.open, self.claimed = 0, dict[int, Unit](), dict[int, int]()

    def teardown(self) -> None:
        self.board.close()

    @precondition(lambda self: len(self.open) + len(self.claimed) < 5)
    @rule(preferred=st.sampled_from([-1, -1, 0, 1, 2]))
    def put(self, preferred: int) -> None:
        record = min(set(range(5)) - set(self.open) - set(self.claimed))
        self.open[record] = unit(self.next, preferred)
        self.next += 1
        self.board.put(record, self.open[record])

    @rule(worker=st.integers(0, 2))
    def claim(self, worker: int) -> None:
        mine = {r: u for r, u in self.open.items() if u.preferred in (-1, worker)}
        expected = min(mine.items(), key=lambda item: item[1].ticket) if mine else None
        assert self.board.claim(worker) == expected
        if expected is not None:
            del self.open[expected[0]]
            self.claimed[expected[0]] = worker

    @rule(record=st.integers(0, 4))
    def withdraw(self, record: int) -> None:
        if record in self.open:
            assert self.board.withdraw(record)
            del self.open[record]
        elif record in self.claimed:
            assert not self.board.withdraw(record)

    @precondition(lambda self: bool(self.claimed))
    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        record = data.draw(st.sampled_from(sorted(self.claimed)))
        self.board.free(record)
        del self.claimed[record]

    @invariant()
    def the_same(self) -> None:
        assert self.board.open_units() == len(self.open)
        for worker in range(3):
            owned = [record for record, owner in self.claimed.items() if owner == worker]
            assert self.board.owned(worker) == sorted(owned)


TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
