"""Peers of a server that misbehave, and programs that are killed; for the tests of faults."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from server_checks import ROOT

from needle.data.server.address import connect
from needle.data.server.index_sets import write_indices
from needle.data.server.protocol import Frame, Inbox, Kind, pack

PROGRAM = """
import sys, time
sys.path[:0] = [{python!r}, {here!r}]
from needle.data.server import GlobalDataLoader
loader = GlobalDataLoader({path!r}, 8, task={task!r}, seed=1, timeout=30)
while True:
    for images, labels in loader:
        print(*labels.numpy().tolist(), flush=True)
        time.sleep({pause})
"""


@contextmanager
def client_program(path: Path, task: str, pause: float = 0.002) -> Iterator[subprocess.Popen[str]]:
    """A program with a task, which iterates for ever and prints the labels of each batch."""
    python, here = str(ROOT / "python"), str(Path(__file__).parent)
    text = PROGRAM.format(python=python, here=here, path=str(path), task=task, pause=pause)
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.send_signal(signal.SIGCONT)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Peer:
    """A connection of which the test decides every byte."""

    def __init__(self, path: Path) -> None:
        channel = connect(path)
        assert channel is not None
        self.channel = channel
        channel.settimeout(10)
        self.inbox = Inbox(channel, fds=1)

    def say(self, kind: Kind, values: dict[str, Any] | None = None, raw: bytes = b"") -> None:
        self.send(pack(kind, values, raw))

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # the server may have hung up
            self.channel.sendall(data)

    def hear(self, kind: Kind) -> Frame | None:
        """The next frame of this kind; None at the server's end of it."""
        while not self.inbox.ended:
            for frame in self.inbox.receive():
                for fd in frame.fds:
                    os.close(fd)
                if frame.kind is kind:
                    return frame
        return None

    def register(self, task: str, size: int, batch_size: int = 8, credits: int = 4) -> None:
        """Becomes a task that has begun its first epoch."""
        self.say(Kind.HELLO)
        where, raw = write_indices(np.arange(size))
        values = {"task": task, "batch_size": batch_size, "credits": credits, "share": "decoded"}
        self.say(Kind.REGISTER, {**where, **values, "shared": [], "decode_at": None}, raw)
        assert self.hear(Kind.REGISTER) is not None
        self.say(Kind.RESUME, {"epoch": 0, "generation": 0})

    def is_cut_off(self, seconds: float = 10.0) -> bool:
        """Whether the server ends the connection."""
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
        self.channel.close()
        self.inbox.close()
