"""A server on loopback that answers with arbitrary bytes, to test a reader's checks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

Reply = Callable[[str, dict[str, str]], Iterator[bytes]]
"""Maps the path and the headers (lower case) of a request to the answer's chunks."""


class HostileServer:
    """``with HostileServer(reply) as server``; ``requests`` lists every path and its headers."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> HostileServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closed.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def asked(self, end: str) -> int:
        """Return the number of requests whose path ends like this."""
        return sum(path.endswith(end) for path, _ in self.requests)

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                path = lines.readline().split()[1].decode()
                headers = {}
                while line := lines.readline().decode("latin1").strip():
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                self.requests.append((path, headers))
                for piece in self.reply(path, headers):
                    if self.closed.is_set():
                        return
                    connection.sendall(piece)
            except (OSError, IndexError):
                return


def answer(body: bytes, status: str = "200 OK", *headers: str) -> Iterator[bytes]:
    """Yield a complete answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    yield "\r\n".join([*lines, "", ""]).encode() + body


def endless(*headers: str, piece: bytes = bytes(1 << 16)) -> Iterator[bytes]:
    """Yield an infinite answer."""
    yield "\r\n".join(["HTTP/1.1 200 OK", "Connection: close", *headers, "", ""]).encode()
    while True:
        yield piece
