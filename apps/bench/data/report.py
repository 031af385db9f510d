"""The results as a page: RESULTS.md and results.png."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apps.bench.__main__ import processor

from .harness import Result
from .settings import Settings
from .studies import STUDIES
from .target import Target, short

PEERS = ("torch", "grain", "opencv-python-headless", "albumentations", "simplejpeg", "numpy")
HEAD = ("| what | needle | beside it | | target | |", "|---|---|---|---:|---:|---|")

HOW = (
    "Every case runs in processes of its own; the cases of a group take turns in shuffled order, "
    "{rounds} rounds unless said otherwise; medians, and ranges in brackets. Rates are of whole "
    "epochs, files in the page cache; *from construction* is the first epoch with the loader's and "
    "its workers' start. CPU seconds are of all processes together. The most memory (PSS: shared "
    "pages counted once) is that of an untimed epoch in which every byte is checked: needle's "
    "loaders must give the same bytes with any engine and number of workers, and all "
    "contestants the same mean."
)


def write(folder: Path, results: dict[str, Result], settings: Settings) -> None:
    """Both files into ``folder``; the picture only where matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(folder / "results.png", results)
    lines = page(results, settings, drawn)
    (folder / "RESULTS.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def page(results: dict[str, Result], settings: Settings, drawn: bool) -> list[str]:
    """The Markdown."""
    found = targets_of(results)
    lines = ["# The data module, measured", "", *circumstances(settings), ""]
    lines += ["![the same as a picture](results.png)", ""] if drawn else []
    lines += [summary(found), "", *HEAD, *(target.row() for target in found), ""]
    lines += [HOW.format(rounds=settings.rounds), ""]
    for name, result in results.items():
        lines += [f"## {STUDIES[name].TITLE}", ""]
        lines += [f"`python -m apps.bench.data {name}`", ""]
        lines += STUDIES[name].tables(result)
        lines += [f"- {note}" for note in result.notes]
        lines += [f"- **Check failed:** {failure}" for failure in result.failed_checks]
        lines += [""] if result.notes or result.failed_checks else []
    return lines


def circumstances(settings: Settings) -> list[str]:
    """Where, when, with what."""
    pictures = "real photographs" if settings.photos else "made-up photographs"
    small = "CIFAR-10" if settings.cifar else "random pixels in place of CIFAR-10"
    quick = " **A quick run on tiny data: its numbers mean nothing.**" if settings.quick else ""
    return [
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}, Python "
        f"{platform.python_version()}; {versions(PEERS)}. {datetime.date.today()}, {pictures}, "
        f"{small}.{quick}",
    ]


def versions(packages: Sequence[str]) -> str:
    """Of those that are installed, and which are not."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def summary(targets: list[Target]) -> str:
    """How many targets are reached."""
    measured = [target for target in targets if target.measured]
    reached = sum(target.reached for target in measured)
    return f"Of {len(measured)} targets measured {reached} are reached."


def draw(path: Path, results: dict[str, Result]) -> bool:
    """The studies' pictures and the targets, one figure; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    drawn = [(name, result) for name, result in results.items() if STUDIES[name].draw is not None]
    rows = (len(drawn) + 1) // 2
    figure = Figure(figsize=(11, 5 + 3.4 * rows), layout="constrained")
    top, rest = figure.subfigures(2, 1, height_ratios=[5, max(3.4 * rows, 0.1)])
    draw_targets(top.subplots(), targets_of(results))
    grid = rest.add_gridspec(max(rows, 1), 2)
    for place, (name, result) in enumerate(drawn):
        STUDIES[name].draw(rest.add_subplot(grid[place // 2, place % 2]), result)
    figure.savefig(path, dpi=100)
    return True


def targets_of(results: dict[str, Result]) -> list[Target]:
    """Of all studies."""
    return [target for name, result in results.items() for target in STUDIES[name].targets(result)]


def draw_targets(axes: Any, found: list[Target]) -> None:
    """How many times each target is reached: 1 is the target itself."""
    known = [target for target in found if target.measured][::-1]
    scores = [max(score(target), 1e-3) for target in known]
    colours = ["C2" if target.reached else "C3" for target in known]
    axes.barh(range(len(known)), scores, color=colours)
    axes.set_yticks(range(len(known)), [target.what for target in known], fontsize=7)
    for place, (value, target) in enumerate(zip(scores, known)):
        goal = f"{'≤' if target.at_most else '≥'} {short(target.goal)} {target.unit}"
        words = f" {short(target.value)} {target.unit} ({goal})"
        axes.text(max(value, 1), place, words, fontsize=6, va="center")
    axes.set_xlim(min([0.5, *scores]) / 1.2, max([2.0, *scores]) * 4)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set(xlabel="times the target (right of the line: reached)", title="Targets")


def score(target: Target) -> float:
    """How many times the target, the larger the better."""
    if not target.at_most:
        return target.value / target.goal
    return target.goal / target.value if target.value > 0 else 1e3
