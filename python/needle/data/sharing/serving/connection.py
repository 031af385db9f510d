"""One connection as the server sees it: what it says is checked and done, what it gets is queued.

A peer that breaks a rule gets an ERROR frame and loses the connection; nobody else notices. The
loop around the connections is server.py's.
"""

from __future__ import annotations

import array
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ....errors import DataError
from ..wire.index_sets import read_indices, read_marks
from ..wire.protocol import VERSION, Frame, Inbox, Kind, count_of, pack, text_of
from .feed import Feed
from .sample import Sample
from .task import Task

MOST_QUEUED = 128 << 20
"""Bytes that may wait for a peer that does not read; then it is as good as dead."""
MOST_BATCH, MOST_CREDITS = 1 << 20, 1 << 10


class Host(Protocol):
    """What a connection needs of the server."""

    def hello(self) -> dict[str, Any]: ...
    def feed_for(self, values: dict[str, Any]) -> Feed: ...
    def task_names(self) -> set[str]: ...
    def status(self) -> dict[str, Any]: ...
    def length(self) -> int: ...
    def ends_without(self, connection: Connection) -> bool: ...


class Connection:
    """A peer: first it says HELLO; it is a task's from REGISTER on."""

    def __init__(self, channel: socket.socket, host: Host) -> None:
        channel.setblocking(False)
        self.channel, self.host = channel, host
        self.inbox = Inbox(channel)
        self.heard = time.monotonic()
        self.ended = self.closing = False
        self.task: Task | None = None
        self.feed: Feed | None = None
        self._greeted = False
        self._out = bytearray()
        self._fd = -1  # goes with the first byte of ``_out``
        self._told: set[int] = set()  # numbers of the records that it knows

    # ---- in

    def receive(self) -> None:
        """Reads what is there and does it."""
        try:
            for frame in self.inbox.receive():
                self.heard = time.monotonic()
                if not self.closing:
                    self._do(frame)
        except Exception as error:  # whatever it is, the others must not suffer
            self.refuse(error)
        if self.inbox.ended:
            self.ended = True

    def refuse(self, error: BaseException) -> None:
        """Tells an error, which is the last that the peer hears."""
        if self.closing:
            return
        values = {"error": type(error).__name__, "text": str(error)[:8000]}
        self.send(Kind.ERROR, values)
        self.closing = True

    def _do(self, frame: Frame) -> None:
        if frame.kind is Kind.HELLO:
            self._greeted = True
            self.send(Kind.HELLO, {"version": VERSION, **self.host.hello()})
        elif not self._greeted:
            raise DataError(f"server: a peer says HELLO first, got {frame.kind.name}")
        elif frame.kind in _ANYBODY:
            _ANYBODY[frame.kind](self, frame)
        elif self.task is None or self.feed is None:
            raise DataError(f"server: {frame.kind.name} is a task's, and there was no REGISTER")
        elif frame.kind in _TASKS:
            _TASKS[frame.kind](self, frame, self.task, self.feed)
        else:
            raise DataError(f"server: {frame.kind.name} is not for a server")

    def _register(self, frame: Frame) -> None:
        values = frame.values
        if self.task is not None:
            raise DataError("server: a connection has one task; open another connection")
        name = text_of(values, "task")
        if name in self.host.task_names():
            raise DataError(
                f"server: a task {name!r} is here already; give another name, task=..., or close "
                "the other loader"
            )
        task = Task(
            name,
            read_indices(values, frame.raw, self.host.length()),
            batch_size=count_of(values, "batch_size", 1, MOST_BATCH),
            drop_last=values.get("drop_last") is True,
            credits=count_of(values, "credits", 1, MOST_CREDITS),
        )
        self.feed, self.task = self.host.feed_for(values), task
        self._fd = self.feed.arena.read_only()
        self.send(Kind.REGISTER, {"bytes": self.feed.arena.memory.size})

    def _resume(self, frame: Frame, task: Task, feed: Feed) -> None:
        epoch = count_of(frame.values, "epoch", 0, 2**40)
        generation = count_of(frame.values, "generation")
        done = read_marks(frame.raw, len(task.indices))
        feed.leave(task)
        task.begin(epoch, generation, done)
        feed.join(task)

    def _next(self, frame: Frame, task: Task, feed: Feed) -> None:
        if count_of(frame.values, "generation") == task.generation:
            task.grant(count_of(frame.values, "batches", 1, MOST_CREDITS))

    def _release(self, frame: Frame, task: Task, feed: Feed) -> None:
        if count_of(frame.values, "generation") == task.generation:
            for sample in task.release(count_of(frame.values, "batch")):
                feed.release(sample)

    def _state(self, frame: Frame, task: Task, feed: Feed) -> None:
        self.send(Kind.STATE, task.state())

    def _status(self, frame: Frame) -> None:
        self.send(Kind.STATUS, self.host.status())

    def _beat(self, frame: Frame) -> None:
        if not self._out:  # else it does not read, and need not be told
            self.send(Kind.HEARTBEAT)

    def _bye(self, frame: Frame) -> None:
        self.leave()
        self.send(Kind.BYE, {"ending": self.host.ends_without(self)})
        self.closing = True

    def leave(self) -> None:
        """Frees all that the task held."""
        if self.feed is not None and self.task is not None:
            self.feed.leave(self.task)
            self.feed.trim()

    # ---- out

    def deliver(self) -> None:
        """Queues every batch of its task that is ready."""
        task = self.task
        if task is None or self.closing:
            return
        for number, part in task.ready():
            self._send_batch(task, number, part)
        if task.end_to_tell():
            values = {"generation": task.generation, "epoch": task.epoch}
            self.send(Kind.EPOCH_END, values)

    def _send_batch(self, task: Task, number: int, part: list[Sample]) -> None:
        assert self.feed is not None
        where = np.array([(s.index, s.offset, s.record) for s in part], "<i8").reshape(-1, 3)
        new = {s.record for s in part if s.record >= 0} - self._told
        self._told |= new
        values: dict[str, Any] = {"generation": task.generation, "batch": number}
        if new:
            values["records"] = {str(n): self.feed.records[n].as_values() for n in new}
        errors = {str(i): _described(s.error) for i, s in enumerate(part) if s.error is not None}
        if errors:
            values["errors"] = errors
        self.send(Kind.BATCH, values, where.tobytes())
        self.feed.delivered += len(part)

    def send(self, kind: Kind, values: dict[str, Any] | None = None, raw: bytes = b"") -> None:
        """Queues a frame; ``flush`` sends it."""
        self._out += pack(kind, values, raw)
        self.flush()

    @property
    def waiting(self) -> bool:
        """Whether something is queued."""
        return bool(self._out)

    def flush(self) -> None:
        """Sends what the socket takes now."""
        try:
            while self._out:
                with memoryview(self._out) as view:
                    sent = self._send_some(view[: 1 << 18])
                del self._out[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.ended = True
        if len(self._out) > MOST_QUEUED:
            self.ended = True

    def _send_some(self, view: memoryview) -> int:
        if self._fd < 0:
            return self.channel.send(view)
        rights = array.array("i", [self._fd])
        sent = self.channel.sendmsg([view], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(self._fd)
        self._fd = -1
        return sent

    def close(self) -> None:
        """The connection is over; its task is gone with it."""
        self.leave()
        self.channel.close()
        self.inbox.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_ANYBODY: dict[Kind, Callable[[Connection, Frame], None]] = {
    Kind.REGISTER: Connection._register,
    Kind.STATUS: Connection._status,
    Kind.HEARTBEAT: Connection._beat,
    Kind.BYE: Connection._bye,
}
_TASKS: dict[Kind, Callable[[Connection, Frame, Task, Feed], None]] = {
    Kind.RESUME: Connection._resume,
    Kind.NEXT: Connection._next,
    Kind.RELEASE: Connection._release,
    Kind.STATE: Connection._state,
}


def _described(error: BaseException | None) -> list[str]:
    """The class of an error, for those that a loader knows, and its text."""
    return [type(error).__name__, f"{error}"[:2000]]
