"""Measures the data module beside PyTorch's and others; writes RESULTS.md and results.png.

``python -m apps.bench.data [STUDY ...] [--quick]``: all studies or those named. Numbers go to
results.json too, from which the page is drawn: studies left out keep their earlier numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import report
from .harness import Result, run_study
from .settings import Settings
from .studies import STUDIES

HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where a check failed: a contestant that skipped work."""
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
    report.write(options.out, ordered, settings)
    print(f"written to {options.out / 'RESULTS.md'}")
    return 1 if failed else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m apps.bench.data", description=__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--quick", action="store_true", help="tiny data: does it run?")
    parser.add_argument("--photos", help="folder of JPEG photographs (else made-up ones)")
    parser.add_argument("--cifar", help="folder of CIFAR-10's batch files (else random pixels)")
    parser.add_argument("--rounds", type=int, help="timed runs of each case, 5 by default")
    parser.add_argument("--out", type=Path, default=HERE, help="where the page is written")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.studies if name not in STUDIES]
    if unknown:
        parser.error(f"no study {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    return options


def measured(name: str, settings: Settings) -> Result:
    """One study, its files laid out first."""
    study = STUDIES[name]
    started = time.perf_counter()
    if hasattr(study, "prepare"):
        study.prepare(settings)
    result = run_study(name, study.cases(settings), settings, lambda line: print(line, flush=True))
    for failure in result.failed_checks:
        print(f"CHECK FAILED: {failure}", flush=True)
    print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    return result


def read_results(path: Path) -> dict[str, Result]:
    """Of earlier runs; empty where there is none."""
    if not path.is_file():
        return {}
    records = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result.from_dict(record) for name, record in records.items()}


def write_results(path: Path, results: dict[str, Result]) -> None:
    """All numbers, four figures each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = {name: result.to_dict() for name, result in results.items()}
    for record in records.values():
        for outcome in record["outcomes"].values():
            values = outcome["values"]
            outcome["values"] = {k: [float(f"{v:.4g}") for v in vs] for k, vs in values.items()}
    path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
