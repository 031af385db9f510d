"""What is left of a run to look at: epochs.csv, pictures, and report.html, which holds them all.

Pictures are drawn without a screen. Numbers come from the run and its evaluation; plot.py compares
several runs.
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

GRID = 5  # mistakes in a row and in a column
PICTURES = ("learning_curve", "time", "confusion", "mistakes")
STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; color: #222 } img { max-width: 100%; height: auto }
table { border-collapse: collapse } td, th { padding: .15rem .8rem .15rem 0; text-align: left;
  vertical-align: top } code { font-size: .9em; overflow-wrap: anywhere }"""


def write_epochs(path: Path, history: list[dict[str, float]]) -> None:
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
    facts: dict[str, Any],
    history: list[dict[str, float]],
    evaluation: Evaluation,
    classes: tuple[str, ...],
    test: Split,
) -> None:
    """The pictures and report.html, which shows them without needing their files, in ``folder``.

    ``facts`` are those of run.json.
    """
    draw_confusion(folder / "confusion.png", evaluation, classes)
    draw_curve(folder / "learning_curve.png", history)
    draw_time(folder / "time.png", history)
    draw_mistakes(folder / "mistakes.png", evaluation, classes, test)
    last, expected = history[-1], facts.get("expected") or {}
    said = f"Test accuracy {evaluation.accuracy:.2%}, top-5 {evaluation.top5:.2%}: " + (
        f"{evaluation.correct} of {len(evaluation.labels)} right after {len(history)} epochs."
    )
    if expected.get("accuracy"):
        said += f" To be expected: {expected['accuracy']:.2%} ({expected['source']})."
    rows = [*_listed("", {k: v for k, v in facts.items() if k not in ("result", "expected")})]
    page = [
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>",
        f"<style>{STYLE}</style><h1>{escape(title)}</h1><p>{escape(said)}</p>",
        f"<p>{last['images_per_second']:,.0f} images a second in the last epoch, of whose training "
        f"{last['loading_seconds'] / last['train_seconds']:.1%} was waiting for data.</p>",
        *(_picture(folder / f"{name}.png") for name in PICTURES),
        "<h2>Classes</h2>",
        _table(class_rows(evaluation, classes), ("class", "right", "of", "mostly taken for")),
        "<h2>The run</h2>",
        _table(rows, ("", "")),
    ]
    (folder / "report.html").write_text("\n".join(page) + "\n", encoding="utf-8")


def class_rows(evaluation: Evaluation, classes: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """For each class: its name, how many are right, of how many, what the others are taken for."""
    rows = []
    for i, row in enumerate(evaluation.confusion()):
        others = row.copy()
        others[i] = 0
        worst = f"{classes[others.argmax()]} ({others.max()})" if others.max() else ""
        rows.append((classes[i], row[i], row.sum(), worst))
    return rows


def _listed(prefix: str, facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Nested facts as (dotted name, value)."""
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
    """Counts of (true, predicted); the colour is the share of the true class."""
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
    """Loss and accuracy over the epochs, of the training batches and of the test split."""
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
    """Where the seconds of each epoch's training went, and how many images a second it made."""
    figure, (left, right) = figure_of(width=10, height=4, columns=2)
    epochs = [row["epoch"] for row in history]
    loading = np.array([row["loading_seconds"] for row in history])
    whole = np.array([row["train_seconds"] for row in history])
    left.bar(epochs, loading, label="waiting for data")
    left.bar(epochs, whole - loading, bottom=loading, label="computing")
    left.set_ylabel("seconds an epoch")
    left.legend()
    right.plot(epochs, [row["images_per_second"] for row in history], marker=".")
    right.set_ylabel("training images a second")
    right.set_ylim(bottom=0)
    right.grid(alpha=0.3)
    for axes in (left, right):
        axes.set_xlabel("epoch")
    figure.savefig(path)


def draw_mistakes(
    path: Path, evaluation: Evaluation, classes: tuple[str, ...], test: Split
) -> None:
    """The most confident wrong answers, as "true: predicted"."""
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
    """A figure that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)
