"""The final report of a run: metrics.csv, three pictures and a page of text that shows them.

Pictures are drawn without a screen. Numbers come from the run and its evaluation.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

from .evaluation import Evaluation
from .sources import Split

GRID = 5  # mistakes in a row and in a column


def write_metrics(path: Path, history: list[dict[str, float]]) -> None:
    """One line an epoch; the file is replaced whole."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(history[0]))
        table.writeheader()
        table.writerows(history)
    os.replace(partial, path)


def write_report(
    folder: Path,
    title: str,
    history: list[dict[str, float]],
    evaluation: Evaluation,
    classes: tuple[str, ...],
    test: Split,
) -> None:
    """confusion.png, learning_curve.png, mistakes.png and report.md in ``folder``."""
    draw_confusion(folder / "confusion.png", evaluation, classes)
    draw_curve(folder / "learning_curve.png", history)
    draw_mistakes(folder / "mistakes.png", evaluation, classes, test)
    lines = [
        f"# {title}",
        "",
        f"Test accuracy {evaluation.accuracy:.2%}: {evaluation.correct} of "
        f"{len(evaluation.labels)} right, after {len(history)} epochs.",
        "",
        "| class | right | of | mostly taken for |",
        "|---|---|---|---|",
        *class_lines(evaluation, classes),
        "",
        *(f"![{name}]({name}.png)" for name in ("learning_curve", "confusion", "mistakes")),
    ]
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def class_lines(evaluation: Evaluation, classes: tuple[str, ...]) -> list[str]:
    """A row of the report's table for each class."""
    lines = []
    for i, row in enumerate(evaluation.confusion()):
        others = row.copy()
        others[i] = 0
        worst = f"{classes[others.argmax()]} ({others.max()})" if others.max() else ""
        lines.append(f"| {classes[i]} | {row[i]} | {row.sum()} | {worst} |")
    return lines


def draw_confusion(path: Path, evaluation: Evaluation, classes: tuple[str, ...]) -> None:
    """Counts of (true, predicted); the colour is the share of the true class."""
    counts = evaluation.confusion()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure, axes = _figure(width=7, height=6.5)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour)
    axes.set_xticks(range(len(classes)), classes, rotation=45, ha="right")
    axes.set_yticks(range(len(classes)), classes)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(f"test accuracy {evaluation.accuracy:.2%}")
    figure.savefig(path)


def draw_curve(path: Path, history: list[dict[str, float]]) -> None:
    """Loss and accuracy over the epochs, of the training batches and of the test split."""
    figure, (left, right) = _figure(width=10, height=4, columns=2)
    epochs = [row["epoch"] for row in history]
    for axes, name in ((left, "loss"), (right, "accuracy")):
        for split in ("train", "test"):
            axes.plot(epochs, [row[f"{split}_{name}"] for row in history], label=split, marker=".")
        axes.set_xlabel("epoch")
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
        axes.legend()
    left.set_yscale("log")
    figure.savefig(path)


def draw_mistakes(
    path: Path, evaluation: Evaluation, classes: tuple[str, ...], test: Split
) -> None:
    """The most confident wrong answers, as "true: predicted"."""
    wrong = evaluation.mistakes()
    figure, grid = _figure(width=8, height=8.5, rows=GRID, columns=GRID)
    for axes in grid.flat:
        axes.axis("off")
    for axes, i in zip(grid.flat, wrong, strict=False):
        image = test.images[i]
        span = image.max() - image.min()
        shown = (image - image.min()) / (span if span > 0 else 1)
        axes.imshow(shown[..., 0] if shown.shape[2] == 1 else shown, cmap="gray_r")
        true, taken = classes[test.labels[i]], classes[evaluation.predicted[i]]
        axes.set_title(f"{true}: {taken}", fontsize=9)
    figure.suptitle(f"{len(wrong)} mistakes on the test data (true: predicted)")
    figure.savefig(path)


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """A figure that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)
