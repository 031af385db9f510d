"""Test that apps/predict.py classifies the run's test images as the run did."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps import predict as program
from apps import train
from apps.prediction.classifier import Classifier
from needle import data
from tests.apps.test_predict_page import ask

for package in (*train.PACKAGES, "PIL"):
    pytest.importorskip(package)

ROOT = Path(__file__).resolve().parents[2]


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
    """Compare a preprocessed picture of the data set's size with the run's own input.

    They agree up to rounding, since PNG stores the data set's 17 grey levels in 256."""
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
