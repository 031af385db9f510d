"""The frames between a loader and its server, and the handshake that opens a connection.

A frame is a header, a JSON object and raw bytes. Nothing is unpickled, and no memory is allocated
for a length that a peer merely claims. serving/connection.py uses the frames in a server,
client/session.py in a loader.
"""

from __future__ import annotations

import base64
import binascii
import builtins
import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ... import errors
from ...errors import DataError, LoaderServerError, NeedleError, WorkerError

Marks = npt.NDArray[np.bool_]

VERSION = 3
MAGIC = b"nL"
MISSED_HEARTBEATS = 3
"""Heartbeat intervals without a frame after which the other side is considered dead."""
HANDSHAKE = 60.0  # Seconds; the server may have to start workers.
_HEAD = struct.Struct("<2sBBII")  # The fields are magic, version, kind, bytes of JSON, raw bytes.
MOST_QUEUED = 128 << 20
"""Maximum bytes queued for a peer that does not read; beyond it the connection ends."""
_PIECE = 1 << 18
_KIB, _MIB = 1 << 10, 1 << 20


class FrameKind(IntEnum):
    """The kinds of frames on a connection, which serves one task or a STATUS request."""

    HELLO = 1  # Client: {}; server: its data set and the seconds between heartbeats.
    REGISTER = 2  # Client: a task, its index set and options; server: a descriptor of the memory.
    RESUME = 3  # Client: start this epoch without the indices that are done.
    NEXT = 4  # Client: a grant of credit for this many more batches.
    BATCH = 5  # Server: the location of the samples of one batch.
    RELEASE = 6  # Client: the samples of this batch are no longer in use.
    NOTICE = 8  # Server: a report of a slow sample that delays the task.
    STATUS = 9  # Client: a request; server: the state of all tasks.
    HEARTBEAT = 10  # Sent by both sides.
    BYE = 11  # Client: the task ends; server: the connection ends as well.
    ERROR = 12  # Server: the reason why the connection ends.


LIMITS: dict[FrameKind, tuple[int, int]] = {
    FrameKind.HELLO: (4 * _KIB, 0),
    FrameKind.REGISTER: (_MIB, 256 * _MIB),
    FrameKind.RESUME: (4 * _KIB, 256 * _MIB),
    FrameKind.BATCH: (64 * _MIB, 64 * _MIB),
    FrameKind.STATUS: (4 * _MIB, 0),
    FrameKind.ERROR: (64 * _KIB, 0),
    FrameKind.NOTICE: (4 * _KIB, 0),
}
"""Maximum sizes of JSON and raw bytes by kind; 1 KiB and 0 for kinds not listed."""


class Frame(NamedTuple):
    """One received frame; ``fds`` are the descriptors that came with it."""

    kind: FrameKind
    values: dict[str, Any]
    raw: bytes = b""
    fds: tuple[int, ...] = ()


