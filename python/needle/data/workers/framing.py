"""Length-prefixed frames between processes, which may carry file descriptors.

supervisor.py, launch.py and shared_supervisor.py send JSON in such frames; messages.py sends
pickles.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")


def send(channel: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a message as JSON, with any file descriptors attached."""
    send_body(channel, json.dumps(message).encode(), fds)


def send_body(channel: socket.socket, body: bytes, fds: Sequence[int] = ()) -> None:
    """Send bytes after their length, with any file descriptors attached."""
    data = _LENGTH.pack(len(body)) + body
    if fds:
        sent = socket.send_fds(channel, [data], list(fds))
        data = data[sent:]
    channel.sendall(data)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and its descriptors, or None at EOF."""
    got = receive_body(channel)
    return None if got is None else (json.loads(got[0]), got[1])


def receive_body(channel: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the bytes that ``send_body`` sent and the descriptors, or None at EOF."""
    fds: list[int] = []
    head = _receive_bytes(channel, _LENGTH.size, fds)
    body = None if head is None else _receive_bytes(channel, _LENGTH.unpack(head)[0], fds)
    return None if body is None else (body, fds)


def _receive_bytes(channel: socket.socket, size: int, fds: list[int]) -> bytes | None:
    """Return the next ``size`` bytes, or None at EOF; append received descriptors to ``fds``."""
    data = b""
    while len(data) < size:
        piece, more, flags, _ = socket.recv_fds(channel, size - len(data), 4)
        fds += more
        if flags & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "no room for a descriptor that was sent")
        if not piece:
            return None
        data += piece
    return data
