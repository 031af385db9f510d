"""Compare runs in one picture: python apps/plot.py runs/a runs/b ... --out comparison.png

The left panel shows the test accuracy over the epochs. The right panel has a bar for each run: the
mean seconds per training epoch spent waiting for data and computing, grouped by source and number
of workers. The program reads the files that train.py writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

if not __package__:  # run as a script, so make the package ``apps`` importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps.training.figures import figure_of
from apps.training.records import TEST_EPOCH, TRAIN_EPOCH, read_records
from needle.errors import DataError, NeedleError


@dataclass(frozen=True)
class Measured:
    """A run: its data source, its number of workers, and one row per epoch."""

    source: str
    workers: int
    training: list[dict[str, float]]
    validation: list[dict[str, float]]

    @property
    def label(self) -> str:
        """The title of the run."""
        return f"{self.source}, {self.workers} worker{'s' * (self.workers != 1)}"

    @property
    def loading(self) -> float:
        """Mean seconds per training epoch spent waiting for data."""
        return fmean(row["loading"] for row in self.training)

    @property
    def computing(self) -> float:
        """Mean seconds per training epoch spent computing."""
        return fmean(row["duration"] - row["loading"] for row in self.training)


def read_run(folder: Path) -> Measured:
    """Read a run's folder; DataError if it is not one or has no complete epoch yet."""
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        rows = read_records(folder / "metrics.csv")
        settings, workers = facts["settings"], facts["workers"]["count"]
        source = settings.get("source", "builtin")
        data = settings["data"] if source == "builtin" else f"{settings['data']} ({source})"
        name = f"{settings['model']}, {data}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"plot: {folder} is not a run of apps/train.py ({error}); give another folder"
        ) from error
    kinds = ([r for r in rows if r["type"] == kind] for kind in (TRAIN_EPOCH, TEST_EPOCH))
    run = Measured(name, workers, *kinds)
    if not run.validation:
        raise DataError(f"plot: {folder} has no complete epoch yet; wait, or leave it out")
    return run


GAP = 0.8
"""Gap between the bars of two sources."""
WIDEST = 22.0


def draw(runs: list[Measured], path: Path) -> None:
    """Draw the picture."""
    width = min(WIDEST, 6 + 1.1 * max(4, len(runs)))
    figure, (left, right) = figure_of(width=width, height=6, columns=2)
    _draw_curves(left, runs)
    draw_bars(right, runs)
    figure.savefig(path)


def _draw_curves(axes: Any, runs: list[Measured]) -> None:
    """Draw the test accuracy over the epochs, a line for each run."""
    for run in runs:
        epochs = [row["epoch"] for row in run.validation]
        axes.plot(epochs, [r["value1"] for r in run.validation], marker=".", label=run.label)
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=1 + len(runs) // 12)


def draw_bars(axes: Any, runs: list[Measured]) -> None:
    """Draw seconds per epoch, a bar for each run, grouped by source and ordered by workers."""
    sources = list(dict.fromkeys(run.source for run in runs))
    ordered = sorted(runs, key=lambda run: (sources.index(run.source), run.workers))
    places = [i + GAP * sources.index(run.source) for i, run in enumerate(ordered)]
    loading = [run.loading for run in ordered]
    axes.bar(places, loading, label="waiting for data")
    axes.bar(places, [run.computing for run in ordered], bottom=loading, label="computing")
    axes.set_xticks(places, [str(run.workers) for run in ordered])
    axes.set_xlabel("workers")
    axes.set_ylabel("mean seconds per training epoch")
    axes.legend(fontsize=8)
    each = [[at for at, run in zip(places, ordered) if run.source == name] for name in sources]
    above = axes.secondary_xaxis("top")
    above.set_xticks([sum(group) / len(group) for group in each], sources, fontsize=8)
    above.tick_params(length=0, rotation=0 if len(sources) < 3 else 20)


def table(runs: list[Measured]) -> list[str]:
    """Return the same numbers as lines of text."""
    head = (
        f"{'run':<44} {'epochs':>6} {'waiting s':>10} {'computing s':>11} {'best':>8} {'top-5':>8}"
    )
    lines = [head]
    for run in runs:
        best = max(run.validation, key=lambda row: row["value1"])
        lines.append(
            f"{run.label:<44} {len(run.validation):>6} {run.loading:>10.3f} {run.computing:>11.3f} "
            f"{best['value1']:>8.2%} {best['value2']:>8.2%}"
        )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m needle plot", description="Compare training runs."
    )
    parser.add_argument("runs", nargs="+", type=Path, help="folders written by apps/train.py")
    parser.add_argument("--out", type=Path, default=Path("comparison.png"), help="the picture")
    options = parser.parse_args(arguments)
    try:
        runs = [read_run(folder) for folder in options.runs]
        draw(runs, options.out)
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(runs)))
    print(f"picture: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
