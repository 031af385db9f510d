"""A server's connection to one peer, which checks and executes frames and queues answers.

A peer that violates the protocol gets an ERROR frame and loses its connection; other peers are not
affected. event_loop.py runs the loop around the connections.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Protocol

import numpy as np

from ...errors import DataError
from ..wire.protocol import (
    VERSION,
    Frame,
    FrameKind,
    FrameSocket,
    count_of,
    text_of,
    text_of_error,
    unpack_marks,
)
from .feed import Feed, Task
from .reading import Sample

MOST_BATCH, MOST_CREDITS = 1 << 20, 1 << 10


class Host(Protocol):
    """The part of the server that a connection uses."""

    def hello(self) -> dict[str, Any]: ...
    def feed_for(self, values: dict[str, Any], task: Task) -> Feed: ...
    def task_names(self) -> set[str]: ...
    def status(self) -> dict[str, Any]: ...
    def length(self) -> int: ...
    def ends_without(self, connection: Connection) -> bool: ...


class Connection(FrameSocket):
    """The connection to one peer: it begins with HELLO and serves one task after REGISTER.

    peer: a descriptor that becomes readable when the peer's process ends, or -1.
    """

    def __init__(self, channel: socket.socket, host: Host, peer: int = -1) -> None:
        super().__init__(channel)
        channel.setblocking(False)
        self.host, self.peer, self.last_received = host, peer, time.monotonic()
        self.closing = False
        self.task: Task | None = None
        self.feed: Feed | None = None
        self.greeted = False
        self._sent_layouts: set[int] = set()

    # ---- requests

    def execute(self) -> None:
        """Read and execute the frames that have arrived."""
        for frame in self.receive():
            self.last_received = time.monotonic()
            if not self.closing:
                self._execute(frame)

    def refuse(self, error: BaseException) -> None:
        """Send an error as the last frame of the connection."""
        if not self.closing:
            values = {"error": type(error).__name__, "text": text_of_error(error)}
            self.send(FrameKind.ERROR, values)
            self.closing = True

    def _execute(self, frame: Frame) -> None:
        kind = frame.kind
        if kind is FrameKind.HELLO:
            self.greeted = True
            self.send(kind, {"version": VERSION, **self.host.hello()})
        elif not self.greeted:
            raise DataError(f"server: a connection must start with HELLO, got {kind.name}")
        elif kind is FrameKind.REGISTER:
            self._register(frame)
        elif kind is FrameKind.STATUS:
            self.send(kind, self.host.status())
        elif kind is FrameKind.HEARTBEAT:
            if not self.waiting:  # send no more answers to a peer that does not read them
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
            raise DataError("server: a connection can have only one task; open another connection")
        name = text_of(values, "task")
        if name in self.host.task_names():
            raise DataError(
                f"server: a task {name!r} is already registered; use another name, task=..., or "
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
        self.feed, self.task = self.host.feed_for(values, task), task
        arena = self.feed.store.arena
        self.send(FrameKind.REGISTER, {"bytes": arena.memory.size}, fd=arena.read_only())

    def leave(self) -> None:
        """Release everything that the task held."""
        if self.feed is not None and self.task is not None:
            self.feed.leave(self.task)

    # ---- answers

    def deliver(self) -> None:
        """Queue every batch of the task that is ready."""
        if self.task is not None and self.feed is not None and not self.closing:
            for number, batch in self.task.ready_batches():
                self._send_batch(self.task, self.feed, number, batch)
            while self.task.notices:
                self.send(FrameKind.NOTICE, {"text": self.task.notices.popleft()})

    def _send_batch(self, task: Task, feed: Feed, number: int, batch: list[Sample]) -> None:
        where = np.array([(s.index, s.offset, s.layout) for s in batch], "<i8").reshape(-1, 3)
        new = {s.layout for s in batch if s.layout >= 0} - self._sent_layouts
        self._sent_layouts |= new
        values: dict[str, Any] = {"generation": task.generation, "batch": number}
        if new:
            values["layouts"] = {str(n): feed.store.layouts[n].as_values() for n in new}
        errors = {
            str(i): [type(s.error).__name__, text_of_error(s.error, 2000)]
            for i, s in enumerate(batch)
            if s.error is not None
        }
        if errors:
            values["errors"] = errors
        self.send(FrameKind.BATCH, values, where.tobytes())
        feed.delivered += len(batch)

    def close(self) -> None:
        """Close the connection and remove its task."""
        try:
            self.leave()
        finally:
            super().close()
            if self.peer >= 0:
                os.close(self.peer)
                self.peer = -1
