"""A local web page that classifies a drawing or a dropped picture. Called by predict.py.

The server listens on the loopback interface unless told otherwise. It serves the page, the network
as a program for the visitor's GPU, and answers for pictures of limited size; it writes no files.

Limits: a picture has at most 8 MB and 50 million pixels; 256 connections are served at once and
1 024 more wait; a connection that is silent for 20 s is closed. While others wait, each has 2 s to
send its request, so that silent or slow clients cannot block the server.
"""

from __future__ import annotations

import base64
import functools
import io
import ipaddress
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
from numpy.typing import NDArray

from needle.errors import NeedleError

from .classifier import Classifier
from .gpu_program import program_of

try:
    import bottle
except ImportError:
    bottle = None

MOST_BYTES = 8_000_000
MOST_CONNECTIONS, WAITING_CONNECTIONS = 256, 1024
IDLE_SECONDS = 20
SENDING_SECONDS = 2
LINGER_SECONDS = 10
MOST_MAPS, CELL = 16, 48  # feature maps shown per layer, and their side in pixels
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def application(classifier: Classifier, host: str = "127.0.0.1") -> Any:
    """Return the WSGI application.

    ``GET``: the page and its scripts, ``/about`` (classes), ``/program`` and ``/weights`` (for a
    GPU). ``POST`` of a picture: ``/predict`` (the answer), ``/prepare`` (float32 of the network's
    input).
    """
    if bottle is None:
        raise ModuleNotFoundError("--serve: needs the package bottle; pip install 'needle[serve]'")
    app, one_at_a_time = bottle.Bottle(), threading.Lock()
    listed = functools.cache(lambda: program_of(classifier))
    app.default_error_handler = _plain_error

    @app.hook("before_request")  # type: ignore[untyped-decorator]
    def check_sender() -> None:
        _check_sender(bottle.request, host)

    @app.get("/<name:re:|page.js|gpu.js>")  # type: ignore[untyped-decorator]
    def page(name: str) -> Any:
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        bottle.response.set_header(
            "Content-Security-Policy", policy + "script-src 'self'; connect-src 'self'"
        )
        kind = "javascript" if name else "html"
        bottle.response.content_type = f"text/{kind}; charset=utf-8"
        return Path(__file__).with_name(name or "page.html").read_text(encoding="utf-8")

    @app.get("/about")  # type: ignore[untyped-decorator]
    def about() -> dict[str, Any]:
        return {"classes": classifier.classes, "drawing": classifier.source.channels == 1}

    @app.get("/<part:re:program|weights>")  # type: ignore[untyped-decorator]
    def network(part: str) -> Any:
        try:
            with one_at_a_time:
                program, weights = listed()
        except NeedleError as error:
            raise bottle.HTTPResponse(str(error), 501) from error
        if part == "program":
            return program
        bottle.response.content_type = "application/octet-stream"
        return weights

    @app.post("/<what:re:predict|prepare>")  # type: ignore[untyped-decorator]
    def predict(what: str) -> Any:
        try:
            picture = _body(bottle.request)
            if what == "prepare":
                bottle.response.content_type = "application/octet-stream"
                return classifier.prepare(picture).astype("<f4").tobytes()
            with one_at_a_time:
                return answer(classifier, picture)
        except NeedleError as error:
            bottle.response.status = 400
            return {"error": str(error)}
        except bottle.HTTPResponse as refused:
            bottle.response.status = refused.status
            return {"error": refused.body}

    return app


def _plain_error(error: Any) -> str:
    """Return the text of an error page: one sentence, without a traceback."""
    bottle.response.content_type = "text/plain; charset=utf-8"
    return str(error.body)


def _check_sender(request: Any, bound: str) -> None:
    """Refuse requests that another site makes through the user's browser.

    Such a request has a foreign ``Origin``, or a foreign name in ``Host`` (DNS rebinding). A server
    on loopback accepts only loopback's host names. Any other server also accepts ``bound``, the
    machine's name, and numeric addresses, which cannot be rebound.
    """
    name = _host_name("//" + request.get_header("Host", ""))
    if not (name in LOOPBACK or (bound not in LOOPBACK and _is_own(name, bound))):
        raise bottle.HTTPResponse(f"this page does not accept the host name {name!r}", 403)
    origin = request.get_header("Origin")
    if origin is not None and origin != f"http://{request.get_header('Host')}":
        raise bottle.HTTPResponse("this page does not accept requests from other sites", 403)


