"""The main loop of a worker process, which claims parts of batches, prepares them and answers.

The worker writes the rows of a batch to a slot in shared memory. It receives everything that it
needs over its socket, and exits when the parent closes it. launch.py and supervisor.py start
workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import random as random  # loaded by the supervisor

from ..batching.collate import Slice
from ..batching.fetch import Withdrawn
from ..batching.pipeline import Pipeline, Work
from ..samples.native_kernels import kernels as kernels  # called by the supervisor
from ..samples.pytree import tag_sample
from ..samples.random_source import reseed_every_sample
from ..samples.ticket import NO_SAMPLE, Ticket
from ..samples.timing import Clock
from .framing import receive
from .messages import BROKEN, DONE, DROPPED, FAILED, READY, pack_error, send_up
from .pickling import pack_value, quick_dumps, unpack
from .shared_memory import Memory
from .shared_ring import Layout, slot_views
from .work_queue import Entry, WorkQueue

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # options of mallopt(3)
_KEPT_BYTES = 64 << 20


class Ended(BaseException):
    """An exception raised when the parent has closed the socket or ended."""


class Worker:
    """The state of a worker: its number, and the shared memory that it has received."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.pipeline: Pipeline | None = None
        self.number = -1
        self.queue: WorkQueue | None = None
        self.tickets: dict[int, Memory] = {}
        self.rings: dict[int, tuple[Memory, Layout]] = {}
        self._slots: dict[tuple[int, int], list[npt.NDArray[Any] | None]] = {}
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def serve(self) -> None:
        """Work until the parent closes the socket."""
        reseed_every_sample()
        try:
            while self.queue is None or self.pipeline is None:
                self._receive()
            _one_thread()
            _keep_memory()
        except Exception as error:
            send_up(self.channel, BROKEN, answer=pack_error(error))
            return
        gc.collect()
        gc.freeze()
        send_up(self.channel, READY)
        while True:
            while self._poll.poll(0):
                self._receive()
            claimed = self.queue.claim(self.number)
            if claimed is None:
                self.queue.sleep(self.number, True)
                claimed = self.queue.claim(self.number)
                if claimed is None:
                    self._poll.poll()
                self.queue.sleep(self.number, False)
            if claimed is not None:
                self._work(*claimed)

    def _receive(self) -> None:
        got = receive(self.channel)
        if got is None:
            raise Ended
        (role, *values), fds = got
        if role == "number":
            (self.number,) = values
        elif role == "forget":
            self.rings.pop(values[0], None)
            self._slots = {key: v for key, v in self._slots.items() if key[0] != values[0]}
        elif role != "wake":
            self._attach(fds[0], role, *values)

    def _attach(self, fd: int, role: str, number: int, size: int, detail: Any) -> None:
        writable, private = role in ("queue", "ring"), role == "pipeline"
        memory = Memory.attach(fd, size, writable=writable, private=private)
        if role == "queue":
            self.queue = WorkQueue(memory, *detail)
        elif role == "pipeline":
            self.pipeline = unpack(memory.buffer)
        elif role == "tickets":
            self.tickets[number] = memory
        else:
            self.rings[number] = memory, detail

    def _work(self, record: int, entry: Entry) -> None:
        queue, clock = self.queue, Clock()
        assert queue is not None

        def progress(sample: int) -> None:
            if not queue.wanted(record):
                raise Withdrawn
            queue.note(self.number, sample)

        kind, answer = DONE, []
        try:
            part = self._prepare(entry, clock, progress)
            for i, placed in enumerate(part.placed):
                if placed:
                    part.leaves[i] = None  # the parent finds it in the slot
            answer = pack_value((part, clock.seconds), quick_dumps)
        except Withdrawn:
            kind = DROPPED
        except Ended:
            raise
        except BaseException as error:
            # such as the SystemExit of a data set that calls sys.exit
            if not isinstance(error, Exception):
                tag_sample(error, queue.current(self.number))
            kind, answer = FAILED, pack_error(error)
        queue.note(self.number, NO_SAMPLE)
        send_up(self.channel, kind, record, entry.number, answer)

    def _prepare(self, entry: Entry, clock: Clock, progress: Any) -> Slice:
        while entry.area not in self.tickets:
            self._receive()
        body = memoryview(self.tickets[entry.area].buffer)[entry.offset :]
        seed, epoch, shard, start, size, indices = pickle.loads(body)
        part = np.frombuffer(indices, np.int64)[entry.first : entry.last].copy()
        ticket, out = Ticket(-1, seed, epoch, part, -1, shard, start, size), self._rows(entry)
        assert self.pipeline is not None
        return self.pipeline.prepare(ticket, Work(clock, out, 1, progress))

    def _rows(self, entry: Entry) -> list[Any] | None:
        """Return the rows of the slot to write to, one array per array leaf."""
        if entry.ring < 0:
            return None
        while entry.ring not in self.rings:
            self._receive()
        key = entry.ring, entry.slot
        if key not in self._slots:
            self._slots[key] = slot_views(*self.rings[entry.ring], entry.slot)
        slot = self._slots[key]
        return [None if each is None else each[entry.first : entry.last] for each in slot]


def run(settings: dict[str, Any]) -> None:
    """Run a worker in this process; "parent" is the id of its parent process."""
    gc.enable()
    with inherited_channel(settings["fd"]) as channel:
        _die_with(settings["parent"])
        with contextlib.suppress(Ended, BrokenPipeError, ConnectionResetError):
            Worker(channel).serve()


def inherited_channel(fd: int) -> socket.socket:
    """Return the socket to the parent, and ignore Ctrl-C, which the parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGCHLD])
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def _die_with(parent: int) -> None:
    """Make Linux kill this process when its parent dies; elsewhere the socket reports EOF."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _one_thread() -> None:
    """Limit the loaded libraries to one thread, since the workers provide the parallelism."""
    for name, setter in (("cv2", "setNumThreads"), ("torch", "set_num_threads")):
        module = sys.modules.get(name)
        if module is not None:
            getattr(module, setter)(1)
    native = sys.modules.get("needle.backend_ndarray.ndarray_backend_cpu")
    if native is not None:
        native.set_num_threads(1)


def _keep_memory() -> None:
    """Make glibc keep freed memory of decoded images, since the kernel must clear new pages.

    glibc would choose these thresholds itself after an array of half the size has been freed.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # other C libraries lack mallopt
            mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
            mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
