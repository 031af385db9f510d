"""A page on this machine where one draws, or drops a picture, and sees what the model makes of it.

Bound to the loopback unless told otherwise. A request is a picture of limited size, the answer
JSON; nothing is written and nothing else is served.
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
MOST_MAPS, CELL = 16, 48  # maps of a layer, and the pixels of a side of each
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def application(classifier: Classifier, host: str = "127.0.0.1") -> Any:
    """The WSGI application: ``GET /``, ``GET /about`` and ``POST /predict``."""
    if bottle is None:
        raise ModuleNotFoundError(
            "--serve: the page needs the package bottle; pip install 'needle[serve]'"
        )
    app, one_at_a_time = bottle.Bottle(), threading.Lock()

    @app.hook("before_request")  # type: ignore[untyped-decorator]
    def only_by_its_own_name() -> None:
        """A page elsewhere must not reach it under a name of its own (DNS rebinding)."""
        name = bottle.request.get_header("Host", "").rpartition(":")[0]
        if host == "127.0.0.1" and name not in LOOPBACK:
            raise bottle.HTTPResponse("this page is for this machine", 403)

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
            return {"error": f"a picture of at most {MOST_BYTES:,} bytes is expected"}
        picture = bottle.request.body.read()
        try:
            with one_at_a_time:
                return answer(classifier, picture)
        except NeedleError as error:
            bottle.response.status = 400
            return {"error": str(error)}

    return app


def answer(classifier: Classifier, picture: bytes) -> dict[str, Any]:
    """The five most probable classes, and the feature maps as pictures, for a picture's bytes."""
    image = classifier.prepare(picture)
    (best,) = classifier.predict(image[None])
    maps = classifier.feature_maps(image)
    return {
        "classes": best.classes,
        "probabilities": best.probabilities,
        "maps": {name: _as_url(tiled(values)) for name, values in maps.items()},
    }


def tiled(values: NDArray[Any]) -> NDArray[np.uint8]:
    """(C, H, W) -> one grey picture of the first maps in a row, each from its least to its most."""
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
    """A thread a connection: browsers open some ahead that say nothing for long."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


def server_for(classifier: Classifier, host: str, port: int) -> WSGIServer:
    """The server, bound to its port (0: any that is free) but not running."""
    kind = _Server6 if ":" in host else _Server
    return make_server(host, port, application(classifier, host), kind, _Quiet)


def serve(classifier: Classifier, host: str, port: int) -> None:
    """Serves until Ctrl-C.

    Another thread answers: wsgiref takes a KeyboardInterrupt in a request for the request's error.
    """
    with server_for(classifier, host, port) as server:
        answering = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        answering.start()
        print(f"http://{host}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
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
