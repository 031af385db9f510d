"""A task's connection. One thread receives frames and assembles batches, one sends heartbeats.

The program takes finished batches from the receiving thread, which never waits for the program.
Since heartbeats have a thread of their own, neither a training step nor a collate that takes
minutes lets the lease expire. server_engine.py decides which epoch the session delivers.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.samples.timing import Clock
from ...errors import LoaderServerError, LoaderTimeout, NeedleError
from ..wire.protocol import (
    MISSED_HEARTBEATS,
    Bell,
    Connector,
    Frame,
    FrameKind,
    count_of,
    lost,
    named_error,
    pack_marks,
    refusal,
)
from .assembly import Assembler, Blocks

GOODBYE = 1.0
"""Seconds to wait for the server's BYE."""
_log = logging.getLogger("needle.sharing")


class State(Enum):
    """The states of a session, in the order in which it passes through them."""

    OPEN = "open"
    CLOSING = "closing"  # The program has called ``close``.
    PARTED = "parted"  # The server has said BYE.
    CLOSED = "closed"


@dataclass
class ServedBatch:
    """A batch from the server. failed: positions and errors of samples that could not be read."""

    number: int
    generation: int
    blocks: Blocks
    failed: list[tuple[int, Exception]]
    batch: Any = None
    error: BaseException | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Session:
    """A task's session with one server. prefetch: the number of batches assembled ahead.

    ``next`` raises the errors of the server and of the connection. The program's thread waits only
    in queues and locks written in C: in Python code, such as that of ``threading.Condition``, a
    Ctrl-C could leave a lock held.
    """

    def __init__(self, connector: Connector, assembler: Assembler, prefetch: int) -> None:
        self._connector, self._assembler, self._prefetch = connector, assembler, prefetch
        self.ended_server = False  # the server's BYE announced that it ends with this task
        self._state = State.OPEN
        self._lock = threading.RLock()
        self._closed = threading.Event()  # set to end the heartbeat thread
        self._wake = Bell()
        self._arrived: deque[ServedBatch] = deque()
        # batches of this generation, and answers to ``status``; None after an error
        self._ready: SimpleQueue[ServedBatch | None] = SimpleQueue()
        self._statuses: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._notice = ""  # the server's latest report of a slow sample that delays this task
        self._generation, self._seed, self._epoch = -1, 0, 0
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._seconds = float(connector.server.get("beat", 5.0))  # seconds between heartbeats

    def register(self, values: dict[str, Any], raw: bytes) -> None:
        """Register the task and start the threads; raise the server's error if it refuses."""
        frame = self._connector.ask(FrameKind.REGISTER, values, raw)
        if len(frame.fds) != 1:
            raise lost("it sent no memory")
        self._assembler.attach(frame.fds[0], count_of(frame.values, "bytes", 1))
        self._connector.channel.setblocking(False)
        for name, work in (("needle-heartbeats", self._beat), ("needle-session", self._run)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
        self._thread = thread

    # ---- called by the program

    def begin(self, seed: int, epoch: int, done: npt.NDArray[np.bool_]) -> None:
        """Start an epoch without the samples at ``done``; drop the batches in flight."""
        with self._lock:
            self._generation += 1
            self._seed, self._epoch = seed, epoch
            self._arrived.clear()
            self._ready = SimpleQueue()
            if self._error is not None:
                self._ready.put(None)
            values = {"epoch": epoch, "generation": self._generation}
            self._connector.send(FrameKind.RESUME, values, pack_marks(done))
        self._wake.ring()

    def next(self, timeout: float | None = None) -> ServedBatch:
        """Wait for the next batch of the epoch and return it.

        Raises LoaderServerError if the server ends, LoaderTimeout after ``timeout`` seconds.
        """
        if os.getpid() != self._process:
            raise LoaderServerError(
                "GlobalDataLoader: the connection belongs to the process that this one was forked "
                "from; make a new loader here"
            )
        try:
            found = self._ready.get(timeout=timeout)
        except Empty:
            raise LoaderTimeout(
                f"GlobalDataLoader: no batch was ready within timeout={timeout} s"
                f"{self._notice and f' ({self._notice})'}; raise it, or look at python -m "
                "needle.sharing --status"
            ) from None
        if found is None or self._error is not None:
            self._ready.put(None)
            raise (self._error or lost("the connection is closed")).with_traceback(None)
        with self._lock:
            values = {"generation": self._generation, "batches": 1}
            self._connector.send(FrameKind.NEXT, values)
            self._notice = ""
        self._wake.ring()
        return found

    def status(self, timeout: float = 5.0) -> dict[str, Any]:
        """Return the status of the server; raise LoaderServerError if it is gone."""
        with self._lock:
            self._statuses = SimpleQueue()
            if self._error is None:
                self._connector.send(FrameKind.STATUS)
            else:
                self._statuses.put(None)
        self._wake.ring()
        found = None
        with suppress(Empty):
            found = self._statuses.get(timeout=timeout)
        if found is None:
            raise self._error or lost("it does not answer")
        return found

    def close(self) -> None:
        """Send BYE and end the threads; a second call is a no-op."""
        thread, self._thread = self._thread, None
        if thread is not None and os.getpid() == self._process and self._state is State.OPEN:
            with self._lock:
                self._state = State.CLOSING
                self._connector.send(FrameKind.BYE)
            self._wake.ring()
            if thread is not threading.current_thread():  # a finalizer may run in any thread
                thread.join(2 * GOODBYE)
        elif thread is None:
            self._free()

    # ---- the thread

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            failure = error
            if not isinstance(failure, NeedleError):
                failure = lost(f"its messages are invalid ({error!r})")
                failure.__cause__ = error
            self._fail(failure)
        finally:
            self._free()

    def _fail(self, error: NeedleError) -> None:
        """Make the program raise ``error`` from now on, unless it already has an error to raise."""
        with self._lock:
            self._error = self._error or error
            self._ready.put(None)
            self._statuses.put(None)

    def _beat(self) -> None:
        """Send heartbeats until the session is closed."""
        while not self._closed.wait(self._seconds):
            with self._lock:
                self._connector.send(FrameKind.HEARTBEAT)
                self._connector.flush()

    def _serve(self) -> None:
        beat, connector = self._seconds, self._connector
        last_received = time.monotonic()
        goodbye: float | None = None
        while True:
            now = time.monotonic()
            if self._state is State.CLOSING:
                goodbye = goodbye or now + GOODBYE
            ready = self._wait(beat if goodbye is None else max(0.0, min(beat, goodbye - now)))
            if connector.channel.fileno() in ready:
                last_received = time.monotonic()
                for frame in connector.receive():
                    self._take(frame)
            elif now - last_received > MISSED_HEARTBEATS * beat:
                raise lost(f"it has not answered for {now - last_received:.1f} s")
            if connector.ended and self._state is State.OPEN:
                raise lost("its process has ended")
            parted = connector.ended or self._state is State.PARTED
            if parted or (goodbye and time.monotonic() > goodbye):
                return
            self._assemble()

    def _wait(self, seconds: float) -> set[int]:
        """Wait, flush the queued frames, and return the descriptors that are readable."""
        with self._lock:
            self._connector.flush()
            waiting = self._connector.waiting
            work = bool(self._arrived) and self._ready.qsize() < self._prefetch
        poll = select.poll()
        poll.register(self._connector.channel, select.POLLIN | select.POLLOUT * waiting)
        poll.register(self._wake, select.POLLIN)
        found = dict(poll.poll(0 if work else int(seconds * 1000) + 1))
        self._wake.clear()
        mask = select.POLLIN | select.POLLHUP | select.POLLERR
        return {fd for fd, events in found.items() if events & mask}

    def _take(self, frame: Frame) -> None:
        if frame.kind is FrameKind.BATCH:
            self._batch_arrived(frame)
        elif frame.kind is FrameKind.STATUS:
            self._statuses.put(frame.values)
        elif frame.kind is FrameKind.ERROR:
            raise refusal(frame.values)
        elif frame.kind is FrameKind.NOTICE:
            self._notice = str(frame.values.get("text"))[:200]
            _log.warning("%s", self._notice)
        elif frame.kind is FrameKind.BYE:
            self._state = State.PARTED
            self.ended_server = frame.values.get("ending") is True

    def _batch_arrived(self, frame: Frame) -> None:
        values = frame.values
        self._assembler.learn(values.get("layouts", {}))
        table = np.frombuffer(frame.raw, "<i8").reshape(-1, 3).astype(np.int64)
        blocks = Blocks(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())
        failed = [
            (int(place), named_error(*described))
            for place, described in values.get("errors", {}).items()
        ]
        number, generation = count_of(values, "batch"), count_of(values, "generation")
        with self._lock:
            if generation == self._generation:
                self._arrived.append(ServedBatch(number, generation, blocks, failed))

    def _assemble(self) -> None:
        """Assemble one batch if one is wanted, and release its blocks to the server."""
        with self._lock:
            if not self._arrived or self._ready.qsize() >= self._prefetch:
                return
            served, seed, epoch = self._arrived.popleft(), self._seed, self._epoch
        clock, blocks = Clock(), served.blocks
        try:
            readable = np.ones(len(blocks.indices), bool)
            readable[[place for place, _ in served.failed]] = False
            served.batch = self._assembler.batch(blocks.only(readable), seed, epoch, clock)
        except BaseException as error:  # an error of collate or a transform: raised in the program
            served.error = error
        served.seconds = clock.seconds
        with self._lock:
            if served.generation == self._generation:
                self._ready.put(served)
            values = {"generation": served.generation, "batch": served.number}
            self._connector.send(FrameKind.RELEASE, values)

    def _free(self) -> None:
        with self._lock:
            if self._state is State.CLOSED:
                return
            self._state = State.CLOSED
            self._connector.close()
            self._assembler.detach()
            self._wake.close()
            self._fail(lost("the connection is closed"))
        self._closed.set()
