"""One connection of the server: its frames are checked and executed, its answers are queued.

A peer that breaks a rule gets an ERROR frame and loses the connection; other peers are not
affected. server.py runs the loop around the connections.
"""

from __future__ import annotations

import array
import os
import socket
import time
from typing import Any, Protocol

import numpy as np

from ....errors import DataError
from ..wire.protocol import (
    VERSION,
    Frame,
    FrameKind,
    FrameReader,
    count_of,
    pack_frame,
    text_of,
    unpack_marks,
)
from .feed import Feed
from .task import Sample, Task

MOST_QUEUED = 128 << 20
"""Bytes that may wait for a peer that does not read; with more the connection is closed."""
MOST_BATCH, MOST_CREDITS = 1 << 20, 1 << 10
_SENT_AT_ONCE = 1 << 18


class Host(Protocol):
    """What a connection needs of the server."""

    def hello(self) -> dict[str, Any]: ...
    def feed_for(self, values: dict[str, Any]) -> Feed: ...
    def task_names(self) -> set[str]: ...
    def status(self) -> dict[str, Any]: ...
    def length(self) -> int: ...
    def ends_without(self, connection: Connection) -> bool: ...


class Connection:
    """A peer of the server. It starts with HELLO; from REGISTER on it belongs to one task."""

    def __init__(self, channel: socket.socket, host: Host) -> None:
        channel.setblocking(False)
        self.channel, self.host = channel, host
        self.frames = FrameReader(channel)
        self.heard = time.monotonic()
        self.ended = self.closing = False
        self.task: Task | None = None
        self.feed: Feed | None = None
        self._greeted = False
        self._out = bytearray()
        self._fd = -1  # sent with the first byte of ``_out``
        self._sent_layouts: set[int] = set()

    # ---- requests

    def receive(self) -> None:
        """Read and execute the frames that have arrived."""
        try:
            for frame in self.frames.receive():
                self.heard = time.monotonic()
                if not self.closing:
                    self._execute(frame)
        except Exception as error:  # whatever it is, other peers must not be affected
            self.refuse(error)
        if self.frames.ended:
            self.ended = True

    def refuse(self, error: BaseException) -> None:
        """Send an error as the last frame of the connection."""
        if not self.closing:
            values = {"error": type(error).__name__, "text": str(error)[:8000]}
            self.send(FrameKind.ERROR, values)
            self.closing = True

    def _execute(self, frame: Frame) -> None:
        kind = frame.kind
        if kind is FrameKind.HELLO:
            self._greeted = True
            self.send(kind, {"version": VERSION, **self.host.hello()})
        elif not self._greeted:
            raise DataError(f"server: a connection starts with HELLO, got {kind.name}")
        elif kind is FrameKind.REGISTER:
            self._register(frame)
        elif kind is FrameKind.STATUS:
            self.send(kind, self.host.status())
        elif kind is FrameKind.HEARTBEAT:
            if not self._out:  # otherwise the peer does not read
                self.send(kind)
        elif kind is FrameKind.BYE:
            self.leave()
            self.send(kind, {"ending": self.host.ends_without(self)})
            self.closing = True
        elif self.task is None or self.feed is None:
            raise DataError(f"server: {kind.name} needs a task; send REGISTER first")
        else:
            self._execute_for(self.task, self.feed, frame)

    def _execute_for(self, task: Task, feed: Feed, frame: Frame) -> None:
        kind, values = frame.kind, frame.values
        if kind is FrameKind.RESUME:
            epoch = count_of(values, "epoch", 0, 2**40)
            generation = count_of(values, "generation")
            done = unpack_marks(frame.raw, len(task.indices))
            feed.leave(task)
            task.begin(epoch, generation, done)
            feed.join(task)
        elif kind is FrameKind.NEXT:
            if count_of(values, "generation") == task.generation:
                task.grant(count_of(values, "batches", 1, MOST_CREDITS))
        elif kind is FrameKind.RELEASE:
            if count_of(values, "generation") == task.generation:
                for sample in task.release(count_of(values, "batch")):
                    feed.release(sample)
        else:
            raise DataError(f"server: a server does not accept {kind.name}")

    def _register(self, frame: Frame) -> None:
        values = frame.values
        if self.task is not None:
            raise DataError("server: a connection has one task; open another connection")
        name = text_of(values, "task")
        if name in self.host.task_names():
            raise DataError(
                f"server: a task {name!r} is registered already; use another name, task=..., or "
                "close the other loader"
            )
        indices = np.flatnonzero(unpack_marks(frame.raw, self.host.length()))
        if not len(indices):
            raise DataError("server: a task's index set must not be empty; give it one index")
        task = Task(
            name,
            indices,
            batch_size=count_of(values, "batch_size", 1, MOST_BATCH),
            drop_last=values.get("drop_last") is True,
            credits=count_of(values, "credits", 1, MOST_CREDITS),
        )
        self.feed, self.task = self.host.feed_for(values), task
        self._fd = self.feed.arena.read_only()
        self.send(FrameKind.REGISTER, {"bytes": self.feed.arena.memory.size})

    def leave(self) -> None:
        """Release everything that the task held."""
        if self.feed is not None and self.task is not None:
            self.feed.leave(self.task)
            self.feed.arena.trim()

    # ---- answers

    def deliver(self) -> None:
        """Queue every batch of the task that is ready."""
        if self.task is not None and self.feed is not None and not self.closing:
            for number, batch in self.task.ready_batches():
                self._send_batch(self.task, self.feed, number, batch)

    def _send_batch(self, task: Task, feed: Feed, number: int, batch: list[Sample]) -> None:
        where = np.array([(s.index, s.offset, s.layout) for s in batch], "<i8").reshape(-1, 3)
        new = {s.layout for s in batch if s.layout >= 0} - self._sent_layouts
        self._sent_layouts |= new
        values: dict[str, Any] = {"generation": task.generation, "batch": number}
        if new:
            values["layouts"] = {str(n): feed.layouts[n].as_values() for n in new}
        errors = {
            str(i): [type(s.error).__name__, f"{s.error}"[:2000]]
            for i, s in enumerate(batch)
            if s.error is not None
        }
        if errors:
            values["errors"] = errors
        self.send(FrameKind.BATCH, values, where.tobytes())
        feed.delivered += len(batch)

    def send(self, kind: FrameKind, values: dict[str, Any] | None = None, raw: bytes = b"") -> None:
        """Queue a frame and send what the socket takes."""
        self._out += pack_frame(kind, values, raw)
        self.flush()

    @property
    def waiting(self) -> bool:
        """True if something is queued."""
        return bool(self._out)

    def flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._out:
                with memoryview(self._out) as view:
                    sent = self._send_some(view[:_SENT_AT_ONCE])
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
        """Close the connection; its task leaves."""
        self.leave()
        self.channel.close()
        self.frames.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
