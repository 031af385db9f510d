"""Tests of apps/predict.py: it classifies the run's test images as the run did.

The page answers.
"""

import base64
import http.client
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.request
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import numpy as np
import pytest

import needle
from apps import predict as program
from apps import train
from apps.prediction import server as server_module
from apps.prediction.classifier import Classifier
from apps.prediction.server import application, server_for, tiled
from needle import data

for package in (*train.PACKAGES, "PIL"):
    pytest.importorskip(package)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "write_report", lambda *arguments: None)
        assert train.main(["--epochs", "3", "--ema", "0.9", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the test digits as enlarged files, which are downscaled when they are read."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    digits = data.Digits(train=False, layout="HWC")
    for i in range(60):
        image, label = digits[i]
        grey = np.round(image[..., 0] * 255).astype(np.uint8)
        large = np.kron(grey, np.ones((8, 8), np.uint8))
        Image.fromarray(large).save(folder / f"{i:03}-{label}.png")
    (folder / "notes.txt").write_text("no picture")
    return folder


@pytest.mark.parametrize("name", ["model", "best", "checkpoint"])
def test_pictures_are_seen_as_in_training(run: Path, pictures: Path, name: str) -> None:
    classifier = Classifier(run / f"{name}.safetensors")
    paths = sorted(pictures.glob("*.png"))
    images = np.stack([classifier.prepare(path) for path in paths])
    answers = classifier.predict(images)
    named = [answer.classes[0] for answer in answers]
    assert np.mean([a == path.stem[-1] for a, path in zip(named, paths, strict=True)]) >= 0.9
    for answer in answers:
        assert len(answer.classes) == 5 and answer.probabilities[0] == max(answer.probabilities)
        assert 0 < sum(answer.probabilities) <= 1 + 1e-9
    whole = classifier.predict(images[:1], count=10)[0]
    assert sum(whole.probabilities) == pytest.approx(1.0)


def test_preparation_is_that_of_the_data_set(run: Path, tmp_path: Path) -> None:
    """Compare a picture of the data set's size with the run's preparation.

    They agree up to the rounding of the data set's 17 grey levels to PNG's 256."""
    from PIL import Image

    from apps.training.sources import SOURCES, open_split

    classifier, source = Classifier(run / "model.safetensors"), SOURCES["digits"]
    split = open_split(source, source.open(Path(), False, False), (32, 32))
    raw = data.Digits(train=False, layout="HWC")[0][0][..., 0]
    Image.fromarray(np.round(raw * 255).astype(np.uint8)).save(tmp_path / "digit.png")
    found = classifier.prepare(tmp_path / "digit.png")
    wanted = split.images[0].transpose(2, 0, 1)
    np.testing.assert_allclose(found, wanted, atol=0.5 / 255 / 0.376 + 1e-6)
    inverted = classifier.prepare(tmp_path / "digit.png", invert=True)
    np.testing.assert_allclose(found + inverted, (1 - 2 * 0.305) / 0.376, atol=1e-5)


def test_a_photograph_is_seen_upright(run: Path, pictures: Path, tmp_path: Path) -> None:
    from PIL import Image

    classifier, path = Classifier(run / "model.safetensors"), min(pictures.glob("*-3.png"))
    exif, photograph = Image.Exif(), tmp_path / "turned.png"
    exif[0x0112] = 6
    stored = Image.open(path).transpose(Image.Transpose.ROTATE_90)
    stored.save(photograph, exif=exif)
    for given in (photograph, photograph.read_bytes()):
        np.testing.assert_array_equal(classifier.prepare(given), classifier.prepare(path))


def test_the_averaged_weights_are_taken(run: Path) -> None:
    models = [Classifier(run / f"{n}.safetensors").model for n in ("model", "checkpoint")]
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_folder_on_the_command_line(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = ["--checkpoint", str(run / "best.safetensors")]
    assert program.main([*weights, str(pictures), "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 60 and all(line.count("%") == 3 for line in lines)
    assert lines[0].startswith(f"{pictures / '000-'}")
    asked = ["a/x.JPG", "b.tiff", "c.ppm"]
    for name in (*asked, ".ipynb_checkpoints/b.png", "a/__MACOSX/x.jpg", "d.heic"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(min(pictures.glob("*.png")).read_bytes())
    assert program.main([*weights, str(tmp_path)]) == 0
    named = [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines()]
    assert named == [str(tmp_path / name) for name in asked]


def test_what_cannot_be_read_is_said_and_the_rest_shown(
    run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = ["--checkpoint", str(run / "model.safetensors")]
    given = [str(pictures / "notes.txt"), "nowhere.png", str(min(pictures.glob("*.png")))]
    assert program.main([*weights, *given]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert "notes.txt" in said.err and "nowhere.png" in said.err and "Traceback" not in said.err


def test_a_picture_that_declares_a_huge_size_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    Image.new("1", (10_000, 10_000)).save(tmp_path / "huge.png")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        weights = ["--checkpoint", str(run / "model.safetensors")]
        assert program.main([*weights, str(tmp_path / "huge.png")]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and "50000000" in line and not told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "nowhere", "a.png"], "no file at nowhere"),
        (["--checkpoint", "{other}", "a.png"], "does not record its model and data set"),
        (["--checkpoint", "{model}"], "give either pictures, --serve or --onnx"),
        (["--checkpoint", "{model}", "{empty}"], "holds no pictures"),
    ],
)
def test_mistakes_are_one_line(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    needle.io.save(tmp_path / "other.safetensors", {"a": np.zeros(1)})
    (tmp_path / "empty").mkdir()
    places = {"model": run / "model.safetensors", "other": tmp_path / "other.safetensors"}
    filled = [text.format(**places, empty=tmp_path / "empty") for text in arguments]
    assert program.main(filled) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize(
    "damage",
    [
        {"classes": f"[{'0,' * 10**6}0]"},
        {"classes": "null"},
        {"classes": "[" * 10**5},
        *({"image_size": size} for size in ("x", [28], float("inf"), 10**6, -1)),
        {"model": "unknown"},
        {"data": ["digits"]},
    ],
    ids=lambda damage: str(damage)[:30],
)
def test_metadata_that_do_not_fit_the_arrays_are_refused_before_the_model_is_made(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: dict[str, Any]
) -> None:
    arrays, about = needle.io.load_with_metadata(run / "model.safetensors")
    if "classes" in damage:
        about |= damage
    else:
        about["settings"] = json.dumps(json.loads(about["settings"]) | damage)
    needle.io.save(tmp_path / "damaged.safetensors", arrays, about)
    assert program.main(["--checkpoint", str(tmp_path / "damaged.safetensors"), "a.png"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")


# ---- the page ------------------------------------------------------------------------------------


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
    """Test idle connections, which browsers open in advance."""
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
    """Test the listing; test_listing.py runs it on an adapter, and test_page.py in a browser."""
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
                for connection in connections[::2]:  # the others say nothing
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


# ---- the page docs/notebook_to_web.md ------------------------------------------------------------


def test_a_model_in_memory_answers_as_its_file(run: Path, pictures: Path) -> None:
    whole = Classifier(run / "model.safetensors")
    whole.model.train()
    own = Classifier.of(whole.model, tuple(whole.classes), "digits", (32, 32))
    images = np.stack([own.prepare(path) for path in sorted(pictures.glob("*.png"))[:5]])
    assert own.predict(images) == Classifier(run / "model.safetensors").predict(images)
    assert own.input_shape == (1, *images.shape[1:])


def test_an_onnx_file_gives_the_logits_of_the_model(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    checkpoint, file = str(run / "best.safetensors"), tmp_path / "digits.onnx"
    assert program.main(["--checkpoint", checkpoint, "--onnx", str(file)]) == 0
    said = capsys.readouterr().out
    assert f"{file}: input (N, 1, 32, 32) float32, pixels in 0..1, of each" in said
    assert "minus (0.305,) and divided by (0.376,); output (N, 10)" in said
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    classifier = Classifier(Path(checkpoint))
    images = np.stack([classifier.prepare(path) for path in sorted(pictures.glob("*.png"))[:7]])
    (logits,) = session.run(None, {session.get_inputs()[0].name: images})
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for row, answer in zip(shares, classifier.predict(images, count=10), strict=True):
        found = dict(zip(answer.classes, answer.probabilities))
        np.testing.assert_allclose(row, [found[str(i)] for i in range(10)], atol=2e-5)
    assert program.main(["--checkpoint", checkpoint, "--onnx", str(file), "--serve"]) == 1
    assert "give either pictures, --serve or --onnx" in capsys.readouterr().err


def commands_of(page: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_the_commands_of_the_page_from_notebook_to_web(run: Path, tmp_path: Path) -> None:
    """Run every command of the page in a folder that has its files."""
    pytest.importorskip("onnx")
    from PIL import Image

    (tmp_path / "apps").symlink_to(ROOT / "apps")
    (tmp_path / "digits.safetensors").write_bytes((run / "model.safetensors").read_bytes())
    image, label = data.Digits(train=False, layout="HWC")[3]
    Image.fromarray(np.uint8(image[..., 0] * 255)).resize((200, 200)).save(tmp_path / "digit.png")
    page = (ROOT / "docs" / "notebook_to_web.md").read_text(encoding="utf-8")
    python, predictions = [sys.executable, "-u"], []
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT / "python")}}
    serving: list[subprocess.Popen[str]] = []
    try:
        for line in commands_of(page):
            name, *arguments = line.replace("--port 8000", "--port 0").split()
            if "--serve" in arguments:
                process = subprocess.Popen(
                    [*python, *arguments], stdout=subprocess.PIPE, text=True, **options
                )
                serving.append(process)
                assert process.stdout is not None
                found = re.match(r"http://127.0.0.1:(\d+)/", process.stdout.readline())
                assert found
                port = int(found[1])
            elif name == "curl":
                _, answer = ask(port, "POST", "/predict", (tmp_path / "digit.png").read_bytes())
                assert json.loads(answer)["classes"][0] == str(label)
            else:
                assert name == "python"
                done = subprocess.run(
                    [*python, *arguments], capture_output=True, text=True, **options
                )
                assert done.returncode == 0, done.stderr
                predictions += re.findall(r"^digit.png: (\d)", done.stdout, re.MULTILINE)
    finally:
        for process in serving:
            process.kill()
            process.communicate(timeout=60)
    assert predictions == [str(label)] * 2 and len(serving) == 1
    assert (tmp_path / "digits.onnx").stat().st_size > 100_000
    assert (tmp_path / "runs" / "digits" / "report.html").exists()
