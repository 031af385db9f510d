"""Results of benchmarks on disk, and the parts that their pages share. Called by both reports.

``results.json`` and ``DETAILS.md`` hold every number and lie in an ignored folder; the page that
the repository keeps, ``RESULTS.md``, has one table, the targets, and one picture of it.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .harness import Result
from .target import Target, short

HEAD = (
    "| target | needle, median (range) | compared with | result (range) | goal | |",
    "|---|---|---|---:|---:|---|",
)
PICTURE = "results.png"


def read_results(path: Path) -> dict[str, Result]:
    """Return the results of earlier runs by study; empty where there is no file."""
    if not path.is_file():
        return {}
    records = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result.from_dict(record) for name, record in records.items()}


def write_results(path: Path, results: Mapping[str, Result]) -> None:
    """Write all numbers, with four significant digits each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = {name: result.to_dict() for name, result in results.items()}
    for record in records.values():
        for outcome in record["outcomes"].values():
            values = outcome["values"]
            outcome["values"] = {k: [float(f"{v:.4g}") for v in vs] for k, vs in values.items()}
    path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def write_page(folder: Path, name: str, lines: Sequence[str]) -> None:
    """Write the lines of a Markdown page into ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def target_lines(targets: Sequence[Target], drawn: bool) -> list[str]:
    """Return the summary, the picture if it was ``drawn``, and the table of targets."""
    measured = [target for target in targets if target.measured]
    reached = sum(target.reached for target in measured)
    lines = [f"{reached} of the {len(measured)} measured targets are reached.", ""]
    lines += [f"![each target's result as a multiple of its goal]({PICTURE})", ""] if drawn else []
    return [*lines, *HEAD, *(target.row() for target in targets), ""]


def note_lines(results: Mapping[str, Result]) -> list[str]:
    """Return a bullet for each set of notes, with the studies that share it."""
    sharing: dict[str, list[str]] = {}
    for name, result in results.items():
        failures = [f"**Check failed:** {failure}" for failure in result.failed_checks]
        if notes := " ".join([*result.notes, *failures]):
            sharing.setdefault(notes, []).append(name)
    lines = [f"- {'; '.join(names)}: {notes}" for notes, names in sharing.items()]
    return [*lines, ""] if lines else []


def versions(packages: Sequence[str]) -> str:
    """Return the versions of the packages that are installed, and "no NAME" for the others."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def draw_targets(path: Path, targets: Sequence[Target]) -> bool:
    """Draw a bar for each target into ``path``; return False without matplotlib and Pillow."""
    try:
        from matplotlib.figure import Figure
        from PIL import Image
    except ImportError:
        return False
    known = [target for target in targets if target.measured][::-1]
    figure = Figure(figsize=(8, 1 + 0.16 * len(known)), layout="constrained")
    _draw_bars(figure.subplots(), known)
    pixels = io.BytesIO()
    figure.savefig(pixels, dpi=80)
    with Image.open(pixels) as image:  # a palette: a quarter of the bytes
        image.convert("RGB").quantize(24, dither=Image.Dither.NONE).save(path, optimize=True)
    return True


def _draw_bars(axes: Any, targets: Sequence[Target]) -> None:
    """Draw how many times each goal is reached: 1 is the goal itself."""
    scores = [max(score(target), 1e-3) for target in targets]
    colours = ["C2" if target.reached else "C3" for target in targets]
    axes.barh(range(len(targets)), scores, color=colours)
    axes.set_yticks(range(len(targets)), [target.what for target in targets], fontsize=6)
    for place, (value, target) in enumerate(zip(scores, targets)):
        goal = f"{'≤' if target.at_most else '≥'} {short(target.goal)} {target.unit}"
        words = f" {short(target.value)} {target.unit} ({goal})"
        axes.text(max(value, 1), place, words, fontsize=6, va="center")
    axes.set_ylim(-0.6, len(targets) - 0.4)
    axes.set_xlim(min([0.5, *scores]) / 1.2, max([2.0, *scores]) * 4)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set(xlabel="result as a multiple of the goal (1 or more: reached)")


def score(target: Target) -> float:
    """Return the result as a multiple of the goal; larger is better."""
    if not target.at_most:
        return target.value / target.goal
    return target.goal / target.value if target.value > 0 else 1e3
