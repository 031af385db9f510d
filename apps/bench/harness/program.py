"""The command line of a benchmark: measure its studies and write its pages.

``python -m apps.bench.NAME [STUDY ...]``. A study that is not measured again keeps its earlier
numbers.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import needle
from needle import config

from . import report
from .report import Benchmark
from .settings import Settings
from .turns import Result, run_study

BUSY = 0.5
"""The page mentions a load of other programs from this load average on."""


def main(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Run the program; return 1 if a contestant of needle failed.

    A peer that fails or is not installed is a note on the page.
    """
    options = parse(benchmark, arguments)
    why = needle.device(options.device).why()
    if why:
        print(f"needle: {why}")
        return 1
    results, failed = report.read_results(options.out / "results.json"), False
    with tempfile.TemporaryDirectory(prefix="needle-bench-") as folder:
        for threads in options.threads:
            for work in options.studies:
                settings = settings_of(benchmark, options, threads, folder)
                if not benchmark.studies[work].cases(settings):
                    _say(f"{work}: nothing to measure on {options.device}")
                    continue
                result = measured(benchmark, work, settings)
                failed = failed or ours_failed(result)
                results[result.study] = result
                results = {name: results[name] for name in sorted(results, key=benchmark.place)}
                report.write_results(options.out / "results.json", results)
                report.write(benchmark, results, options.page or options.out, options.out)
    page = options.page or options.out
    print(f"results: {page / 'RESULTS.md'}; all tables: {options.out / 'DETAILS.md'}")
    return 1 if failed else 0


def parse(benchmark: Benchmark, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    known = benchmark.studies
    parser = argparse.ArgumentParser(
        prog=f"python -m apps.bench.{benchmark.name}",
        description="Compare needle with others, and write the page of results.",
    )
    add = parser.add_argument
    add("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(known)} (default: all)")
    add("--rounds", type=int, help="timed runs of each case (default: 5)")
    add("--quick", action="store_true", help="tiny work, only to see that it runs")
    add("--device", default="cpu", help="needle's device (default: cpu)")
    add("--out", type=Path, help="folder of all numbers (default: in runs/)")
    add("--page", type=Path, help="folder of RESULTS.md (default: that of --out)")
    if benchmark.counts:
        every = (1, os.cpu_count() or 1)
        add("--threads", type=_counts, default=every, help="numbers of threads, such as 1,2")
        words = "leave out torch.compile, which warms up slowly"
        add("--eager", dest="compiled", action="store_false", help=words)
        choices = config.matmul_precision.choices
        add("--precision", choices=choices, default="float32", help="of products on a GPU")
    else:
        add("--photos", help="folder of JPEG photographs (else generated ones)")
        add("--cifar", help="folder of CIFAR-10's batch files (else random pixels)")
        parser.set_defaults(threads=(0,))
    options = parser.parse_args(arguments)
    unknown = [name for name in options.studies if name not in known]
    if unknown:
        parser.error(f"unknown study {', '.join(unknown)}; give {', '.join(known)}")
    options.studies = options.studies or list(known)
    options.out = options.out or Path(f"runs/bench-{benchmark.name}")
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.threads = tuple(dict.fromkeys(options.threads))
    return options


def settings_of(
    benchmark: Benchmark, options: argparse.Namespace, threads: int, folder: str
) -> Settings:
    """Return the settings of one study from the options that this benchmark has."""
    names = {field.name for field in fields(Settings)}
    given = {name: value for name, value in vars(options).items() if name in names}
    return Settings(**{**given, "studies": benchmark.module, "threads": threads, "folder": folder})


def measured(benchmark: Benchmark, work: str, settings: Settings) -> Result:
    """Measure a study; its notes record when and how."""
    started, load, study = time.perf_counter(), os.getloadavg()[0], benchmark.studies[work]
    if hasattr(study, "prepare"):
        study.prepare(settings)
    result = run_study(work, study.cases(settings), settings, _say)
    if settings.threads:
        result.study += f", {settings.threads} thread{'s' if settings.threads > 1 else ''}"
    times = f"{settings.rounds} round{'s' if settings.rounds > 1 else ''}"
    result.notes.append(f"measured on {datetime.date.today()} in {times}.")
    if load > BUSY:
        result.notes.append(f"The machine was shared: its load was {load:.1f} before the start.")
    if settings.device != "cpu":
        result.notes.append(f"On {settings.device}, products in {settings.precision}.")
    if not settings.compiled:
        result.notes.append("torch.compile was left out (`--eager`).")
    if settings.quick:
        result.notes.append("**A quick run on tiny work: its numbers mean nothing.**")
    _say(f"{result.study}: {time.perf_counter() - started:.0f} s")
    return result


def ours_failed(result: Result) -> bool:
    """Return True if a contestant of needle failed."""
    outcomes = result.outcomes.values()
    return any(each.error is not None and each.case.startswith("needle") for each in outcomes)


def _say(line: str) -> None:
    print(line, flush=True)


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(each) for each in text.split(","))
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return counts