def pack_frame(kind: FrameKind, values: dict[str, Any] | None = None, raw: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    body = json.dumps(values or {}, separators=(",", ":")).encode()
    return _HEAD.pack(MAGIC, VERSION, kind, len(body), len(raw)) + body + raw


class Bell:
    """A descriptor that other threads or a signal handler can make readable."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor; -1 after ``close``."""
        return self._ours.fileno()

    def ring(self) -> None:
        """Make the descriptor readable; a no-op after ``close``."""
        with suppress(OSError):  # the buffer is full, so the descriptor is already readable
            self._theirs.send(b"!")

    def clear(self) -> None:
        """Make the descriptor unreadable until the next ``ring``."""
        with suppress(OSError):
            self._ours.recv(4096)

    def close(self) -> None:
        """Close both ends."""
        self._ours.close()
        self._theirs.close()


class FrameSocket:
    """A connected socket that carries frames; only ``Connector.ask`` blocks.

    fds: the maximum number of descriptors received in one read. ended: True once the connection is
    over. Raises DataError if the peer violates the format.
    """

    def __init__(self, channel: socket.socket, fds: int = 0) -> None:
        self.channel, self._max_fds = channel, fds
        self.ended = False
        self._data, self._out = bytearray(), bytearray()
        self._fds: list[int] = []
        self._fd_to_send = -1

    @property
    def waiting(self) -> bool:
        """True if a queued frame has not been sent yet."""
        return bool(self._out)

    def send(
        self, kind: FrameKind, values: dict[str, Any] | None = None, raw: bytes = b"", fd: int = -1
    ) -> None:
        """Queue a frame for ``flush``, with a descriptor that is closed once it is sent."""
        self._out += pack_frame(kind, values, raw)
        if fd >= 0:
            self._fd_to_send = fd

    def flush(self) -> None:
        """Send as much as the socket accepts without blocking."""
        try:
            while self._out:
                with memoryview(self._out) as view:
                    sent = self._send(view[:_PIECE])
                del self._out[:sent]
        except (BlockingIOError, InterruptedError):
            self.ended = self.ended or len(self._out) > MOST_QUEUED
        except OSError:
            self._out = bytearray()  # ``receive`` will find the end of the connection

    def receive(self) -> Iterator[Frame]:
        """Read from the socket once and yield every complete frame."""
        try:
            try:
                data = self._receive()
            except ConnectionResetError:  # the peer closed before it had read everything,
                data = self._receive()  # but its reason may have arrived
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self.ended = self.ended or not data
        self._data += data
        while (frame := self._take()) is not None:
            yield frame

    def close(self) -> None:
        """Close the socket, and all descriptors that were received but not taken, or not sent."""
        self.channel.close()
        for fd in (*self._fds, self._fd_to_send):
            with suppress(OSError):
                os.close(fd)
        self._fds, self._fd_to_send = [], -1

    def _receive(self) -> bytes:
        if not self._max_fds:
            return self.channel.recv(_PIECE)
        data, fds, _, _ = socket.recv_fds(self.channel, _PIECE, self._max_fds)
        self._fds += fds
        return data

    def _send(self, view: memoryview) -> int:
        if self._fd_to_send < 0:
            return self.channel.send(view)
        sent = socket.send_fds(self.channel, [view], [self._fd_to_send])
        os.close(self._fd_to_send)
        self._fd_to_send = -1
        return sent

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


def _check_head(magic: bytes, version: int, number: int, length: int, more: int) -> FrameKind:
    if magic != MAGIC:
        raise DataError(
            f"server: a frame starts with {MAGIC!r}, got {magic!r}; the peer is not a needle loader"
        )
    if version != VERSION:
        raise DataError(
            f"server: this server uses frames of version {VERSION}, got {version}; use one release "
            "of needle for the server and its loaders"
        )
    try:
        kind = FrameKind(number)
    except ValueError:
        raise DataError(f"server: there is no frame kind {number}") from None
    limits = LIMITS.get(kind, (_KIB, 0))
    if length > limits[0] or more > limits[1]:
        raise DataError(
            f"server: a {kind.name} frame may have at most {limits[0]} + {limits[1]} bytes, got "
            f"{length} + {more}"
        )
    return kind


def _object(kind: FrameKind, body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"server: the JSON of a {kind.name} frame is invalid ({error})") from None
    if not isinstance(values, dict):
        raise DataError(f"server: a {kind.name} frame must hold a JSON object, got {body[:40]!r}")
    return values


# ---- values in frames ----------------------------------------------------------------------------


def text_of_error(error: BaseException, most: int = 8000) -> str:
    """Return the text of an exception, even if its ``__str__`` raises."""
    try:
        return str(error)[:most]
    except BaseException:
        return f"{type(error).__name__}, whose text cannot be printed"


def count_of(values: dict[str, Any], name: str, least: int = 0, most: int = 2**53) -> int:
    """Return an integer of a frame; raise DataError unless it is an int in [least, most]."""
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise DataError(f"server: {name} must be an int in [{least}, {most}], got {value!r:.60}")
    return value


def text_of(values: dict[str, Any], name: str, most: int = 200) -> str:
    """Return a string of a frame; raise DataError if it is empty, too long or unprintable."""
    value = values.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise DataError(
            f"server: {name} must be a string of 1 to {most} printable characters, got "
            f"{value!r:.60}"
        )
    return value


def pack_marks(marks: Marks) -> bytes:
    """Return boolean marks as compressed bytes, one bit each before compression."""
    return zlib.compress(np.packbits(marks).tobytes(), 6)


def unpack_marks(data: bytes, count: int) -> Marks:
    """Return the ``count`` marks that ``pack_marks`` packed; raise DataError for other bytes."""
    size = -(-count // 8)
    try:
        raw = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error:
        raw = b""
    if len(raw) != size:
        raise DataError(f"server: expected the compressed bits of {count} samples")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=count).astype(bool)


def marks_to_text(marks: Marks) -> str:
    """Return marks as text for a state dict."""
    return base64.b64encode(pack_marks(marks)).decode()


def marks_of_text(text: Any, count: int) -> Marks:
    """Return the ``count`` marks of ``marks_to_text``; raise DataError for other values."""
    try:
        return unpack_marks(base64.b64decode(text, validate=True), count)
    except (TypeError, ValueError, binascii.Error):
        raise DataError(
            f"GlobalDataLoader.load_state_dict: done must be the encoded bits of {count} samples, "
            f"got {text!r:.40}; pass what state_dict() returned"
        ) from None


# ---- a loader's side of a connection -------------------------------------------------------------


class Connector(FrameSocket):
    """A loader's socket, on which each request waits for one answer.

    server: what the server said about itself in its HELLO.
    """

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel, fds=1)
        self.server: dict[str, Any] = {}

    def greet(self) -> dict[str, Any]:
        """Send HELLO and return the server's; raise LoaderServerError if the server is gone."""
        self.server = self.ask(FrameKind.HELLO).values
        return self.server

    def ask(self, kind: FrameKind, values: dict[str, Any] | None = None, raw: bytes = b"") -> Frame:
        """Send a request and return the answer of the same kind, or raise the server's error."""
        end = time.monotonic() + HANDSHAKE
        self.channel.settimeout(HANDSHAKE)
        self.send(kind, values, raw)
        self.flush()
        while time.monotonic() < end and not self.ended:
            for frame in self.receive():
                if frame.kind is FrameKind.ERROR:
                    raise refusal(frame.values)
                if frame.kind is kind:
                    return frame
        raise lost("it closed the connection" if self.ended else "it does not answer")


def lost(reason: str) -> LoaderServerError:
    """Return the error for a server that is gone."""
    return LoaderServerError(
        f"GlobalDataLoader: the server is lost: {reason}; ask for the next batch to continue with "
        "another one, or pass fallback=True to read without a server"
    )


def refusal(values: dict[str, Any]) -> NeedleError:
    """Return the error of an ERROR frame."""
    found = named_error(values.get("error"), values.get("text"))
    return found if isinstance(found, NeedleError) else LoaderServerError(str(found))


def named_error(name: Any, text: Any) -> Exception:
    """Return the server's error as an exception, of the named class if needle or Python has it."""
    kind = getattr(errors, str(name), getattr(builtins, str(name), None))
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):  # kind() may require other arguments
            return kind(str(text))
    return WorkerError(f"GlobalDataLoader: the server failed with {name}: {text}")
