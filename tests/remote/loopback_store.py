"""A small object store on this machine for tests; it answers needle's S3 requests.

It can also be a proxy for another store (``upstream``). It can delay requests and inject faults:
"reset", an HTTP status, "truncated", "short", "wrong" bytes, or a "stall". It counts requests,
keeps objects in memory and checks no signatures.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "expect"}
Answer = tuple[int, dict[str, str], bytes]


class LoopbackStore:
    """``with LoopbackStore() as store``: ``store.endpoint`` is the value for AWS_ENDPOINT_URL.

    delay: seconds added to each GET of an object. objects: by "bucket/key". faults: lists by the
    end of a key; each request consumes one. down: reset every connection. gets: path and range of
    every GET of an object. most_at_once: largest number of simultaneous GETs. puts: path of every
    PUT.
    """

    def __init__(self, delay: float = 0.0, upstream: str | None = None, page: int = PAGE) -> None:
        self.delay, self.upstream, self.page = delay, upstream, page
        self.objects: dict[str, bytes] = {}
        self.faults: dict[str, list[Any]] = {}
        self.down = False
        self.gets: list[tuple[str, str | None]] = []
        self.puts: list[str] = []
        self.most_at_once = 0
        self._under_way = 0
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self, folder: Path, key: str, secret: str) -> dict[str, str]:
        """Return the environment that directs S3 clients here. folder: for needle's cache."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": str(folder / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
            "NEEDLE_CACHE_DIR": str(folder / "cache"),
        }

    def __enter__(self) -> LoopbackStore:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fault(self, path: str) -> Any:
        """Return the fault of this request; None for none."""
        with self._lock:
            if self.down:
                return "reset"
            for end, ordered in self.faults.items():
                if ordered and path.endswith(end):
                    return ordered.pop(0)
        return None

    def waited(self, path: str, wanted: str | None) -> None:
        """Record a GET and wait for the delay."""
        with self._lock:
            self.gets.append((path, wanted))
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        time.sleep(self.delay)
        with self._lock:
            self._under_way -= 1

    # ---- requests ----------------------------------------------------------------------------

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Return the answer to a request. target: its path with the query."""
        if self.upstream is not None:
            return _forwarded(self.upstream, method, target, headers, body)
        parts = urlsplit(target)
        path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query)
        if method == "PUT":
            self.objects[path] = body
            return 200, {"ETag": _etag(body)}, b""
        if "list-type" in query or not path.partition("/")[2]:
            return self._list(path.strip("/"), query)
        if path not in self.objects:
            error = "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
            return 404, {}, error.encode()
        return self._got(self.objects[path], headers)

    def _got(self, content: bytes, headers: dict[str, str]) -> Answer:
        etag = _etag(content)
        if headers.get("if-match", etag) != etag:
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        wanted = headers.get("range")
        if wanted is None:
            return 200, {"ETag": etag}, content
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        where = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        return 206, {"ETag": etag, "Content-Range": where}, part

    def _list(self, bucket: str, query: dict[str, list[str]]) -> Answer:
        prefix, after = (query.get(k, [""])[0] for k in ("prefix", "continuation-token"))
        start = f"{bucket}/"
        keys = sorted(key[len(start) :] for key in self.objects if key.startswith(start + prefix))
        keys = [key for key in keys if key > after]
        shown = keys[: self.page]
        rows = "".join(self._row(start, key) for key in shown)
        more = (
            f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>"
            if (len(keys) > self.page)
            else ""
        )
        text = (
            f"<ListBucketResult><IsTruncated>{'true' if more else 'false'}</IsTruncated>"
            f"{more}{rows}</ListBucketResult>"
        )
        return 200, {"Content-Type": "application/xml"}, text.encode()

    def _row(self, start: str, key: str) -> str:
        content = self.objects[start + key]
        return (
            f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
            f"<ETag>{escape(_etag(content))}</ETag></Contents>"
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of clients that have disconnected."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _forwarded(
    upstream: str, method: str, target: str, headers: dict[str, str], body: bytes
) -> Answer:
    """Forward the request with its original Host header, which the signature covers."""
    parts = urlsplit(upstream)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        sent = {k: v for k, v in headers.items() if k not in HOP_BY_HOP}
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in {**sent, "content-length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        found = connection.getresponse()
        content = found.read()
        kept = {k: v for k, v in found.getheaders() if k.lower() not in HOP_BY_HOP}
        return found.status, kept, content
    finally:
        connection.close()


def _handler_of(store: LoopbackStore) -> type[BaseHTTPRequestHandler]:
    """Return the class of handlers that serve ``store``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            path = unquote(urlsplit(self.path).path)
            headers = {k.lower(): v for k, v in self.headers.items()}
            body = b"".join(_body(self.rfile, headers))
            if len(body) < int(headers.get("content-length", 0)):
                return self._reset()  # the client disconnected: store nothing
            is_object = "list-type" not in self.path
            if self.command == "GET" and is_object:
                store.waited(path, headers.get("range"))
            elif self.command == "PUT":
                store.puts.append(path)
            fault = store.fault(path)
            if fault == "reset":
                return self._reset()
            if fault == "stall":
                store.released.wait(30)
                return self._reset()
            if isinstance(fault, int):
                answer: Answer = fault, {}, b"<Error><Code>Ordered</Code></Error>"
            else:
                answer = store.answer(self.command, self.path, headers, body)
            self._send(*answer, fault=fault)

        do_GET = do_PUT = do_HEAD = _serve

        def _send(self, status: int, headers: dict[str, str], body: bytes, fault: Any) -> None:
            if fault == "wrong":
                body = bytes(255 - byte for byte in body)
            if fault == "short":
                body = body[:-1]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault == "truncated":
                self.wfile.write(body[: len(body) // 2])
                return self._reset()
            self.wfile.write(body)

        def _reset(self) -> None:
            """Reset the connection, as if the machine had failed."""
            now = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            self.close_connection = True
            self.connection.close()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _body(file: Any, headers: dict[str, str]) -> Iterator[bytes]:
    """Return the body of a request, also if it is chunked or aws-chunked."""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int(file.readline().split(b";")[0], 16):
            yield file.read(size)
            file.readline()
        file.readline()
    else:
        yield file.read(int(headers.get("content-length", 0)))
