"""The report of a benchmark: the numbers on disk, the pages and the picture of its targets.

``results.json`` and ``DETAILS.md`` hold every number and lie in an ignored folder. The committed
page, ``RESULTS.md``, has one table, that of the targets, and a picture of it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needle.testing.installation import processor

from .target import Target, median_and_range, short, table
from .turns import Result

HEAD = (
    "| target | needle, median (range) | compared with | result (range) | goal | |",
    "|---|---|---|---:|---:|---|",
)
PICTURE = "results.png"
LIMITS = "limits"
"""The name of the study that measures the machine."""


@dataclass(frozen=True)
class Benchmark:
    """A set of studies with one command line and one page.

    name: the package in apps/bench. how: the page's text on how numbers are measured. packages:
    those whose versions the page states. counts: True if the studies are repeated for each number
    of threads.
    """

    name: str
    title: str
    how: str
    packages: tuple[str, ...]
    counts: bool

    @property
    def module(self) -> str:
        """The module that defines STUDIES."""
        return f"apps.bench.{self.name}.studies"

    @property
    def studies(self) -> dict[str, Any]:
        """The studies by name: each has TITLE, cases, targets, and may have tables and prepare."""
        found: dict[str, Any] = importlib.import_module(self.module).STUDIES
        return found

    def place(self, study: str) -> tuple[int, str]:
        """Return the sort key of a result on the page."""
        work, known = study.partition(", ")[0], list(self.studies)
        return known.index(work) if work in known else len(known), study


def read_results(path: Path) -> dict[str, Result]:
    """Return the results of earlier runs by study; an empty dict if there is no file."""
    if not path.is_file():
        return {}
    records = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result.from_dict(record) for name, record in records.items()}


def write_results(path: Path, results: Mapping[str, Result]) -> None:
    """Write all numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = {name: result.to_dict() for name, result in results.items()}
    path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def write(benchmark: Benchmark, results: Mapping[str, Result], page: Path, folder: Path) -> None:
    """Write RESULTS.md and its picture into ``page``, and DETAILS.md into ``folder``.

    Results of studies that no longer exist are left out.
    """
    known = {name: each for name, each in results.items() if each.work in benchmark.studies}
    for result in known.values():
        result.limits = known.get(f"{LIMITS}, {result.threads}")
    page.mkdir(parents=True, exist_ok=True)
    drawn = draw_targets(page / PICTURE, targets_of(benchmark, known))
    for path, lines in (
        (page / "RESULTS.md", summary(benchmark, known, drawn)),
        (folder / "DETAILS.md", details(benchmark, known)),
    ):
        path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def summary(benchmark: Benchmark, results: Mapping[str, Result], drawn: bool) -> list[str]:
    """Return the lines of the summary page."""
    targets = targets_of(benchmark, results)
    measured = [target for target in targets if target.measured]
    reached = sum(target.reached for target in measured)
    lines = [f"# {benchmark.title}", "", circumstances(benchmark), ""]
    lines += [f"{reached} of the {len(measured)} measured targets are reached.", ""]
    lines += [f"![each target's result as a multiple of its goal]({PICTURE})", ""] if drawn else []
    lines += [*HEAD, *(target.row() for target in targets), "", benchmark.how, ""]
    lines += [
        f"`make bench-{benchmark.name}` measures everything and writes this page; `python -m "
        f"apps.bench.{benchmark.name} STUDY ...` measures some studies. All numbers and the tables "
        f"of each study are then in `runs/bench-{benchmark.name}/` (`results.json`, `DETAILS.md`).",
        "",
    ]
    limits = [result for result in results.values() if result.work == LIMITS]
    machine = [benchmark.studies[LIMITS].sentence(each) for each in limits]
    return [*lines, *machine, *([""] if machine else []), *note_lines(results)]


def details(benchmark: Benchmark, results: Mapping[str, Result]) -> list[str]:
    """Return the lines of the page with every study's tables."""
    lines = [f"# {benchmark.title}: all studies", "", circumstances(benchmark), ""]
    lines += [benchmark.how, ""]
    for name, result in results.items():
        study = benchmark.studies[result.work]
        lines += [f"## {study.TITLE} (`{name}`)", "", *tables_of(study, result)]
        lines += note_lines({name: result})
    return lines


def tables_of(study: Any, result: Result) -> list[str]:
    """Return the tables of a study, by default one table of all numbers."""
    tables: list[str] = getattr(study, "tables", all_numbers)(result)
    return tables


def all_numbers(result: Result) -> list[str]:
    """Return a table of the medians and ranges of all measurements, a row for each case."""
    measured = {name: each for name, each in result.outcomes.items() if each.values}
    keys = list(dict.fromkeys(key for each in measured.values() for key in each.values))
    rows = [[name, *(median_and_range(result, name, key) for key in keys)] for name in measured]
    return table(("case", *keys), rows)


def targets_of(benchmark: Benchmark, results: Mapping[str, Result]) -> list[Target]:
    """Return the targets of all studies."""
    studies = benchmark.studies
    return [target for each in results.values() for target in studies[each.work].targets(each)]


def circumstances(benchmark: Benchmark) -> str:
    """Return a line about the machine and the versions."""
    return (
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}, {kernels()}, Python "
        f"{platform.python_version()}; {versions(benchmark.packages)}."
    )


def kernels() -> str:
    """Return which instruction set the compiled kernels use here."""
    try:
        native = importlib.import_module("needle.backend_ndarray.ndarray_backend_cpu")
    except ImportError:
        return "C++ kernels not built"
    return f"{native.isa} kernels"


def note_lines(results: Mapping[str, Result]) -> list[str]:
    """Return a bullet for each set of notes, with the studies that share it."""
    sharing: dict[str, list[str]] = {}
    for name, result in results.items():
        if notes := " ".join(result.notes):
            sharing.setdefault(notes, []).append(name)
    lines = [f"- {'; '.join(names)}: {notes}" for notes, names in sharing.items()]
    return [*lines, ""] if lines else []


def versions(packages: Iterable[str]) -> str:
    """Return the versions of the packages that are installed, and "no NAME" for the others."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def draw_targets(path: Path, targets: Sequence[Target]) -> bool:
    """Draw a bar for each target into ``path``; return False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    known = [target for target in targets if target.measured][::-1]
    figure = Figure(figsize=(8, 1 + 0.16 * len(known)), layout="constrained")
    _draw_bars(figure.subplots(), known)
    figure.savefig(path, dpi=80)
    return True


def _draw_bars(axes: Any, targets: Sequence[Target]) -> None:
    """Draw each result as a multiple of its goal."""
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
