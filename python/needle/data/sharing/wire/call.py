"""A connection to a server as it begins: questions with one answer each, waited for.

What a task does with its connection afterwards is session.py's.
"""

from __future__ import annotations

import builtins
import socket
import time
from contextlib import suppress
from typing import Any

from .... import errors
from ....errors import LoaderServerError, NeedleError, WorkerError
from .protocol import VERSION, Frame, Inbox, Kind, pack

HANDSHAKE = 60.0  # seconds; the server may have to start workers


class Call:
    """A socket to a server, connected. ``server``: what it has said of itself."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel, self.inbox = channel, Inbox(channel, fds=1)
        self.server: dict[str, Any] = {}

    def greet(self) -> dict[str, Any]:
        """HELLO, and what the server says of itself. LoaderServerError if it is gone."""
        self.server = self.ask(Kind.HELLO, {"version": VERSION}).values
        return self.server

    def ask(self, kind: Kind, values: dict[str, Any] | None = None, raw: bytes = b"") -> Frame:
        """The answer, a frame of the same kind; raises what the server refuses it with."""
        end = time.monotonic() + HANDSHAKE
        try:
            self.channel.settimeout(HANDSHAKE)
            self.channel.sendall(pack(kind, values, raw))
        except OSError:
            pass  # it may have said why
        while time.monotonic() < end and not self.inbox.ended:
            for frame in self.inbox.receive():
                if frame.kind is Kind.ERROR:
                    raise told(frame.values)
                if frame.kind is kind:
                    return frame
        raise lost("it ended the connection" if self.inbox.ended else "it does not answer")

    def close(self) -> None:
        """Ends the connection."""
        self.channel.close()
        self.inbox.close()


def lost(why: str) -> LoaderServerError:
    """The error for a server that is gone."""
    return LoaderServerError(
        f"GlobalDataLoader: the server is lost: {why}; ask for the next batch to go on with "
        "another one, or give fallback=True to read without"
    )


def told(values: dict[str, Any]) -> NeedleError:
    """The error that an ERROR frame tells."""
    found = named_error(values.get("error"), values.get("text"))
    return found if isinstance(found, NeedleError) else LoaderServerError(str(found))


def named_error(name: Any, text: Any) -> Exception:
    """An error of the server's as one of this process, by name where it is needle's or Python's."""
    kind = getattr(errors, str(name), getattr(builtins, str(name), None))
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):  # it wants more than a text
            return kind(str(text))
    return WorkerError(f"GlobalDataLoader: the server failed with {name}: {text}")
