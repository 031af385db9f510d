"""The report of a run: epochs.csv and report.html, one page with all pictures in it.

First come accuracy, loss and time, then the mistakes, the curves, the classes, the model, and how
to repeat the run. The numbers come from the run and its evaluation; plot.py compares several runs.
Called by train.py.
"""

from __future__ import annotations

import base64
import csv
import io
import os
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from needle.nn.layer_table import Summary

from .evaluation import Evaluation
from .figures import curves, svg_of

PAGE = Path(__file__).with_name("report_page.html")
MISTAKES = 24
"""The largest number of mistakes that are shown."""
MOST_CELLS = 20
"""The largest number of classes for which all counts are shown."""
MOST_LAYERS = 24
"""A model table with more rows than this is shown folded."""
FEW_PIXELS = 64
"""Pictures of at most so many pixels are enlarged without smoothing."""


def write_epochs(path: Path, history: list[dict[str, float]]) -> None:
    """Write a line for each epoch; the file is replaced as a whole."""
    partial = path.with_name(f".{path.name}.partial")
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
    pictures: NDArray[np.float32],
    model: Summary,
) -> None:
    """Write report.html.

    facts: the content of run.json. pictures: the test images (N, H, W, C), in 0..1.
    """
    content = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(_subtitle(facts, history))}</p>',
        _tiles(facts, history, evaluation),
        "<h2>Mistakes</h2>",
        *_mistakes(evaluation, classes, pictures),
        "<h2>Curves</h2>",
        _charts(history),
        "<h2>Classes</h2>",
        _classes(evaluation, classes),
        f'<div class="two"><section><h2>Model</h2>{_model(model)}</section>',
        f"<section><h2>Repeat this run</h2>{_commands(facts, folder)}</section></div>",
        "<h2>Options and machine</h2>",
        _facts(facts),
    ]
    page = Template(PAGE.read_text(encoding="utf-8"))
    text = page.substitute(title=escape(title), content="\n".join(content))
    (folder / "report.html").write_text(text, encoding="utf-8")


# ---- sections ------------------------------------------------------------------------------------


def _subtitle(facts: dict[str, Any], history: list[dict[str, float]]) -> str:
    samples, finished = facts.get("samples", {}), facts.get("result", {}).get("finished", "")
    counts = f"{samples.get('training', 0):,} training and {samples.get('test', 0):,} test images"
    return ", ".join([f"{len(history)} epochs", counts, *([finished[:10]] if finished else [])])


def _tiles(facts: dict[str, Any], history: list[dict[str, float]], evaluation: Evaluation) -> str:
    last, expected = history[-1], facts.get("expected") or {}
    seconds = sum(row["train_seconds"] + row["test_seconds"] for row in history)
    right = f"{evaluation.correct:,} of {len(evaluation.labels):,} correct"
    if expected.get("accuracy"):
        right += f"; expected {expected['accuracy']:.2%} ({expected['source']})"
    waiting = last["loading_seconds"] / last["train_seconds"]
    tiles = [
        ("Test accuracy", f"{evaluation.accuracy:.2%}", right),
        ("Test loss", f"{evaluation.loss:.4f}", f"training {last['train_loss']:.4f}"),
        (
            "Time",
            _duration(seconds),
            f"{last['images_per_second']:,.0f} images per second, {waiting:.1%} waiting for data",
        ),
        ("Top-5 accuracy", f"{evaluation.top5:.2%}", f"of {evaluation.logits.shape[1]} classes"),
    ]
    if evaluation.logits.shape[1] <= 5:
        tiles.pop()
    cells = (
        f'<li><span class="soft">{name}</span><strong>{escape(value)}</strong>{escape(more)}</li>'
        for name, value, more in tiles
    )
    return f'<ul class="tiles">{"".join(cells)}</ul>'


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def mistake_rows(
    evaluation: Evaluation, classes: Sequence[str]
) -> list[tuple[int, str, str, float]]:
    """Return the most confident mistakes: number, true class, predicted class, its probability."""
    rows = []
    for i in evaluation.mistakes()[:MISTAKES]:
        shares = np.exp(evaluation.logits[i] - evaluation.logits[i].max())
        true, predicted = classes[evaluation.labels[i]], classes[evaluation.predicted[i]]
        rows.append((int(i), true, predicted, float(shares.max() / shares.sum())))
    return rows


def _mistakes(
    evaluation: Evaluation, classes: Sequence[str], pictures: NDArray[np.float32]
) -> Iterable[str]:
    rows, count = mistake_rows(evaluation, classes), len(evaluation.mistakes())
    if not rows:
        yield "<p>None: every test image was classified correctly.</p>"
        return
    shown = f"The {len(rows)} most confident of {count:,}" if count > len(rows) else f"All {count}"
    yield f'<p class="soft">{shown}: the true class, then the prediction and its probability.</p>'
    yield '<ul class="mistakes">'
    pixels = ' class="pixels"' if max(pictures.shape[1:3]) <= FEW_PIXELS else ""
    for i, true, predicted, share in rows:
        yield (
            f'<li><figure><img{pixels} src="{picture_url(pictures[i])}" alt="test image {i}">'
            f"<figcaption><strong>{escape(true)}</strong><br>"
            f"{escape(predicted)} {share:.0%}</figcaption></figure></li>"
        )
    yield "</ul>"


