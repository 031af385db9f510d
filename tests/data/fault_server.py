"""A web server on loopback with injected faults, for the download tests."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

from remote.hostile_server import HostileServer, answer


@dataclass
class Site:
    """The server's contents and faults; each request for a path consumes one of its faults."""

    content: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list] = field(default_factory=dict)
    etags: bool = True
    ranges: bool = True
    requests: list = field(default_factory=list)
    closed: Event | None = None

    def etag(self, path):
        return f'"{hash(self.content[path])}"'

    def reply(self, path, headers):
        wanted, condition = headers.get("range"), headers.get("if-range")
        self.requests.append((path, wanted, condition))
        waiting = self.faults.get(path) or [None]
        fault = waiting[0] if len(waiting) == 1 and waiting[0] is None else waiting.pop(0)
        if isinstance(fault, int) or path not in self.content:
            return answer(b"", f"{fault or 404} Fault")
        body, start, lines = self.content[path], 0, ["200 OK"]
        if self.ranges and wanted and condition in (None, self.etag(path)):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                return answer(b"", "416 Range", f"Content-Range: bytes */{len(body)}")
            place = start + (fault == "wrong range")
            lines = ["206 Part", f"Content-Range: bytes {place}-{len(body) - 1}/{len(body)}"]
        if self.etags:
            lines.append(f"ETag: {self.etag(path)}")
        if fault != "no length":
            length = 2**40 if fault == "huge" else len(body) - start
            lines.append(f"Content-Length: {length}")
        return self._sent(lines, body[start:], fault)

    def _sent(self, lines, body, fault):
        yield "\r\n".join(
            [f"HTTP/1.1 {lines[0]}", *lines[1:], "Connection: close\r\n\r\n"]
        ).encode()
        if fault == "stall":
            self.closed.wait(5)
        yield body[: fault[1]] if isinstance(fault, tuple) else body  # ("cut", n): n bytes


@contextmanager
def fault_server():
    """Serve a site: ``with fault_server() as (address, site)``."""
    site = Site()
    with HostileServer(site.reply) as server:
        site.closed = server.closed
        yield server.address, site
