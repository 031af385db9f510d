"""A local web page that classifies a drawing or a dropped picture. Called by predict.py.

The server listens on the loopback interface unless told otherwise. A request is a picture of
limited size, its answer JSON; the server writes nothing and serves nothing else.
"""

from __future__ import annotations

import base64
import io
import socket
import threading
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
from numpy.typing import NDArray

from needle.errors import NeedleError

from .classifier import Classifier

try:
    import bottle
except ImportError:
    bottle = None

PAGE = Path(__file__).with_name("page.html")
MOST_BYTES = 8_000_000
MOST_MAPS, CELL = 16, 48  # feature maps shown of a layer, and the side of each in pixels
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def application(classifier: Classifier, host: str = "127.0.0.1") -> Any:
    """Return the WSGI application: ``GET /``, ``GET /about`` and ``POST /predict``."""
    if bottle is None:
        raise ModuleNotFoundError("--serve: needs the package bottle; pip install 'needle[serve]'")
    app, one_at_a_time = bottle.Bottle(), threading.Lock()

    @app.hook("before_request")  # type: ignore[untyped-decorator]
    def check_host() -> None:
        """Refuse requests under another host name (DNS rebinding)."""
        name = bottle.request.get_header("Host", "").rpartition(":")[0]
        if host == "127.0.0.1" and name not in LOOPBACK:
            raise bottle.HTTPResponse("this page answers to this machine only", 403)

    @app.get("/")  # type: ignore[untyped-decorator]
    def page() -> Any:
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        policy += "script-src 'unsafe-inline'; connect-src 'self'"
        bottle.response.set_header("Content-Security-Policy", policy)
        bottle.response.content_type = "text/html; charset=utf-8"
        return PAGE.read_text(encoding="utf-8")

    @app.get("/about")  # type: ignore[untyped-decorator]
    def about() -> dict[str, Any]:
        return {"classes": classifier.classes, "drawing": classifier.source.channels == 1}

    @app.post("/predict")  # type: ignore[untyped-decorator]
    def predict() -> dict[str, Any]:
        if not 0 < bottle.request.content_length <= MOST_BYTES:
            bottle.response.status = 413
            return {"error": f"expected a picture of at most {MOST_BYTES:,} bytes"}
        picture = bottle.request.body.read()
        try:
            with one_at_a_time:
                return answer(classifier, picture)
        except NeedleError as error:
            bottle.response.status = 400
            return {"error": str(error)}

    return app


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


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread for each connection; browsers open idle connections in advance."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


def server_for(classifier: Classifier, host: str, port: int) -> WSGIServer:
    """Return the server, bound to its port (0: a free one) but not running."""
    kind = _Server6 if ":" in host else _Server
    return make_server(host, port, application(classifier, host), kind, _Quiet)


def serve(classifier: Classifier, host: str, port: int) -> None:
    """Serve until Ctrl-C.

    Another thread answers, because wsgiref treats a KeyboardInterrupt as an error of the request.
    """
    with server_for(classifier, host, port) as server:
        answering = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        answering.start()
        print(f"http://{host}:{server.server_port}/ (Ctrl-C stops it)", flush=True)
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
