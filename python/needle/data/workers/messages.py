"""Messages between the parent and a worker: small records with a payload, sent over a socket.

The parent sends wake-ups and the descriptors of shared memory and pipes; a worker sends one answer
per part of a batch. Slices and exceptions are pickled here for processes.py and worker.py.
"""

from __future__ import annotations

import pickle
import socket
import struct
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from ...errors import WorkerError
from ..batching.collate import Slice
from ..samples.pytree import Structure, tagged_sample
from ..samples.ticket import NO_TICKET
from ..samples.timing import STAGES
from .engine import Completed
from .framing import receive_body, send_body
from .pickling import dumps, pack_value, unpack_value
from .shared_memory import readable_bytes

# sent by a worker, except DIED, which the pool reports about a worker
READY, DONE, FAILED, DROPPED, BROKEN, DIED = range(6)
SHARE, FORGET, WAKE = range(3)  # sent to a worker

# kind, record, number, samples, payload bytes, seconds
_UP = struct.Struct(f"<qqqqQ{len(STAGES)}d")
_PIECE = 1 << 20


Message = tuple[int, int, int, Completed]
"""The kind, the record and number of the answered queue entry, and the answer."""


def send_up(
    channel: socket.socket,
    kind: int,
    record: int = -1,
    number: int = -1,
    samples: int = 0,
    seconds: dict[str, float] | None = None,
    payload: Sequence[Any] = (),
) -> None:
    """Send a worker's message; block while the parent does not read. payload: buffers."""
    times = [(seconds or {}).get(stage, 0.0) for stage in STAGES]
    length = sum(memoryview(part).nbytes for part in payload)
    channel.sendall(_UP.pack(kind, record, number, samples, length, *times))
    for part in payload:
        channel.sendall(part)


def send_down(
    channel: socket.socket, kind: int, value: Any = None, fds: Sequence[int] = ()
) -> None:
    """Send the parent's message; ignore errors, since the worker may be dying."""
    with suppress(OSError):
        send_body(channel, pickle.dumps((kind, value)), fds)


def receive_down(channel: socket.socket) -> tuple[int, Any, list[int]] | None:
    """Wait for the parent's next message and return it, or None if the parent closed the socket."""
    got = receive_body(channel)
    return None if got is None else (*pickle.loads(got[0]), got[1])


