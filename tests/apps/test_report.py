"""Test that a run's numbers can be read back from its figures and its page."""

import base64
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import needle
from apps.training import figures, report
from apps.training.evaluation import Evaluation
from needle import nn
from needle.backend_selection import BACKEND
from tests.apps.test_course_portrait import Outline

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.skipif(BACKEND != "nd", reason="pictures are the same in both modes")
Image = pytest.importorskip("PIL.Image")
HISTORY = [
    {
        "epoch": epoch,
        "train_loss": 2.0 / epoch,
        "test_loss": 3.0 / epoch,
        "lr": 0.1 / epoch,
        "train_accuracy": epoch / 10,
        "test_accuracy": epoch / 20,
        "train_seconds": 10.0 + epoch,
        "test_seconds": 1.0,
        "loading_seconds": 2.0 * epoch,
        "images_per_second": 100.0 * epoch,
    }
    for epoch in (1, 2, 3)
]
CLASSES = ("ant", "bee", "cat")
LOGITS = np.eye(3)[[0, 1, 1, 2, 0, 1]] * [[1.0], [1], [2], [1], [5], [1]]
FOUND = Evaluation(0.5, LOGITS, np.array([0, 1, 2, 2, 1, 1]))
PIXELS = np.linspace(0, 1, 6 * 2 * 4, dtype=np.float32).reshape(6, 2, 4, 1)
FACTS = {
    "command": ["train.py", "--out", "a b", "--resume", "--epochs", "3"],
    "parts": [{"command": ["train.py", "--data", "few"]}] * 2,
    "settings": {"lr": 0.125, "model": "<small>"},
    "samples": {"training": 1234, "test": 6},
    "expected": {"accuracy": 0.75, "source": "a paper"},
    "commit": "abc",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Outline:
    folder = tmp_path_factory.mktemp("a b")
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3))
    summary = needle.summary(model, (1, 1, 2, 4))
    report.write_report(folder, "<b> & co", FACTS, HISTORY, FOUND, CLASSES, PIXELS, summary)
    return Outline((folder / "report.html").read_text())


def test_time_is_stacked(tmp_path: Path) -> None:
    (axes,) = figures.time_figure(HISTORY).axes
    bars = [(b.get_x() + b.get_width() / 2, b.get_y(), b.get_height()) for b in axes.patches]
    computing = [(e, 2.0 * e, 10.0 - e) for e in (1, 2, 3)]
    waiting = [(e, 0, 2.0 * e) for e in (1, 2, 3)]
    np.testing.assert_allclose(bars, [*computing, *waiting], atol=1e-12)
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["computing", "waiting for data"]


def test_curves_are_those_of_both_splits() -> None:
    for name in ("loss", "accuracy"):
        (axes,) = figures.split_figure(HISTORY, name).axes
        for line in axes.lines:
            wanted = [[row["epoch"], row[f"{line.get_label()}_{name}"]] for row in HISTORY]
            np.testing.assert_array_equal(line.get_xydata(), wanted)
        assert [line.get_label() for line in axes.lines] == ["train", "test"]
    (axes,) = figures.line_figure(HISTORY, "lr", "rate").axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[e, 0.1 / e] for e in (1, 2, 3)])


def test_a_figure_takes_the_colours_of_the_page_and_keeps_its_names_to_itself() -> None:
    made = [figures.svg_of(figures.time_figure(HISTORY), title) for title in ("One", "Two")]
    named = [set(re.findall(r' id="([^"]+)"', text)) for text in made]
    assert named[0] and not named[0] & named[1]
    for text, names in zip(made, named):
        assert "currentColor" in text and figures.INK not in text
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= names
        assert set(re.findall(r'href="#([^"]+)"', text)) <= names
        assert ElementTree.fromstring(text).attrib["role"] == "img"
    assert made[0] == figures.svg_of(figures.time_figure(HISTORY), "One")


def test_mistakes_show_the_picture_the_prediction_and_its_probability(page: Outline) -> None:
    rows = report.mistake_rows(FOUND, CLASSES)
    sure = [np.exp(logit) / (np.exp(logit) + 2) for logit in (5, 2)]
    # most confident first
    assert [row[:3] for row in rows] == [(4, "bee", "ant"), (2, "cat", "bee")]
    np.testing.assert_allclose([row[3] for row in rows], sure)
    images = page.of("img")
    assert [image["alt"] for image in images] == ["test image 4", "test image 2"]
    for image, i in zip(images, (4, 2)):
        content = base64.b64decode(str(image["src"]).partition(",")[2])
        pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
        wanted = np.round(PIXELS[i] * 255).astype(np.uint8)
        np.testing.assert_array_equal(pixels, np.repeat(wanted, 3, axis=2))
    captions = [text for tag, text in page.texts if tag in ("strong", "figcaption")]
    assert f"ant {sure[0]:.0%}" in captions and f"bee {sure[1]:.0%}" in captions


def test_classes_and_their_confusion(page: Outline) -> None:
    rows = report.class_rows(FOUND, CLASSES)
    assert rows == [("ant", 1, 1, ""), ("bee", 2, 3, "ant (1)"), ("cat", 1, 2, "bee (1)")]
    cells = [text for tag, text in page.texts if tag == "td"]
    assert cells[:5] == ["1", "1", "2", "1", "1"]  # nonzero cells in row-major order


def test_the_page_begins_with_the_result_and_ends_with_the_options(page: Outline) -> None:
    headings = [(tag, text) for tag, text in page.texts if tag in ("h1", "h2")]
    assert headings[0] == ("h1", "<b> & co")
    assert [text for _, text in headings[1:]] == [
        *("Mistakes", "Curves", "Classes", "Model", "Repeat this run", "Options and machine")
    ]
    results = [text for tag, text in page.texts if tag == "strong"][:3]
    assert results == ["66.67%", "0.5000", "39.0 s"]
    words = " ".join(text for _, text in page.texts)
    assert "4 of 6 correct; expected 75.00% (a paper)" in words
    assert "3 epochs, 1,234 training and 6 test images" in words and "0.125" in words
    assert "<small>" in words and "27 parameters" in words
    (commands,) = (text for tag, text in page.texts if tag == "pre")
    assert commands.splitlines()[:2] == [
        "python -m needle train --data few",
        "python -m needle train --out 'a b' --resume --epochs 3",
    ]


def test_the_page_can_be_read_by_all(page: Outline) -> None:
    assert page.of("html")[0]["lang"] == "en" and page.of("main")
    assert all(image["alt"] for image in page.of("img"))
    figures_shown = page.of("svg")
    assert len(figures_shown) == 4 and all(svg["aria-label"] for svg in figures_shown)
    assert all(cell["scope"] for cell in page.of("th"))
    style = next(text for tag, text in page.texts if tag == "style")
    assert "prefers-color-scheme: dark" in style
    assert any("width=device-width" in str(meta.get("content")) for meta in page.of("meta"))


def test_a_run_without_mistakes_says_so(tmp_path: Path) -> None:
    right = Evaluation(0.1, np.eye(3), np.arange(3))
    (line,) = report._mistakes(right, CLASSES, PIXELS)
    assert "every test image was classified correctly" in line
