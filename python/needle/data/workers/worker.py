"""The main loop of a worker process, which claims parts of batches, prepares them and answers.

The worker writes the rows of a batch to a slot in shared memory. Everything that it needs arrives
over its socket, and it exits when the parent closes the socket. launch.py and supervisor.py start
workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import select
import signal
import socket
import sys
from typing import Any

import numpy as np
import numpy.random
import numpy.typing as npt

from ..batching.collate import Slice
from ..batching.fetch import Withdrawn
from ..batching.pipeline import Pipeline, Work
from ..samples.native_kernels import kernels as kernels  # called by the supervisor
from ..samples.pytree import Structure, tag_sample
from ..samples.random_source import reseed_every_sample
from ..samples.ticket import NO_INDICES, NO_SAMPLE
from ..samples.timing import Clock
from .messages import (
    BROKEN,
    DONE,
    DROPPED,
    FAILED,
    FORGET,
    READY,
    SHARE,
    pack_error,
    receive_down,
    send_up,
)
from .pickling import pack_value, unpack
from .shared_memory import Memory
from .shared_ring import Layout, slot_views
from .work_queue import Entry, WorkQueue

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # options of mallopt(3)
_KEPT_BYTES = 64 << 20


class Ended(BaseException):
    """An exception raised when the parent has closed the socket or ended."""


class Worker:
    """The state of a worker: the shared memory it received and the last structure it sent."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.pipeline: Pipeline | None = None
        self.number, self.incarnation, self.wake = -1, 0, -1
        self.queue: WorkQueue | None = None
        self.indices: dict[int, Memory] = {}
        self.rings: dict[int, tuple[Memory, Layout]] = {}
        self._slots: dict[tuple[int, int], list[npt.NDArray[Any] | None]] = {}
        self._sent: tuple[Structure | None, tuple[bool, ...]] | None = None
        self._reseeded: tuple[int, int] | None = None
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def serve(self) -> None:
        """Work until the parent closes the socket."""
        reseed_every_sample()
        try:
            while self.queue is None or self.pipeline is None or self.wake < 0:
                self._receive()
            _one_thread()
            _keep_memory()
        except Exception as error:
            send_up(self.channel, BROKEN, payload=pack_error(error))
            return
        gc.collect()
        gc.freeze()
        send_up(self.channel, READY)
        waiting = select.poll()
        waiting.register(self.channel, select.POLLIN)
        waiting.register(self.wake, select.POLLIN)
        while True:
            while self._poll.poll(0):
                self._receive()
            claimed = self.queue.claim(self.number)
            if claimed is None:
                self.queue.sleep(self.number, True)
                claimed = self.queue.claim(self.number)
                if claimed is None:
                    waiting.poll()
                    self._take_token()
                self.queue.sleep(self.number, False)
            if claimed is not None:
                self._work(*claimed)

    def _take_token(self) -> None:
        """Consume one byte of the wake-up pipe, unless another worker was faster."""
        with contextlib.suppress(BlockingIOError):
            if not os.read(self.wake, 1):
                raise Ended

    def _receive(self) -> None:
        got = receive_down(self.channel)
        if got is None:
            raise Ended
        kind, value, fds = got
        if kind == SHARE:
            self._attach(fds[0], *value)
        elif kind == FORGET:
            self.rings.pop(value, None)
            self._slots = {key: v for key, v in self._slots.items() if key[0] != value}

    def _attach(self, fd: int, role: str, number: int, size: int, detail: Any) -> None:
        if role == "wake":
            self.wake, self.number, self.incarnation = fd, number, detail
            return
        writable, private = role in ("queue", "ring"), role == "pipeline"
        memory = Memory.attach(fd, size, writable=writable, private=private)
        if role == "queue":
            self.queue = WorkQueue(memory, *detail)
        elif role == "pipeline":
            self.pipeline = unpack(memory)
        elif role == "indices":
            self.indices[number] = memory
        else:
            self.rings[number] = memory, detail

    def _work(self, record: int, entry: Entry) -> None:
        queue, clock = self.queue, Clock()
        assert queue is not None

        def progress(sample: int) -> None:
            if not queue.wanted(record):
                raise Withdrawn
            queue.note(self.number, sample)

        kind, samples, payload = DONE, 0, []
        try:
            part = self._prepare(entry, clock, progress)
            samples, payload = part.samples, self._packed(part)
        except Withdrawn:
            kind = DROPPED
        except Ended:
            raise
        except BaseException as error:
            # such as the SystemExit of a data set that calls sys.exit
            if not isinstance(error, Exception):
                tag_sample(error, queue.current(self.number))
            kind, payload = FAILED, pack_error(error)
        queue.note(self.number, NO_SAMPLE)
        send_up(self.channel, kind, record, entry.number, samples, clock.seconds, payload)

    def _prepare(self, entry: Entry, clock: Clock, progress: Any) -> Slice:
        self._reseed(entry)
        indices = NO_INDICES
        if entry.area >= 0:
            while entry.area not in self.indices:
                self._receive()
            memory, count = self.indices[entry.area].buffer, entry.last - entry.first
            indices = np.frombuffer(memory, np.int64, count, entry.offset + 8 * entry.first).copy()
        out = self._rows(entry)
        assert self.pipeline is not None
        ticket = entry.ticket(indices)
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

    def _packed(self, part: Slice) -> list[Any]:
        """Return the slice without the leaves in the slot; nothing if the rest is unchanged."""
        placed = part.placed or (False,) * len(part.leaves)
        same = part.structure, placed
        if not part.skipped and all(placed) and same == self._sent:
            return []
        leaves = [None if there else leaf for leaf, there in zip(part.leaves, placed)]
        self._sent = same
        return pack_value((part.structure, leaves, placed, part.skipped))

    def _reseed(self, entry: Entry) -> None:
        """Seed the global generators once per worker and epoch, for code that draws from them."""
        seed = entry.ticket().seed
        if seed is None or self._reseeded == (seed, entry.epoch):
            return
        self._reseeded = seed, entry.epoch
        words = [seed, entry.epoch, self.number, self.incarnation]
        state = np.random.SeedSequence(words).generate_state(8)
        np.random.seed(state)
        random.seed(state.tobytes())


def run(fd: int, parent: int) -> None:
    """Run a worker in this process; ``parent`` is the id of its parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with socket.socket(fileno=fd) as channel:
        os.set_inheritable(channel.fileno(), False)
        _die_with(parent)
        with contextlib.suppress(Ended, BrokenPipeError, ConnectionResetError):
            Worker(channel).serve()


def _die_with(parent: int) -> None:
    """Have Linux kill this process when its parent dies; elsewhere the socket reports EOF."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _one_thread() -> None:
    """Limit loaded libraries to one thread, since parallelism comes from the workers."""
    for name, setter in (("cv2", "setNumThreads"), ("torch", "set_num_threads")):
        module = sys.modules.get(name)
        if module is not None:
            getattr(module, setter)(1)
    native = sys.modules.get("needle.backend_ndarray.ndarray_backend_cpu")
    if native is not None:
        native.set_num_threads(1)


def _keep_memory() -> None:
    """Have glibc keep freed memory of decoded images, since the kernel must clear new pages.

    glibc would choose these thresholds itself once an array of half the size has been freed.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # other C libraries lack mallopt
            mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
            mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