def picture_url(picture: NDArray[np.float32]) -> str:
    """Return a picture (H, W, 1 or 3) with values in 0..1 as the URL of a PNG."""
    from matplotlib.image import imsave

    content = io.BytesIO()
    pixels = np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    imsave(content, np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3))))
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _charts(history: list[dict[str, float]]) -> str:
    figures = (
        f"<figure>{svg_of(figure, title)}<figcaption>{title}</figcaption></figure>"
        for title, figure in curves(history).items()
    )
    return f'<div class="charts">{"".join(figures)}</div>'


def _classes(evaluation: Evaluation, classes: tuple[str, ...]) -> str:
    head = ("class", "correct", "of", "share", "mistaken for")
    rows = [
        (name, right, of, f"{right / of:.1%}" if of else "", worst)
        for name, right, of, worst in class_rows(evaluation, classes)
    ]
    table = _table(rows, head, "Accuracy by class", numbers=(1, 2, 3))
    if len(classes) > MOST_CELLS:
        return table
    return f'<div class="beside">{_confusion(evaluation, classes)}{table}</div>'


def class_rows(evaluation: Evaluation, classes: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return for each class: name, correct samples, all samples, the most frequent wrong class."""
    rows = []
    for i, row in enumerate(evaluation.confusion()):
        others = row.copy()
        others[i] = 0
        worst = f"{classes[others.argmax()]} ({others.max()})" if others.max() else ""
        rows.append((classes[i], row[i], row.sum(), worst))
    return rows


def _confusion(evaluation: Evaluation, classes: tuple[str, ...]) -> str:
    """Return the table of (true, predicted) counts, coloured by share of the true class."""
    counts = evaluation.confusion()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    lines = [
        "".join(f'<th scope="col">{escape(name)}</th>' for name in ("true / predicted", *classes))
    ]
    for name, row, colours in zip(classes, counts, shares):
        cells = (
            f'<td style="background: rgb(var(--accent) / {0.5 * share:.2f})">{count or ""}</td>'
            for count, share in zip(row, colours)
        )
        lines.append(f'<th scope="row">{escape(name)}</th>{"".join(cells)}')
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    return _wide(f'<table class="counts">{rows}</table>', "Counts of true and predicted classes")


def _model(model: Summary) -> str:
    rows = [
        (
            row.name or "(model)",
            row.kind,
            row.output,
            _count(row.parameters),
            _count(row.multiplications),
        )
        for row in model.rows
    ]
    rows.append(("total", "", "", f"{model.parameters:,}", f"{model.multiplications:,}"))
    head = ("layer", "kind", "output", "parameters", "multiplications")
    table = _table(rows, head, "Layers", numbers=(3, 4))
    line = f"{model.title}: {model.parameters:,} parameters"
    opened = " open" if len(rows) <= MOST_LAYERS else ""
    return f"<p>{escape(line)}</p><details{opened}><summary>Layers</summary>{table}</details>"


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _commands(facts: dict[str, Any], folder: Path) -> str:
    """Return the commands that made the run, and those that continue it."""
    parts = [*facts.get("parts", []), facts]
    made = [shlex.join(["python", "-m", "needle", "train", *part["command"][1:]]) for part in parts]
    made = [line for line, _ in groupby(made)]
    where = shlex.quote(str(folder))
    lines = [
        *made,
        "",
        "# classify pictures; on a page: --serve",
        f"python -m needle predict --checkpoint {where}/best.safetensors picture.png",
    ]
    commit = f"<p>Commit {escape(str(facts['commit']))}.</p>" if facts.get("commit") else ""
    return f"<pre>{escape(chr(10).join(lines))}</pre>{commit}"


def _facts(facts: dict[str, Any]) -> str:
    hidden = ("result", "expected", "settings", "classes", "parts", "command")
    options = _listed("", facts.get("settings", {}))
    rest = _listed("", {k: v for k, v in facts.items() if k not in hidden})
    tables = [
        _table(rows, (name, "value"), name, kind="facts")
        for rows, name in ((options, "Options"), (rest, "Machine"))
    ]
    return f'<div class="two">{"".join(tables)}</div>'


# ---- parts ---------------------------------------------------------------------------------------


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


def _table(
    rows: Iterable[Sequence[Any]],
    head: tuple[str, ...],
    label: str,
    numbers: Sequence[int] = (),
    kind: str = "plain",
) -> str:
    """Return a table with row headers in its first column."""
    kinds = [' class="number"' if i in numbers else "" for i in range(len(head))]
    lines = ["".join(f'<th scope="col"{k}>{escape(c)}</th>' for c, k in zip(head, kinds))]
    for first, *cells in rows:
        others = "".join(f"<td{k}>{escape(str(c))}</td>" for c, k in zip(cells, kinds[1:]))
        lines.append(f'<th scope="row">{escape(str(first))}</th>{others}')
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return _wide(f'<table class="{kind}">{body}</table>', label)


def _wide(table: str, label: str) -> str:
    """Return a table in a region of its own that can be scrolled, also with the keyboard."""
    return f'<div class="wide" role="region" aria-label="{label}" tabindex="0">{table}</div>'
