"""HTTP responses with a time limit for the headers and for each piece of the body.

The timeout of a socket applies to each recv call, so a server that sends one byte at a time would
never exceed it. Called by download.py.
"""

from __future__ import annotations

import http.client
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from threading import Event, Timer
from typing import Any
from urllib.request import Request

__all__ = ["HTTPException", "Request", "open_limited"]


class _Answer(http.client.HTTPResponse):
    """A response that limits its headers, and each ``read1``, to the socket's timeout."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._limited = partial(_limited, sock, sock.gettimeout())

    def begin(self) -> None:
        with self._limited():
            super().begin()

    def read1(self, n: int = -1) -> bytes:
        with self._limited():
            return super().read1(n)


@contextmanager
def _limited(sock: socket.socket, seconds: float | None) -> Iterator[None]:
    """Shut the socket down after ``seconds`` and raise TimeoutError."""
    late = Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = Timer(0.0 if seconds is None else seconds, end)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if late.is_set():
            raise TimeoutError(f"no whole answer within {seconds:g} s")


class _Limits(urllib.request.AbstractHTTPHandler):
    def do_open(self, http_class: Callable[..., Any], *args: Any, **options: Any) -> Any:
        def connection(*args: Any, **options: Any) -> Any:
            made = http_class(*args, **options)
            made.response_class = _Answer
            return made

        return super().do_open(connection, *args, **options)


class _Http(_Limits, urllib.request.HTTPHandler):
    pass


class _Https(_Limits, urllib.request.HTTPSHandler):
    pass


def open_limited(request: Request, timeout: float) -> Any:
    """Return the HTTP response, as ``urllib.request.urlopen`` does.

    timeout: seconds for the connection, for the headers, and for each ``read1`` of the response.
    """
    return urllib.request.build_opener(_Http, _Https).open(request, timeout=timeout)
