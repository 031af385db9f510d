"""A small object store on this machine, to measure and test with: the S3 requests needle makes.

Also a proxy before another store (``upstream``). Either can be slow and fail as ordered: "reset",
an HTTP status, "truncated", "short", "wrong" bytes, or a "stall". It counts requests, keeps objects
in memory and checks no signature. Not part of needle; sweep.py and tests start it.
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
    """``with LoopbackStore() as store``: ``store.endpoint`` is what AWS_ENDPOINT_URL is to be.

    delay: seconds that each GET of an object waits. objects: by "bucket/key". faults: by key's
    end, a list that is used up one a request. down: every connection is reset. gets: the path
    and range of every GET of an object, most_at_once of them; puts: the path of every PUT.
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
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self, folder: Path, key: str, secret: str) -> dict[str, str]:
        """What leads S3's clients here, and to nobody's own files; ``folder`` gets the cache."""
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
        """What is to go wrong with this request, None for nothing."""
        with self._lock:
            if self.down:
                return "reset"
            for end, ordered in self.faults.items():
                if ordered and path.endswith(end):
                    return ordered.pop(0)
        return None

    def waited(self, path: str, wanted: str | None) -> None:
        """Notes a GET and waits as long as it takes."""
        with self._lock:
            self.gets.append((path, wanted))
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        time.sleep(self.delay)
        with self._lock:
            self._under_way -= 1

    # ---- what a store does -------------------------------------------------------------------

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """The answer to a request; ``target`` is its path with the query."""
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
        """A client that has gone is nothing to be told of."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _forwarded(
    upstream: str, method: str, target: str, headers: dict[str, str], body: bytes
) -> Answer:
    """The request as it came, its Host too, which is signed."""
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
    """The class of handlers that serve ``store``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            path = unquote(urlsplit(self.path).path)
            headers = {k.lower(): v for k, v in self.headers.items()}
            body = b"".join(_body(self.rfile, headers))
            if len(body) < int(headers.get("content-length", 0)):
                return self._reset()  # the client has gone: nothing is stored
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
            """The connection ends as if the machine had gone."""
            now = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            self.close_connection = True
            self.connection.close()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _body(file: Any, headers: dict[str, str]) -> Iterator[bytes]:
    """What was sent, also in chunks, also in those that S3's clients put inside."""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int(file.readline().split(b";")[0], 16):
            yield file.read(size)
            file.readline()
        file.readline()
    else:
        yield file.read(int(headers.get("content-length", 0)))
