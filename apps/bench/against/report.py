"""The results as a page: RESULTS.md and results.png."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from apps.bench.__main__ import kernels, processor
from apps.bench.data.harness import Result
from apps.bench.data.report import HEAD, draw_targets, summary, versions
from apps.bench.data.target import Target

from . import tables as t
from .studies import STUDIES

HOW = (
    "Every contestant runs in a process of its own, all libraries held to the same number of "
    "threads, and takes turns with the others in shuffled order; times are medians. *Times as "
    "fast* is the time of PyTorch's fastest over the time of our fastest, paired round by round: "
    "the median, and its range in brackets. PyTorch's fastest is that of eager, eager with tensors "
    "in channels-last order and torch.compile (steps and memory-bound operations; a product or a "
    "convolution alone is the same kernel there); its optimisers are the fused ones. *needle, "
    "captured* is `needle.capture`; *plain kernels* are the required ten in C++, all else as its "
    "definition reads. The models in plain torch.nn (torch_models.py) have the same "
    "layers and number of parameters; a test loads the states of one into the other. A step is "
    "forward, backward and SGD with momentum on random images of 32 × 32. Rates of steps count "
    "three times the forward pass's multiplications and additions."
)
AGAIN = (
    "To measure again, all or a part: `python -m apps.bench.against --work {work} --threads 1,2`."
)


def work_of(study: str) -> str:
    """ "matmul" of "matmul, 2 threads"."""
    return study.partition(", ")[0]


def place(study: str) -> tuple[int, str]:
    """Where a study stands on the page."""
    known = list(STUDIES)
    work = work_of(study)
    return known.index(work) if work in known else len(known), study


def limits_for(study: str, results: dict[str, Result]) -> Result | None:
    """The machine's limits on as many threads."""
    return results.get(f"limits, {study.rpartition(', ')[2]}")


def targets_of(results: dict[str, Result]) -> list[Target]:
    """Of all studies."""
    return [
        target
        for name, result in results.items()
        for target in STUDIES[work_of(name)].targets(result, limits_for(name, results))
    ]


def write(folder: Path, results: dict[str, Result]) -> None:
    """Both files into ``folder``; the picture only where matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(folder / "results.png", results)
    lines = page(results, drawn)
    (folder / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def page(results: dict[str, Result], drawn: bool) -> list[str]:
    """The Markdown."""
    found = targets_of(results)
    lines = ["# needle beside PyTorch", "", circumstances(), ""]
    lines += ["![the same as a picture](results.png)", ""] if drawn else []
    lines += [summary(found), "", *HEAD, *(target.row() for target in found), ""]
    works = ",".join(dict.fromkeys(work_of(name) for name in results))
    lines += [HOW, "", AGAIN.format(work=works), ""]
    for name, result in results.items():
        lines += section(name, result, limits_for(name, results))
    return lines


def section(name: str, result: Result, limits: Result | None) -> list[str]:
    """One piece of work on one number of threads."""
    study = STUDIES[work_of(name)]
    lines = [f"## {study.TITLE}, {t.threads_of(result)}", "", *study.tables(result, limits)]
    notes = [*t.backend_notes(result), *result.notes]
    return [*lines, *(f"- {note}" for note in notes), *([""] if notes else [])]


def circumstances() -> str:
    """Where, and with what."""
    return (
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}, {kernels()}, Python "
        f"{platform.python_version()}; {versions(('torch', 'numpy'))}."
    )


def draw(path: Path, results: dict[str, Result]) -> bool:
    """Targets, and every piece's ratio; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    found = [target for target in targets_of(results) if target.measured]
    pieces = ratios_of(results)
    heights = [1 + 0.22 * len(found), 1 + 0.16 * len(pieces)]
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=heights)
    draw_targets(top, found)
    draw_ratios(bottom, pieces)
    figure.savefig(path, dpi=90)
    return True


def ratios_of(results: dict[str, Result]) -> list[tuple[str, list[float]]]:
    """Each piece's name and ratios, those without a peer left out."""
    found = []
    for name, result in results.items():
        for piece in t.pieces_of(result):
            ratios = t.ratios(result, *t.duel(result, piece), piece)
            if ratios:
                found.append((f"{name}: {piece}", ratios))
    return found


def draw_ratios(axes: Any, pieces: list[tuple[str, list[float]]]) -> None:
    """Medians as dots, ranges as lines; right of 1 needle is faster."""
    for row, (_, ratios) in enumerate(reversed(pieces)):
        colour = "C2" if t.median(ratios) >= 1 else "C3"
        axes.plot([min(ratios), max(ratios)], [row, row], color=colour, linewidth=1)
        axes.plot([t.median(ratios)], [row], "o", color=colour, markersize=4)
    axes.set_yticks(range(len(pieces)), [name for name, _ in reversed(pieces)], fontsize=6)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set(xlabel="times as fast as PyTorch's fastest", title="Every piece of work")