def _host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:  # brackets that do not match
        return ""


def _is_own(name: str, bound: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        own = socket.gethostname().lower()
        return name in (bound.lower(), own, own + ".local", socket.getfqdn().lower())
    return True


def _body(request: Any) -> bytes:
    """Return the body of a request; HTTPResponse with a sentence if its size is not acceptable."""
    declared = request.get_header("Content-Length", "")
    if request.get_header("Transfer-Encoding") or not declared:
        raise bottle.HTTPResponse("the request must declare its Content-Length", 411)
    if not (declared.isascii() and declared.isdigit()):
        raise bottle.HTTPResponse(f"Content-Length must be a number, got {declared!r:.80}", 400)
    size = int(declared) if len(declared) < 20 else MOST_BYTES + 1
    if size > MOST_BYTES:
        raise bottle.HTTPResponse(f"expected a picture of at most {MOST_BYTES:,} bytes", 413)
    try:
        content: bytes = request.environ["wsgi.input"].read(size)
    except OSError as error:
        raise bottle.HTTPResponse("the connection was silent for too long", 408) from error
    if len(content) != size or not size:
        raise bottle.HTTPResponse(
            f"expected a picture of {size:,} bytes, got {len(content):,}"
            if size
            else "expected a picture, got an empty body",
            400,
        )
    return content


def answer(classifier: Classifier, picture: bytes) -> dict[str, Any]:
    """Return the five most probable classes and the feature maps, as pictures, of a picture."""
    image = classifier.prepare(picture)
    (best,) = classifier.predict(image[None])
    maps = classifier.feature_maps(image)
    return {
        "classes": best.classes,
        "probabilities": best.probabilities,
        "maps": {name: _as_url(tiled(values)) for name, values in maps.items()},
    }


def tiled(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the first maps of (C, H, W) side by side in a grey picture, each scaled to 0..255."""
    cells = []
    for channel in values[:MOST_MAPS]:
        span = float(channel.max() - channel.min())
        grey = (channel - channel.min()) * (255.0 / span if span > 0 else 0.0)
        times = max(1, CELL // max(channel.shape))
        large = np.kron(grey.astype(np.uint8), np.ones((times, times), np.uint8))
        cells.append(np.pad(large, 1, constant_values=128))
    return np.concatenate(cells, axis=1)


class _Handler(WSGIRequestHandler):
    """A handler of one request, which logs nothing and gives up on a silent client."""

    timeout = IDLE_SECONDS

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread for each connection; browsers open idle connections in advance."""

    daemon_threads = True
    request_queue_size = WAITING_CONNECTIONS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        self._begun: dict[socket.socket, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._free.acquire(timeout=0.1):
            for connection, begun in [*self._begun.items()]:
                if time.monotonic() - begun > SENDING_SECONDS:
                    with suppress(OSError):  # closes only the receiving side
                        connection.shutdown(socket.SHUT_RD)
        self._begun[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._begun[request]
            self._free.release()

    def shutdown_request(self, request: socket.socket) -> None:
        """Close a connection, and let the client read the answer first.

        Closing a socket with unread data resets the connection, and a client that still sends its
        body would lose the answer. So the rest of the body is read and dropped, for some seconds.
        """
        try:
            request.shutdown(socket.SHUT_WR)
            request.settimeout(1)
            end = time.monotonic() + LINGER_SECONDS
            while request.recv(1 << 16) and time.monotonic() < end:
                pass
        except OSError:  # the client has disconnected
            pass
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing for a silent or disconnected client, which is no error of the server."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Server6(_Server):
    address_family = socket.AF_INET6


def server_for(classifier: Classifier, host: str, port: int) -> WSGIServer:
    """Return the server, bound to its port (0: a free one) but not running."""
    kind = _Server6 if ":" in host else _Server
    return make_server(host, port, application(classifier, host), kind, _Handler)


def serve(classifier: Classifier, host: str, port: int) -> None:
    """Serve until Ctrl-C.

    Another thread answers, because wsgiref treats a KeyboardInterrupt as an error of the request.
    """
    with server_for(classifier, host, port) as server:
        answering = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        answering.start()
        name = f"[{host}]" if ":" in host else host
        print(f"http://{name}:{server.server_port}/ (Ctrl-C stops it)", flush=True)
        try:
            while answering.is_alive():
                answering.join(1.0)
        finally:
            server.shutdown()


def _as_url(pixels: NDArray[np.uint8]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
