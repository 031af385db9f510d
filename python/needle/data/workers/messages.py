"""Answers of workers to the parent, over a socket: small records with a pickled slice or error.

worker.py sends one answer per part of a batch, which process_pool.py reads without blocking.
"""

from __future__ import annotations

import pickle
import socket
import struct
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ...errors import WorkerError
from ..samples.pytree import tagged_sample
from ..samples.ticket import NO_TICKET
from .engine import Completed
from .pickling import dumps, pack_value, unpack
from .shared_memory import readable_bytes

# sent by a worker, except DIED, which the pool reports about a worker
READY, DONE, FAILED, DROPPED, BROKEN, DIED = range(6)

_UP = struct.Struct("<qqqQ")  # kind, record, number, bytes of the answer
_PIECE = 1 << 20


Message = tuple[int, int, int, Completed]
"""The kind, the record and number of the answered queue entry, and the answer."""


def send_up(
    channel: socket.socket,
    kind: int,
    record: int = -1,
    number: int = -1,
    answer: Sequence[Any] = (),
) -> None:
    """Send a worker's message; block while the parent does not read. answer: buffers."""
    length = sum(memoryview(part).nbytes for part in answer)
    parts = [_UP.pack(kind, record, number, length), *answer]
    for part in [b"".join(parts)] if length < _PIECE else parts:
        channel.sendall(part)


class AnswerReader:
    """A non-blocking reader of a worker's messages, which buffers incomplete ones.

    who: the name of the worker in error messages.
    """

    def __init__(self, channel: socket.socket, who: str) -> None:
        self._channel, self._who = channel, who
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
            kind, record, number, size = _UP.unpack(self._head)
            if self._body is None:
                self._body = self._room(size)
            else:
                body, self._body = self._body, None
                yield kind, record, number, self._answer(kind, body)

    def _answer(self, kind: int, body: bytearray) -> Completed:
        answer = Completed(NO_TICKET)
        try:
            if kind == DONE:
                answer.made, answer.seconds = unpack(body)
            elif kind in (FAILED, BROKEN):
                answer.error = unpack_error(body, self._who)
        except Exception as error:
            text = f"DataLoader: the answer of {self._who} cannot be unpickled ({error!r})"
            answer.error = WorkerError(text)
            answer.error.__cause__ = error
        return answer

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
    """Return buffers that hold the exception (if picklable), its text and its sample's index."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        shown = repr(error)
    except BaseException:  # the exception's __str__ or __repr__ raises an error
        text = "".join(traceback.format_tb(error.__traceback__))
        shown = f"{type(error).__name__}, which cannot be printed"
    return pack_value((_portable(error), shown, text, tagged_sample(error)))


def unpack_error(payload: bytearray, who: str) -> BaseException:
    """Return the original exception; its ``__cause__`` names worker, sample and traceback."""
    portable, described, text, index = unpack(payload)
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
    """Return a pickle from which ``_rebuilt`` makes an equal exception, or None if it cannot."""
    for take_apart, exact in ((lambda each: dumps((each,)), True), (_in_parts, False)):
        with suppress(BaseException):  # methods of the exception's class may raise anything
            body = take_apart(error)
            made = _rebuilt(body)
            if type(made) is type(error) and (not exact or str(made) == str(error)):
                return body
    return None


def _in_parts(error: BaseException) -> bytes:
    """Pickle an exception that rejects ``args`` in ``__init__`` or has unpicklable parts."""
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
