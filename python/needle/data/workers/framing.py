"""Messages between processes: length-prefixed pickles, which may carry file descriptors.

The program, its supervisor and its workers exchange such messages.
"""

from __future__ import annotations

import errno
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")


def send(channel: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send a message, with any file descriptors attached."""
    body = pickle.dumps(message)
    data = _LENGTH.pack(len(body)) + body
    if fds:
        sent = socket.send_fds(channel, [data], list(fds))
        data = data[sent:]
    channel.sendall(data)


def receive(channel: socket.socket) -> tuple[Any, list[int]] | None:
    """Wait for the next message; return it with its descriptors, or None at EOF."""
    fds: list[int] = []
    head = _receive_bytes(channel, _LENGTH.size, fds)
    body = None if head is None else _receive_bytes(channel, _LENGTH.unpack(head)[0], fds)
    return None if body is None else (pickle.loads(body), fds)


def _receive_bytes(channel: socket.socket, size: int, fds: list[int]) -> bytes | None:
    """Return the next ``size`` bytes, or None at EOF; append received descriptors to ``fds``."""
    data = b""
    while len(data) < size:
        piece, more, flags, _ = socket.recv_fds(channel, size - len(data), 4)
        fds += more
        if flags & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "there is no room for a descriptor that was sent")
        if not piece:
            return None
        data += piece
    return data