class AnswerReader:
    """A non-blocking reader of a worker's messages, which buffers incomplete ones.

    who: the name of the worker in error messages.
    """

    def __init__(self, channel: socket.socket, who: str) -> None:
        self._channel, self._who = channel, who
        # Structure and placed leaves of the latest slice; a worker sends them only if they change.
        self._structure: Structure | None = None
        self._placed: tuple[bool, ...] = ()
        self._pending: bytearray | None = None  # a body that failed to unpickle, retried later
        self._head: bytearray = bytearray(_UP.size)
        self._body: bytearray | None = None
        self._filled = 0
        self.ended = False

    def receive(self) -> Iterator[Message]:
        """Yield every complete message; set ``ended`` once the worker has closed the socket."""
        while not self.ended:
            target = self._head if self._body is None else self._body
            while self._filled < len(target):
                with memoryview(target) as view:
                    count = self._read(view[self._filled : self._filled + _PIECE])
                if count <= 0:
                    self.ended = count == 0
                    return
                self._filled += count
            self._filled = 0
            if self._body is None:
                self._body = self._room(_UP.unpack(self._head)[4])
            else:
                body, self._body = self._body, None
                kind, record, number, samples, _, *seconds = _UP.unpack(self._head)
                answer = self._answer(kind, samples, body)
                answer.seconds = dict(zip(STAGES, seconds))
                yield kind, record, number, answer

    def _answer(self, kind: int, samples: int, body: bytearray) -> Completed:
        try:
            if kind in (FAILED, BROKEN):
                return Completed(NO_TICKET, error=unpack_error(body, self._who))
            if kind == DONE:
                return Completed(NO_TICKET, self._slice(samples, body))
            return Completed(NO_TICKET)
        except Exception as error:
            text = f"DataLoader: the answer of {self._who} cannot be unpickled ({error!r})"
            failed = WorkerError(text)
            failed.__cause__ = error
            return Completed(NO_TICKET, error=failed)

    def _slice(self, samples: int, body: bytearray) -> Slice:
        self._pending = body or self._pending
        if self._pending:
            self._structure, leaves, self._placed, skipped = unpack_value(self._pending)
            self._pending = None
            if body:
                return Slice(self._structure, leaves, samples, self._placed, skipped)
        return Slice(self._structure, [None] * len(self._placed), samples, self._placed)

    def _room(self, size: int) -> bytearray:
        try:
            return bytearray(size)
        except (MemoryError, OverflowError):
            self.ended = True  # the bytes that follow would be misread as a header
            raise MemoryError(
                f"DataLoader: there is no memory for a worker's message of {readable_bytes(size)}; "
                f"use a smaller batch_size or prefetch"
            ) from None

    def _read(self, view: memoryview) -> int:
        """Return the number of bytes read: 0 at EOF, -1 if nothing has arrived yet."""
        try:
            return self._channel.recv_into(view, 0, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return -1
        except OSError:
            return 0


def pack_error(error: BaseException) -> list[Any]:
    """Return buffers with the exception (if picklable), its text and the index of its sample."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        shown = repr(error)
    except BaseException:  # its own __str__ or __repr__ raises an error
        text = "".join(traceback.format_tb(error.__traceback__))
        shown = f"{type(error).__name__}, which cannot be printed"
    return pack_value((_portable(error), shown, text, tagged_sample(error)))


def unpack_error(payload: bytearray, who: str) -> BaseException:
    """Return the original exception; its ``__cause__`` names worker, sample and traceback."""
    portable, described, text, index = unpack_value(payload)
    sample = "" if index is None else f", sample {index}"
    cause = WorkerError(f"{who}{sample}:\n\n{text.rstrip()}")
    error: BaseException
    if portable is not None:
        error = _rebuilt(portable)
    else:
        place = "" if index is None else f" at sample {index}"
        error = WorkerError(f"DataLoader: a worker process failed{place} with {described}")
    if index is not None:
        error.__needle_index__ = index  # type: ignore[attr-defined]
    error.__cause__ = cause
    return error


def _portable(error: BaseException) -> bytes | None:
    """Return a pickle from which ``_rebuilt`` makes an equal exception, or None."""
    for take_apart, exact in _WAYS:
        with suppress(BaseException):  # methods of the exception's class may raise anything
            body = take_apart(error)
            made = _rebuilt(body)
            if type(made) is type(error) and (not exact or str(made) == str(error)):
                return body
    return None


def _whole(error: BaseException) -> bytes:
    return dumps((error,))


def _in_parts(error: BaseException) -> bytes:
    """Pickle an exception whose ``__init__`` rejects ``args`` or that has unpicklable parts."""
    args = tuple(value if _is_picklable(value) else repr(value) for value in error.args)
    state = {name: value for name, value in vars(error).items() if _is_picklable(value)}
    # neither args nor vars() hold the filename
    if isinstance(error, OSError) and error.filename is not None:
        state["filename"] = error.filename
    kinds = type(error).__mro__
    at = next(i for i, kind in enumerate(kinds) if kind.__module__ == "builtins")
    if any("__reduce__" in vars(kind) or "__reduce_ex__" in vars(kind) for kind in kinds[:at]):
        raise TypeError("defines its own pickling, which fails")
    built_in = kinds[at]
    return dumps((type(error), built_in, args, state))


_WAYS: tuple[tuple[Callable[[BaseException], bytes], bool], ...] = (
    (_whole, True),
    (_in_parts, False),
)


def _rebuilt(body: bytes) -> BaseException:
    first, *rest = pickle.loads(body)
    if not rest:
        error: BaseException = first
        return error
    built_in, args, state = rest
    error = first.__new__(first, *args)
    built_in.__init__(error, *args)  # the arguments of the class's own __init__ are unknown
    for name, value in state.items():
        object.__setattr__(error, name, value)  # the class's own __setattr__ may refuse
    return error


def _is_picklable(value: Any) -> bool:
    try:
        pickle.loads(dumps(value))
    except Exception:
        return False
    return True
