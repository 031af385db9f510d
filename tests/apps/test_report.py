"""Tests of a report's pictures: the numbers of the run are read back from the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apps.training import report
from apps.training.evaluation import Evaluation
from apps.training.sources import Split
from needle.backend_selection import BACKEND

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.skipif(BACKEND != "nd", reason="pictures are the same in both modes")
HISTORY = [
    {
        "epoch": epoch,
        "train_loss": 2.0 / epoch,
        "test_loss": 3.0 / epoch,
        "train_accuracy": epoch / 10,
        "test_accuracy": epoch / 20,
        "train_seconds": 10.0 + epoch,
        "loading_seconds": 2.0 * epoch,
        "images_per_second": 100.0 * epoch,
    }
    for epoch in (1, 2, 3)
]
CLASSES = ("ant", "bee", "cat")
LOGITS = np.eye(3)[[0, 1, 1, 2, 0, 1]] * [[1.0], [1], [2], [1], [5], [1]]
FOUND = Evaluation(0.5, LOGITS, np.array([0, 1, 2, 2, 1, 1]))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the drawn figures, in order, without writing files."""
    made, original = [], report.figure_of

    def figure_of(*given: Any, **named: Any) -> Any:
        figure, axes = original(*given, **named)
        made.append(figure)
        figure.savefig = lambda path: None
        return figure, axes

    monkeypatch.setattr(report, "figure_of", figure_of)
    return made


def test_time_is_stacked_and_throughput_drawn(figures: list[Any]) -> None:
    report.draw_time(Path("none"), HISTORY)
    left, right = figures[0].axes
    bars = [(b.get_x() + b.get_width() / 2, b.get_y(), b.get_height()) for b in left.patches]
    waiting = [(e, 0, 2.0 * e) for e in (1, 2, 3)]
    computing = [(e, 2.0 * e, 10.0 - e) for e in (1, 2, 3)]
    np.testing.assert_allclose(bars, [*waiting, *computing], atol=1e-12)
    named = [text.get_text() for text in left.get_legend().get_texts()]
    assert named == ["waiting for data", "computing"]
    np.testing.assert_array_equal(right.lines[0].get_xydata(), [[e, 100 * e] for e in (1, 2, 3)])


def test_curves_are_those_of_both_splits(figures: list[Any]) -> None:
    report.draw_curve(Path("none"), HISTORY)
    for axes, name in zip(figures[0].axes, ("loss", "accuracy"), strict=True):
        for line in axes.lines:
            wanted = [[row["epoch"], row[f"{line.get_label()}_{name}"]] for row in HISTORY]
            np.testing.assert_array_equal(line.get_xydata(), wanted)
        assert [line.get_label() for line in axes.lines] == ["train", "test"]


def test_confusion_and_mistakes_are_of_true_and_taken_for(figures: list[Any]) -> None:
    report.draw_confusion(Path("none"), FOUND, CLASSES)
    cells = {text.get_position()[::-1]: text.get_text() for text in figures[0].axes[0].texts}
    assert cells == {(0, 0): "1", (1, 0): "1", (1, 1): "2", (2, 1): "1", (2, 2): "1"}
    rows = report.class_rows(FOUND, CLASSES)
    assert rows == [("ant", 1, 1, ""), ("bee", 2, 3, "ant (1)"), ("cat", 1, 2, "bee (1)")]
    images = np.arange(6.0).reshape(6, 1, 1, 1) * np.ones((1, 2, 2, 1))
    images[:, 0, 0] = -1
    report.draw_mistakes(Path("none"), FOUND, CLASSES, Split(images, FOUND.labels))
    shown = [axes for axes in figures[1].axes if axes.images]
    assert [axes.get_title() for axes in shown] == ["bee: ant", "cat: bee"]  # surest first
    np.testing.assert_array_equal(shown[0].images[0].get_array(), [[0, 1], [1, 1]])
