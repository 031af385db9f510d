"""Frames between a loader and its server: what they are called, how they lie on the socket, limits.

A frame is a head, a JSON object and raw bytes. Nothing is unpickled and nothing is allocated for
a length that a peer merely claims. What frames mean is connection.py's and session.py's.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from os import close
from typing import Any

from ....errors import DataError

VERSION = 1
MAGIC = b"nL"
_HEAD = struct.Struct("<2sBBII")  # magic, version, kind, bytes of JSON, raw bytes
_PIECE = 1 << 18
_KIB, _MIB = 1 << 10, 1 << 20


class Kind(IntEnum):
    """What a frame says. A connection is one task's, or that of somebody who asks for STATUS."""

    HELLO = 1  # client: {}; server: the data set, its length, seconds between heartbeats
    REGISTER = 2  # client: a task, its index set and options; server: the memory, by descriptor
    RESUME = 3  # client: begin this epoch, of which these indices are done
    NEXT = 4  # client: so many more batches may come
    BATCH = 5  # server: where the samples of one batch lie
    RELEASE = 6  # client: this batch's samples are not looked at any more
    EPOCH_END = 7  # server: that was the last batch of the epoch
    STATE = 8  # client: where is my task?; server: there
    STATUS = 9  # client: how are all tasks?; server: so
    HEARTBEAT = 10  # either: I live
    BYE = 11  # client: I am done; server: so am I with you
    ERROR = 12  # server: the connection ends, and why


LIMITS: dict[Kind, tuple[int, int]] = {
    Kind.HELLO: (4 * _KIB, 0),
    Kind.REGISTER: (_MIB, 256 * _MIB),
    Kind.RESUME: (4 * _KIB, 256 * _MIB),
    Kind.BATCH: (64 * _MIB, 64 * _MIB),
    Kind.STATUS: (4 * _MIB, 0),
    Kind.ERROR: (64 * _KIB, 0),
}
"""The most bytes of JSON and of raw bytes a kind may have; others have a KiB and none."""


@dataclass(frozen=True)
class Frame:
    """One message, as received: ``fds`` are the descriptors that came with it."""

    kind: Kind
    values: dict[str, Any]
    raw: bytes = b""
    fds: tuple[int, ...] = field(default=())


def pack(kind: Kind, values: dict[str, Any] | None = None, raw: bytes = b"") -> bytes:
    """The frame's bytes."""
    body = json.dumps(values or {}, separators=(",", ":")).encode()
    return _HEAD.pack(MAGIC, VERSION, kind, len(body), len(raw)) + body + raw


class Inbox:
    """Frames as they arrive on a socket; keeps what is half there, and never waits by itself.

    A peer that breaks the rules is told by DataError; ``ended`` at its end.
    """

    def __init__(self, channel: socket.socket, fds: int = 0) -> None:
        self._channel, self._max_fds = channel, fds
        self._data = bytearray()
        self._fds: list[int] = []
        self.ended = False

    @property
    def partial(self) -> bool:
        """Whether part of a frame has arrived."""
        return bool(self._data)

    def receive(self) -> Iterator[Frame]:
        """One read from the socket, and every frame that is complete then."""
        try:
            if self._max_fds:
                data, fds, _, _ = socket.recv_fds(self._channel, _PIECE, self._max_fds)
                self._fds += fds
            else:
                data = self._channel.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        self._data += data
        while (frame := self._take()) is not None:
            yield frame

    def close(self) -> None:
        """Closes descriptors that nobody has taken."""
        for fd in self._fds:
            with suppress(OSError):
                close(fd)
        self._fds.clear()

    def _take(self) -> Frame | None:
        if len(self._data) < _HEAD.size:
            return None
        magic, version, number, length, more = _HEAD.unpack_from(self._data)
        kind = _check_head(magic, version, number, length, more)
        end = _HEAD.size + length + more
        if len(self._data) < end:
            return None
        body = bytes(self._data[_HEAD.size : _HEAD.size + length])
        raw = bytes(self._data[_HEAD.size + length : end])
        del self._data[:end]
        fds, self._fds = tuple(self._fds), []
        return Frame(kind, _object(kind, body), raw, fds)


def count_of(values: dict[str, Any], name: str, least: int = 0, most: int = 2**53) -> int:
    """An integer of a frame; DataError where it is none, or outside [least, most]."""
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise DataError(f"server: {name} must be an int in [{least}, {most}], got {value!r:.60}")
    return value


def text_of(values: dict[str, Any], name: str, most: int = 200) -> str:
    """A text of a frame; DataError where it is none, empty or too long."""
    value = values.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise DataError(
            f"server: {name} must be a text of 1 to {most} printable letters, got {value!r:.60}"
        )
    return value


def _check_head(magic: bytes, version: int, number: int, length: int, more: int) -> Kind:
    if magic != MAGIC:
        raise DataError(f"server: a frame begins with {MAGIC!r}, got {magic!r}; not a loader")
    if version != VERSION:
        raise DataError(
            f"server: frames of version {VERSION} are spoken here, got {version}; use one release "
            "of needle for the server and its loaders"
        )
    try:
        kind = Kind(number)
    except ValueError:
        raise DataError(f"server: no frame has the number {number}") from None
    limits = LIMITS.get(kind, (_KIB, 0))
    if length > limits[0] or more > limits[1]:
        raise DataError(
            f"server: a {kind.name} frame has at most {limits[0]} + {limits[1]} bytes, got "
            f"{length} + {more}"
        )
    return kind


def _object(kind: Kind, body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"server: a {kind.name} frame is no JSON ({error})") from None
    if not isinstance(values, dict):
        raise DataError(f"server: a {kind.name} frame holds a JSON object, got {body[:40]!r}")
    return values
