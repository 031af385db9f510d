"""Measure the data module beside PyTorch's and others, and write the page of results.

``python -m apps.bench.data [STUDY ...] [--quick]`` measures all studies or the named ones. Numbers
go to results.json in ``--out``, from which RESULTS.md, its picture and DETAILS.md are made; a study
that is not measured again keeps its earlier numbers. ``--page`` names another folder for RESULTS.md
and its picture: ``make bench-data`` gives the one in the repository.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import report
from .harness import Result, run_study
from .results import read_results, write_results
from .settings import Settings
from .studies import STUDIES

OUT = Path("runs/bench-data")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return 1 if a check failed, that is a contestant skipped work, else 0."""
    options = parse(arguments)
    results = read_results(options.out / "results.json")
    started = time.perf_counter()
    failed = False
    with tempfile.TemporaryDirectory(prefix="needle-bench-") as folder:
        rounds = options.rounds or (2 if options.quick else 5)
        settings = Settings(folder, options.photos, options.cifar, options.quick, rounds)
        for name in options.studies or STUDIES:
            result = measured(name, settings)
            results[name] = result
            failed = failed or bool(result.failed_checks)
    print(f"measured in {time.perf_counter() - started:.0f} s", flush=True)
    ordered = {name: results[name] for name in STUDIES if name in results}
    write_results(options.out / "results.json", ordered)
    page = options.page or options.out
    report.write(page, options.out, ordered, settings)
    print(f"results: {page / 'RESULTS.md'}; all tables: {options.out / 'DETAILS.md'}")
    return 1 if failed else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m apps.bench.data", description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--quick", action="store_true", help="tiny data, only to see that it runs")
    parser.add_argument("--photos", help="folder of JPEG photographs (else made-up ones)")
    parser.add_argument("--cifar", help="folder of CIFAR-10's batch files (else random pixels)")
    parser.add_argument("--rounds", type=int, help="timed runs of each case (default: 5)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of all numbers")
    parser.add_argument("--page", type=Path, help="folder of RESULTS.md (default: that of --out)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.studies if name not in STUDIES]
    if unknown:
        parser.error(f"unknown study {', '.join(unknown)}; give {', '.join(STUDIES)}")
    return options


def measured(name: str, settings: Settings) -> Result:
    """Write the files of a study and run it."""
    study = STUDIES[name]
    started = time.perf_counter()
    if hasattr(study, "prepare"):
        study.prepare(settings)
    result = run_study(name, study.cases(settings), settings, lambda line: print(line, flush=True))
    for failure in result.failed_checks:
        print(f"CHECK FAILED: {failure}", flush=True)
    print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
