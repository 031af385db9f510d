"""Test the page of apps/predict.py --serve: what it answers and what it refuses."""

import base64
import http.client
import io
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import numpy as np
import pytest

import needle
from apps.prediction import server as server_module
from apps.prediction.classifier import Classifier
from apps.prediction.server import application, server_for, tiled

ROOT = Path(__file__).resolve().parents[2]


def test_maps_lie_side_by_side_from_black_to_white() -> None:
    picture = tiled(np.stack([np.eye(4), np.zeros((4, 4))]))
    assert picture.shape == (50, 100) and picture.dtype == np.uint8
    assert {0, 255} <= set(np.unique(picture[:, :50])) and set(np.unique(picture[:, 50:])) == {
        0,
        128,
    }


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[int]:
    pytest.importorskip("bottle")
    with server_for(Classifier(run / "model.safetensors"), "127.0.0.1", 0) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served.server_port
        served.shutdown()
        thread.join()


def reply_of(
    port: int, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers |= {"Content-Length": str(len(body))}
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply, content


def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    reply, content = reply_of(port, method, path, body, **headers)
    return reply.status, content


def test_a_connection_that_says_nothing_holds_up_nobody(server: int) -> None:
    """Test that idle connections, which browsers open in advance, do not block the server."""
    with socket.create_connection(("127.0.0.1", server)):
        assert ask(server, "GET", "/about")[0] == 200


def test_a_drawing_is_answered_with_classes_and_maps(server: int, pictures: Path) -> None:
    from PIL import Image

    path = min(pictures.glob("*-0.png"))
    status, content = ask(server, "POST", "/predict", path.read_bytes())
    found = json.loads(content)
    assert status == 200 and found["classes"][0] == "0" and len(found["probabilities"]) == 5
    assert list(found["maps"]) == ["features.0", "features.3"]
    for name, channels in (("features.0", 6), ("features.3", 16)):
        kind, _, encoded = found["maps"][name].partition(",")
        picture = Image.open(io.BytesIO(base64.b64decode(encoded)))
        assert kind == "data:image/png;base64" and picture.width % channels == 0


def test_the_page_and_what_it_asks_first(server: int) -> None:
    status, content = ask(server, "GET", "/")
    assert status == 200 and b"<canvas" in content
    assert b"http://" not in content and b"https://" not in content  # no external resources
    about = json.loads(ask(server, "GET", "/about")[1])
    assert about == {"classes": [str(i) for i in range(10)], "drawing": True}


def test_the_page_allows_its_own_scripts_alone(server: int) -> None:
    for path, kind in (("/", "html"), ("/page.js", "javascript"), ("/gpu.js", "javascript")):
        reply, content = reply_of(server, "GET", path)
        assert reply.status == 200 and len(content) > 1000
        assert reply.getheader("Content-Type") == f"text/{kind}; charset=utf-8"
        policy = str(reply.getheader("Content-Security-Policy"))
        assert "script-src 'self';" in policy and policy.startswith("default-src 'none'")


def test_the_prepared_picture_is_that_of_the_classifier(
    server: int, run: Path, pictures: Path
) -> None:
    path = min(pictures.glob("*-0.png"))
    status, content = ask(server, "POST", "/prepare", path.read_bytes())
    expected = Classifier(run / "model.safetensors").prepare(path)
    np.testing.assert_array_equal(np.frombuffer(content, "<f4"), expected.ravel())
    status, content = ask(server, "POST", "/prepare", b"no picture")
    assert status == 400 and "the picture sent" in json.loads(content)["error"]


@pytest.mark.skipif(needle.backend_selection.BACKEND != "nd", reason="needs needle's own arrays")
def test_the_network_is_served_for_a_gpu(server: int, run: Path) -> None:
    """Test the list of commands, which test_listing.py and test_page.py (in a browser) run."""
    listed = json.loads(ask(server, "GET", "/program")[1])
    weights = ask(server, "GET", "/weights")[1]
    model = Classifier(run / "model.safetensors").model
    assert len(weights) == 4 * sum(p.size for p in model.parameters())
    assert [part[2] for part in listed["weights"]][1:] == [p[3] for p in listed["weights"]][:-1]
    shapes = {layer["name"]: layer["shape"] for layer in listed["layers"]}
    assert shapes["features.0"] == [1, 6, 28, 28] and shapes["classifier.5"] == [1, 10]
    assert len(shapes) == 12 and listed["output"]["shape"] == [1, 10]
    ends = [layer["commands"] for layer in listed["layers"]]
    assert all(first < last for first, last in ends) and ends == sorted(ends)
    assert all("@compute" in source for source in listed["sources"])


@pytest.mark.skipif(needle.backend_selection.BACKEND == "nd", reason="there are kernels")
def test_without_kernels_the_page_is_told_why(server: int) -> None:
    status, content = ask(server, "GET", "/program")
    assert status == 501 and b"NEEDLE_BACKEND=np has no kernels for a GPU" in content


def test_the_page_refuses_what_it_should(server: int) -> None:
    status, content = ask(server, "POST", "/predict", b"no picture")
    assert status == 400 and "the picture sent" in json.loads(content)["error"]
    status, content = ask(server, "POST", "/predict")
    assert status == 400 and "an empty body" in json.loads(content)["error"]
    assert ask(server, "GET", "/predict")[0] == 405
    assert ask(server, "GET", "/../../etc/passwd")[0] == 404


@pytest.mark.parametrize(
    ("lines", "status", "sentence"),
    [
        ("Content-Length: abc", 400, "Content-Length must be a number, got 'abc'"),
        ("Content-Length: -5", 400, "Content-Length must be a number, got '-5'"),
        ("Content-Length: 9" + 30 * "0", 413, "at most 8,000,000 bytes"),
        ("X-Nothing: 1", 411, "must declare its Content-Length"),
        ("Transfer-Encoding: chunked", 411, "must declare its Content-Length"),
        ("Content-Length: 9", 400, "of 9 bytes, got 0"),
    ],
)
def test_a_bad_size_of_the_body_is_answered_with_a_sentence(
    server: int, lines: str, status: int, sentence: str
) -> None:
    request = f"POST /predict HTTP/1.1\r\nHost: localhost:{server}\r\n{lines}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server), timeout=30) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert reply.status == status and sentence in json.loads(reply.read())["error"]


def test_a_client_that_sends_too_much_sees_the_answer(server: int) -> None:
    for _ in range(5):
        status, content = ask(server, "POST", "/predict", bytes(30_000_000))
        assert status == 413 and b"at most 8,000,000 bytes" in content


def test_two_hundred_requests_at_once_are_answered(server: int, pictures: Path) -> None:
    picture = min(pictures.glob("*-3.png")).read_bytes()
    with ThreadPoolExecutor(200) as clients:
        answers = list(clients.map(lambda _: ask(server, "POST", "/predict", picture), range(200)))
    assert {status for status, _ in answers} == {200} and len({found for _, found in answers}) == 1


@pytest.mark.parametrize(
    ("bound", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1:8000", 200),
        ("127.0.0.1", "[::1]:8000", 200),
        ("127.0.0.1", "elsewhere.example:80", 403),
        ("127.0.0.1", "192.0.2.1", 403),
        ("127.0.0.1", "", 403),
        ("localhost", "localhost", 200),
        ("localhost", "elsewhere.example", 403),
        ("0.0.0.0", "192.0.2.1:8000", 200),
        ("0.0.0.0", "elsewhere.example", 403),
        ("machine.example", "machine.example:8000", 200),
    ],
)
def test_the_page_answers_to_its_own_names_only(
    run: Path, bound: str, host: str, status: int
) -> None:
    pytest.importorskip("bottle")
    answered = []
    about = {"PATH_INFO": "/about", "HTTP_HOST": host}
    setup_testing_defaults(about)
    app = application(Classifier(run / "model.safetensors"), bound)
    b"".join(app(about, lambda line, *_: answered.append(int(line[:3]))))
    assert answered == [status]


def test_other_sites_cannot_post(server: int, pictures: Path) -> None:
    picture = min(pictures.glob("*-3.png")).read_bytes()
    for origin, expected in ((f"http://127.0.0.1:{server}", 200), ("http://other.example", 403)):
        assert ask(server, "POST", "/predict", picture, Origin=origin)[0] == expected


def test_clients_that_send_little_by_little_keep_nobody_out(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SENDING_SECONDS", 0.1)
    done = threading.Event()
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server)))
            for _ in range(server_module.MOST_CONNECTIONS + 20)
        ]

        def dribble() -> None:
            while not done.wait(0.05):
                for connection in connections[::2]:  # the other connections stay idle
                    with suppress(OSError):
                        connection.send(b"x")

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            assert ask(server, "GET", "/about")[0] == 200
        finally:
            done.set()
            thread.join()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_program_serves_until_it_is_stopped(run: Path, host: str) -> None:
    pytest.importorskip("bottle")
    import signal

    if ":" in host:
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6")
    arguments = ["--checkpoint", str(run / "model.safetensors"), "--serve", "--port", "0"]
    arguments += ["--host", host]
    process = subprocess.Popen(
        [sys.executable, "-m", "apps.predict", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        page = process.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{page}about", timeout=30) as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and "Traceback" not in errors
