"""Measure needle beside PyTorch, and write the page of results.

``python -m apps.bench.against [--work NAMES] [--threads 1,2] [--batch N,...] [--quick]``. Numbers
go to results.json in ``--out``, from which RESULTS.md, its picture and DETAILS.md are made; work
that is not measured again keeps its earlier numbers. ``--page`` names another folder for RESULTS.md
and its picture: ``make bench-against`` gives the one in the repository.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from apps.bench.data.harness import Outcome, Result, run_study
from apps.bench.data.results import read_results, write_results

from . import report
from .settings import Settings
from .sides import is_peer
from .studies import STUDIES

OUT = Path("runs/bench-against")
PEERS = ("torch",)
BUSY = 0.5  # load of other programs from which the page mentions it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return 1 if needle failed. A peer that fails or is missing is a message."""
    options, failed = parse(arguments), False
    if importlib.util.find_spec(options.peer) is None:
        _say(f"{options.peer} is not installed: only needle is measured")
    results = read_results(options.out / "results.json")
    for threads in options.threads:
        for work in options.work:
            settings = settings_of(options, threads)
            result = measured(work, settings)
            failed = failed or any(ours_failed(outcome) for outcome in result.outcomes.values())
            results[result.study] = result
            results = {name: results[name] for name in sorted(results, key=report.place)}
            write_results(options.out / "results.json", results)
    page = options.page or options.out
    report.write(page, options.out, results)
    print(f"results: {page / 'RESULTS.md'}; all tables: {options.out / 'DETAILS.md'}")
    return 1 if failed else 0


def settings_of(options: argparse.Namespace, threads: int) -> Settings:
    """Return the settings of one piece of work."""
    return Settings(
        threads=threads,
        batches=options.batch,
        quick=options.quick,
        rounds=options.rounds,
        peer=options.peer,
        compiled=not options.eager,
        cpu_time=options.cpu_time and threads == 1,
    )


def ours_failed(outcome: Outcome) -> bool:
    """Return True if the outcome is an error of needle."""
    return outcome.error is not None and not is_peer(outcome.case)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m apps.bench.against", description=__doc__)
    add = parser.add_argument
    add("--peer", choices=PEERS, default=PEERS[0], help="the library to compare with")
    add("--work", type=_names, default=list(STUDIES), help=", ".join(STUDIES))
    add(
        "--threads",
        type=_counts,
        default=(1, os.cpu_count() or 1),
        help="numbers of threads, such as 1,2",
    )
    add(
        "--batch", type=_counts, help="batch sizes of training steps (default: those of each model)"
    )
    add("--rounds", type=int, help="rounds (default: 5)")
    add("--quick", action="store_true", help="tiny work, only to see that it runs")
    add("--eager", action="store_true", help="leave out torch.compile, which warms up slowly")
    add(
        "--cpu-time",
        action="store_true",
        help="measure processor time on one thread, for a shared machine",
    )
    add("--out", type=Path, default=OUT, help="folder of all numbers")
    add("--page", type=Path, help="folder of RESULTS.md (default: that of --out)")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.threads = tuple(dict.fromkeys(options.threads))
    return options


def measured(work: str, settings: Settings) -> Result:
    """Measure a piece of work; its notes tell when and how."""
    started, load = time.perf_counter(), others()
    result = run_study(work, STUDIES[work].cases(settings), settings, _say)
    count = settings.threads
    result.study = f"{work}, {count} thread{'s' if count > 1 else ''}"
    result.notes.append(f"Measured {datetime.date.today()}, rounds: {settings.rounds}.")
    if load > BUSY:
        result.notes.append(f"**The machine was shared**: load {load:.1f} before the start.")
    if not settings.compiled:
        result.notes.append("torch.compile was left out (`--eager`).")
    if settings.cpu_time:
        result.notes.append(
            "Times of pieces are processor time, not wall-clock time (`--cpu-time`)."
        )
    if settings.quick:
        result.notes.append("**A quick run on tiny work: its numbers mean nothing.**")
    _say(f"{result.study}: {time.perf_counter() - started:.0f} s")
    return result


def others() -> float:
    """Return the load average of the last minute; nan if it is unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def _say(line: str) -> None:
    print(line, flush=True)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown work {', '.join(unknown)}; give {', '.join(STUDIES)}"
        )
    return names


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(each) for each in text.split(","))
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return counts


if __name__ == "__main__":
    sys.exit(main())
