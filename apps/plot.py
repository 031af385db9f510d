"""Compares runs in one picture: python apps/plot.py runs/a runs/b ... --out comparison.png

Left the test accuracy over the epochs, right a bar a run: the mean seconds an epoch of training
waited for data and computed, labelled by source and workers. Reads what train.py wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the folder above is where apps.training is found
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps.training.records import TEST_EPOCH, TRAIN_EPOCH, read_records
from apps.training.report import figure_of
from needle.errors import DataError, NeedleError


@dataclass(frozen=True)
class Measured:
    """One run: its label, and the rows of its training and validation epochs."""

    label: str
    training: list[dict[str, float]]
    validation: list[dict[str, float]]

    @property
    def loading(self) -> float:
        """Mean seconds an epoch of training waited for data."""
        return _mean(row["loading"] for row in self.training)

    @property
    def computing(self) -> float:
        """Mean seconds of the rest of it."""
        return _mean(row["duration"] - row["loading"] for row in self.training)


def read_run(folder: Path) -> Measured:
    """A run's folder; DataError if it is none, or has no whole epoch yet."""
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        rows = read_records(folder / "metrics.csv")
        settings, workers = facts["settings"], facts["workers"]["count"]
        source = settings.get("source", "builtin")
        data = settings["data"] if source == "builtin" else f"{settings['data']} ({source})"
        label = f"{settings['model']}, {data}, {workers} worker{'s' * (workers != 1)}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"plot: {folder} is no folder of a run of apps/train.py ({error}); give others"
        ) from error
    kinds = ([r for r in rows if r["type"] == kind] for kind in (TRAIN_EPOCH, TEST_EPOCH))
    run = Measured(label, *kinds)
    if not run.validation:
        raise DataError(f"plot: {folder} has no whole epoch yet; wait, or leave it out")
    return run


def draw(runs: list[Measured], path: Path) -> None:
    """The picture."""
    figure, (left, right) = figure_of(width=6 + 1.1 * max(4, len(runs)), height=5, columns=2)
    for run in runs:
        epochs = [row["epoch"] for row in run.validation]
        left.plot(epochs, [r["value1"] for r in run.validation], marker=".", label=run.label)
    left.set_xlabel("epoch")
    left.set_ylabel("test accuracy")
    left.grid(alpha=0.3)
    left.legend(fontsize=8)
    places = range(len(runs))
    loading = [run.loading for run in runs]
    right.bar(places, loading, label="waiting for data")
    right.bar(places, [run.computing for run in runs], bottom=loading, label="computing")
    right.set_xticks(places, [run.label for run in runs], rotation=45, ha="right", fontsize=8)
    right.set_ylabel("seconds an epoch of training, mean")
    right.legend(fontsize=8)
    figure.savefig(path)


def table(runs: list[Measured]) -> list[str]:
    """The same as lines of text."""
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
    """Runs the program; returns its exit code."""
    parser = argparse.ArgumentParser(prog="apps/plot.py", description="Compares training runs.")
    parser.add_argument("runs", nargs="+", type=Path, help="folders that apps/train.py wrote")
    parser.add_argument("--out", type=Path, default=Path("comparison.png"), help="the picture")
    options = parser.parse_args(arguments)
    try:
        runs = [read_run(folder) for folder in options.runs]
        draw(runs, options.out)
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(runs)))
    print(f"drawn in {options.out}")
    return 0


def _mean(values: Any) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


if __name__ == "__main__":
    sys.exit(main())
