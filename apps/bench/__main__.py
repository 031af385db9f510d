"""Time needle's devices, and PyTorch if it is installed, side by side in a short run.

Contestants take turns in every round, so that a slow moment of the machine affects each of them.
The table has medians over the rounds and medians of the paired ratios to PyTorch's times. work.py
defines the work. Run as ``python -m apps.bench [--rounds N] [--out FILE]``; ``python -m
apps.bench.against`` is the thorough comparison.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from needle.testing.installation import processor

from .native import kernels, threads
from .work import WORK, Step, contestants

Times = dict[str, list[float]]
LEAST_SECONDS = 0.02  # least duration of a sample; short work is repeated


def main(arguments: list[str] | None = None) -> int:
    """Measure all rows of WORK and write the table."""
    parser = argparse.ArgumentParser(prog="python -m apps.bench", description="times needle")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args(arguments)
    names = contestants()
    lines = [*heading(options.rounds), *table_head(names)]
    print("\n".join(lines), flush=True)
    for title, build in WORK.items():
        steps = {name: build(name) for name in names}
        times = measure(steps, options.rounds)
        lines.append(row(title, names, times))
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"written to {options.out}")
    return 0


def measure(steps: dict[str, Step], rounds: int, clock: Callable[[], float] | None = None) -> Times:
    """Return seconds of a call, ``rounds`` samples for each contestant, taken in turns."""
    now = clock or time.perf_counter
    calls = {name: calls_for(step, now) for name, step in steps.items()}
    times: Times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            started = now()
            for _ in range(calls[name]):
                step()
            times[name].append((now() - started) / calls[name])
    return times


def calls_for(step: Step, now: Callable[[], float]) -> int:
    """Warm up and return the number of calls of a sample."""
    step()
    calls = 1
    while True:
        started = now()
        for _ in range(calls):
            step()
        if now() - started >= LEAST_SECONDS:
            return calls
        calls *= 2


def heading(rounds: int) -> list[str]:
    """Return the heading: what was measured, where and how."""
    return [
        "# Benchmark",
        "",
        f"`python -m apps.bench --rounds {rounds}`: milliseconds per call, median of {rounds} "
        "rounds in which all contestants take turns; smaller is better.",
        f"In brackets: this time over PyTorch's, median over the rounds. {processor()}, "
        f"{kernels()} on {threads()} threads, Python {platform.python_version()}.",
        "",
    ]


def table_head(names: list[str]) -> list[str]:
    """Return the first two lines of the table."""
    return [f"| work | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]


def row(title: str, names: list[str], times: Times) -> str:
    """Return a row of the table."""
    cells = []
    for name in names:
        cell = f"{statistics.median(times[name]) * 1000:.3g}"
        if "torch" in times and name != "torch":
            pairs = zip(times[name], times["torch"], strict=True)
            cell += f" ({statistics.median(own / other for own, other in pairs):.2f})"
        cells.append(cell)
    return f"| {title} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
