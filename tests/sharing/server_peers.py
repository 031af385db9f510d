"""Misbehaving peers of a server, and programs that tests kill."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from forks import Forked
from proc import becomes

from needle.sharing.client.joining import ask_status
from needle.sharing.wire.address import connect
from needle.sharing.wire.protocol import Frame, FrameKind, FrameSocket, pack_frame, pack_marks


@contextmanager
def client_process(path: Path, task: str, pause: float = 0.002) -> Iterator[Forked]:
    """Yield a task in its own process that has begun an epoch and iterates forever."""
    process = Forked(do="train", path=str(path), task=task, pause=pause)

    def begun() -> bool:
        status = ask_status(path)
        tasks = [] if status is None else [t for feed in status["feeds"] for t in feed["tasks"]]
        return any(each["task"] == task and each["delivered"] for each in tasks)

    try:
        assert becomes(begun, 100)
        yield process
    finally:
        process.kill()


def every(size: int) -> bytes:
    """Return the index set of all samples of a data set."""
    return pack_marks(np.ones(size, bool))


class Peer:
    """A connection over which a test sends arbitrary bytes."""

    def __init__(self, path: Path) -> None:
        channel = connect(path)
        assert channel is not None
        self.channel = channel
        channel.settimeout(10)
        self.inbox = FrameSocket(channel, fds=1)

    def say(self, kind: FrameKind, values: dict[str, Any] | None = None, raw: bytes = b"") -> None:
        self.send(pack_frame(kind, values, raw))

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # the server may have closed the connection
            self.channel.sendall(data)

    def hear(self, kind: FrameKind) -> Frame | None:
        """Return the next frame of this kind, or None when the server closes the connection."""
        while not self.inbox.ended:
            for frame in self.inbox.receive():
                for fd in frame.fds:
                    os.close(fd)
                if frame.kind is kind:
                    return frame
        return None

    def register(self, task: str, size: int, batch_size: int = 8, credits: int = 4) -> None:
        """Register as a task that has begun its first epoch."""
        self.say(FrameKind.HELLO)
        values = {"task": task, "batch_size": batch_size, "credits": credits, "share": "decoded"}
        self.say(FrameKind.REGISTER, {**values, "shared": [], "decode_at": None}, every(size))
        assert self.hear(FrameKind.REGISTER) is not None
        self.say(FrameKind.RESUME, {"epoch": 0, "generation": 0}, pack_marks(np.zeros(size, bool)))

    def is_cut_off(self, seconds: float = 10.0) -> bool:
        """Return True if the server closes the connection."""
        end = time.monotonic() + seconds
        self.channel.settimeout(seconds)
        try:
            while time.monotonic() < end:
                if not self.channel.recv(1 << 16):
                    return True
        except OSError as error:
            return not isinstance(error, socket.timeout)
        return False

    def close(self) -> None:
        self.inbox.close()
