"""A web server on loopback with injected faults, for the download tests."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """The server's contents and faults; each request for a path consumes one of its faults."""

    content: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list] = field(default_factory=dict)
    etags: bool = True
    ranges: bool = True
    requests: list = field(default_factory=list)

    def etag(self, path):
        return f'"{hash(self.content[path])}"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        site, path = self.server.site, self.path
        site.requests.append((path, self.headers.get("Range"), self.headers.get("If-Range")))
        waiting = site.faults.get(path) or [None]
        fault = waiting[0] if len(waiting) == 1 and waiting[0] is None else waiting.pop(0)
        if isinstance(fault, int) and fault >= 400:
            return self.send_error(fault)
        if path not in site.content:
            return self.send_error(404)
        body, start = site.content[path], 0
        wanted = self.headers.get("Range")
        same = self.headers.get("If-Range") in (None, site.etag(path))
        if site.ranges and wanted and same:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            shift = 1 if fault == "wrong range" else 0
            range_ = f"bytes {start + shift}-{len(body) - 1}/{len(body)}"
            self.send_header("Content-Range", range_)
        else:
            self.send_response(200)
        if site.etags:
            self.send_header("ETag", site.etag(path))
        self.send_body(body[start:], fault)

    def send_body(self, body, fault):
        length = 2**40 if fault == "huge" else len(body)
        if fault == "no length":
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if isinstance(fault, tuple):  # ("cut", n): send n bytes, then close
            body = body[: fault[1]]
        if fault == "stall":
            self.server.stalled.wait(5)
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *_):
        pass


class FaultServer:
    """A context manager: ``with FaultServer() as (address, site)``."""

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.site = Site()
        self.server.stalled = threading.Event()
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_port}", self.server.site

    def __exit__(self, *_):
        self.server.stalled.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
