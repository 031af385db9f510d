"""The report of a run: epochs.csv, pictures, and report.html, which contains the pictures.

Pictures are drawn without a display. The numbers come from the run and its evaluation; plot.py
compares several runs. Called by train.py.
"""

from __future__ import annotations

import base64
import csv
import os
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .evaluation import Evaluation
from .sources import Split

GRID = 5  # rows and columns of mistakes
PICTURES = ("learning_curve", "time", "confusion", "mistakes")
STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; color: #222 } img { max-width: 100%; height: auto }
table { border-collapse: collapse } td, th { padding: .15rem .8rem .15rem 0; text-align: left;
  vertical-align: top } code { font-size: .9em; overflow-wrap: anywhere }"""


def write_epochs(path: Path, history: list[dict[str, float]]) -> None:
    """Write a line for each epoch; the file is replaced as a whole."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(history[0]))
        table.writeheader()
        table.writerows(history)
    os.replace(partial, path)


def write_report(
    folder: Path,
    title: str,
    facts: dict[str, Any],
    history: list[dict[str, float]],
    evaluation: Evaluation,
    classes: tuple[str, ...],
    test: Split,
) -> None:
    """Write the pictures and report.html, which embeds them, into ``folder``.

    facts: the content of run.json.
    """
    draw_confusion(folder / "confusion.png", evaluation, classes)
    draw_curve(folder / "learning_curve.png", history)
    draw_time(folder / "time.png", history)
    draw_mistakes(folder / "mistakes.png", evaluation, classes, test)
    last, expected = history[-1], facts.get("expected") or {}
    said = f"Test accuracy {evaluation.accuracy:.2%}, top-5 {evaluation.top5:.2%}: " + (
        f"{evaluation.correct} of {len(evaluation.labels)} correct after {len(history)} epochs."
    )
    if expected.get("accuracy"):
        said += f" Expected: {expected['accuracy']:.2%} ({expected['source']})."
    rows = [*_listed("", {k: v for k, v in facts.items() if k not in ("result", "expected")})]
    page = [
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>",
        f"<style>{STYLE}</style><h1>{escape(title)}</h1><p>{escape(said)}</p>",
        f"<p>The last epoch trained on {last['images_per_second']:,.0f} images per second and "
        f"waited for data {last['loading_seconds'] / last['train_seconds']:.1%} of the time.</p>",
        *(_picture(folder / f"{name}.png") for name in PICTURES),
        "<h2>Classes</h2>",
        _table(
            class_rows(evaluation, classes), ("class", "correct", "of", "most often mistaken for")
        ),
        "<h2>The run</h2>",
        _table(rows, ("", "")),
    ]
    (folder / "report.html").write_text("\n".join(page) + "\n", encoding="utf-8")


def class_rows(evaluation: Evaluation, classes: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return for each class: name, correct samples, all samples, the most frequent wrong class."""
    rows = []
    for i, row in enumerate(evaluation.confusion()):
        others = row.copy()
        others[i] = 0
        worst = f"{classes[others.argmax()]} ({others.max()})" if others.max() else ""
        rows.append((classes[i], row[i], row.sum(), worst))
    return rows


def _listed(prefix: str, facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return nested facts as (dotted name, value)."""
    rows = []
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            rows += _listed(f"{name}.", value)
        else:
            joined = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            rows.append((name, joined))
    return rows


def _table(rows: list[Any], head: tuple[str, ...]) -> str:
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return "<table>" + "\n".join(lines) + "</table>"


def _picture(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f'<p><img src="data:image/png;base64,{content}" alt="{escape(path.stem)}"></p>'


def draw_confusion(path: Path, evaluation: Evaluation, classes: tuple[str, ...]) -> None:
    """Draw the counts of (true, predicted); the colour is the share of the true class."""
    counts = evaluation.confusion()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    figure, axes = figure_of(width=7, height=6.5)
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
    """Draw loss and accuracy over the epochs for the training batches and the test split."""
    figure, (left, right) = figure_of(width=10, height=4, columns=2)
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


def draw_time(path: Path, history: list[dict[str, float]]) -> None:
    """Draw the seconds of each training epoch, waiting and computing, and images per second."""
    figure, (left, right) = figure_of(width=10, height=4, columns=2)
    epochs = [row["epoch"] for row in history]
    loading = np.array([row["loading_seconds"] for row in history])
    whole = np.array([row["train_seconds"] for row in history])
    left.bar(epochs, loading, label="waiting for data")
    left.bar(epochs, whole - loading, bottom=loading, label="computing")
    left.set_ylabel("seconds per epoch")
    left.legend()
    right.plot(epochs, [row["images_per_second"] for row in history], marker=".")
    right.set_ylabel("training images per second")
    right.set_ylim(bottom=0)
    right.grid(alpha=0.3)
    for axes in (left, right):
        axes.set_xlabel("epoch")
    figure.savefig(path)


def draw_mistakes(
    path: Path, evaluation: Evaluation, classes: tuple[str, ...], test: Split
) -> None:
    """Draw the most confident wrong predictions, titled "true: predicted"."""
    wrong = evaluation.mistakes()
    figure, grid = figure_of(width=8, height=8.5, rows=GRID, columns=GRID)
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


def figure_of(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure without a window, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)
