"""The communicator ``mpi``, which calls the collectives of an MPI library through mpi4py.

Every wait polls, and sleeps between polls after five milliseconds, so that a waiting rank uses
little processor time and a missing rank is reported. ``communicator`` registers this class.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from .. import config
from ..errors import DistributedError
from .communicator import Array, Communicator, Wait, tree_sum

BEFORE_PAUSES = 5e-3  # Seconds in which a wait yields its core, but does not sleep.
SHORTEST_PAUSE, LONGEST_PAUSE = 2e-5, 1e-3  # seconds
QUESTION = 0.5  # Seconds in which the waiting ranks report to each other.
TAG = 4711
# Rank r waits r times this many seconds before it fails, since the first to fail ends the others.
TURN = 0.1
LAST_TURN = 3.0


class MPICommunicator(Communicator):
    """The group of processes started by mpiexec or srun.

    Raises DistributedError, which names the missing ranks, if a rank does not join a collective
    within NEEDLE_COLLECTIVE_TIMEOUT seconds. If not all ranks start within four times that limit,
    those that did end with a message. An unhandled exception on one rank ends all ranks.
    """

    def __init__(self) -> None:
        with _started_in_time():
            self._mpi = MPI = importlib.import_module("mpi4py.MPI")  # the import initialises MPI
            self._all, self._questions = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
            self.rank, self.size = self._all.Get_rank(), self._all.Get_size()
            self._places: list[str] = self._all.allgather(
                f"process {os.getpid()} on {MPI.Get_processor_name()}"
            )
        self._begun = 0
        if self.size > 1:
            self._former_hook, sys.excepthook = sys.excepthook, self._end_all

    def begin_all_reduce(self, array: Array, ordered: bool = False) -> Wait:
        """Start replacing ``array`` by its sum over all ranks."""
        if self.size == 1:
            return lambda: None
        if not array.flags.c_contiguous:
            raise ValueError(
                f"all_reduce: the array must be C-contiguous, got strides {array.strides} for "
                f"shape {array.shape}; pass a copy, np.ascontiguousarray(array)"
            )
        flat = array.reshape(-1)
        if ordered:
            return self._begin_ordered(flat)
        request = self._all.Iallreduce(self._mpi.IN_PLACE, flat)
        request.Test()  # MPI makes progress only inside its calls
        return self._waiter(request, "all_reduce", flat)

    def _begin_ordered(self, flat: Array) -> Wait:
        """Send each rank its part of the arrays; the wait adds in order and gathers the sums."""
        bounds = np.linspace(0, len(flat), self.size + 1).astype(int)
        counts, starts = np.diff(bounds), bounds[:-1]
        own = int(counts[self.rank])
        received = np.empty((self.size, own), flat.dtype)
        send = [flat, (counts, starts)]
        request = self._all.Ialltoallv(send, [received, own])
        wait = self._waiter(request, "all_reduce", (flat, received))

        def finish() -> None:
            wait()
            total = np.ascontiguousarray(tree_sum(list(received)))
            request = self._all.Iallgatherv(total, [flat, (counts, starts)])
            self._waiter(request, "all_reduce", (flat, total))()

        return finish

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Replace ``array`` by that of rank ``root``."""
        self._waiter(self._all.Ibcast(array, root), "broadcast", array)()

    def barrier(self, seconds: float | None = None) -> None:
        """Wait until all ranks have called this method, at most ``seconds``."""
        self._waiter(self._all.Ibarrier(), "barrier", None, seconds)()

    def await_turn(self) -> None:
        """Wait before printing an error, so that a lower rank with the same error ends this one."""
        time.sleep(min(TURN * self.rank, LAST_TURN))

    def abort(self, code: int = 1) -> None:
        """End all processes of the group with this exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._all.Abort(code)

    # ---- waiting -----------------------------------------------------------------------------

    def _waiter(self, request: Any, name: str, keep: object, seconds: float | None = None) -> Wait:
        """Return a function that waits for a request and keeps ``keep`` alive until then."""
        self._begun += 1
        number = self._begun

        def wait(_: object = keep) -> None:
            limit = float(config.COLLECTIVE_TIMEOUT.read()) if seconds is None else seconds
            if not _wait_for(request.Test, limit):
                raise self._missing(name, number, limit)

        return wait

    def _missing(self, name: str, number: int, limit: float) -> DistributedError:
        """Return the error that names the ranks missing from a collective.

        The waiting ranks report to each other. The lowest of them returns first, so that its
        message is the only one if the program then ends all ranks.
        """
        message = np.array([number])
        for peer in range(self.size):
            if peer != self.rank:
                self._questions.Isend(message, peer, TAG)
        waiting = {self.rank: number}
        until = time.monotonic() + QUESTION
        while time.monotonic() < until:
            status = self._mpi.Status()
            while self._questions.Iprobe(self._mpi.ANY_SOURCE, TAG, status):
                answer = np.zeros(1, int)
                self._questions.Recv(answer, status.Get_source(), TAG)
                waiting[status.Get_source()] = int(answer[0])
            time.sleep(LONGEST_PAUSE)
        time.sleep(0.0 if self.rank == min(waiting) else 3 * QUESTION)
        absent = [
            f"rank {rank} ({place})"
            for rank, place in enumerate(self._places)
            if rank not in waiting
        ]
        found = f"{', '.join(absent)} did not" if absent else f"they wait in calls {waiting}"
        return DistributedError(
            f"{name}: every rank must join call {number} within {limit:g} s, {found}; look for the "
            "cause there, or set NEEDLE_COLLECTIVE_TIMEOUT to more seconds"
        )

    def _end_all(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Print an unhandled exception and end all ranks."""
        self.await_turn()
        print(f"rank {self.rank} of {self.size} ({self._places[self.rank]}):", file=sys.stderr)
        self._former_hook(kind, error, trace)
        self.abort(130 if issubclass(kind, KeyboardInterrupt) else 1)


WATCH = """import os, select, sys
if not select.select([0], [], [], float(sys.argv[1]))[0]:
    print(sys.argv[2], file=sys.stderr, flush=True)
    os.kill(os.getppid(), 9)
"""
"""The program that watches over the start; it ends when its input does."""


@contextmanager
def _started_in_time() -> Iterator[None]:
    """End this process, with a message, unless the block ends in time.

    MPI waits for the other ranks inside the import, during which no Python thread runs, so another
    process has to watch.
    """
    seconds = 4 * float(config.COLLECTIVE_TIMEOUT.read())
    message = (
        f"mpi: every rank must start MPI within {seconds:g} s, at least one did not; look for a "
        "rank that was stopped or waits, or set NEEDLE_COLLECTIVE_TIMEOUT to more than "
        f"{seconds / 4:g} seconds"
    )
    command = [sys.executable, "-I", "-S", "-c", WATCH, str(seconds), message]
    with subprocess.Popen(command, stdin=subprocess.PIPE):  # leaving closes stdin, and waits
        yield


def _wait_for(test: Callable[[], bool], seconds: float) -> bool:
    """Return True as soon as ``test`` returns True, or False after ``seconds``."""
    began, pause = time.monotonic(), SHORTEST_PAUSE
    while not test():
        waited = time.monotonic() - began
        if waited > seconds:
            return False
        if waited < BEFORE_PAUSES:
            os.sched_yield()
            continue
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST_PAUSE)
    return True
