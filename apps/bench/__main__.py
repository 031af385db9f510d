"""Times needle's devices, and PyTorch where it is installed, side by side: a first impression.

Rounds go through all contestants in turn, so that a slow moment of the machine meets each of them;
the median over rounds is given, and the median of the ratios of one round to PyTorch's. The work is
in work.py. Run as ``python -m apps.bench [--rounds N] [--out FILE]``. The careful comparison is
``python -m apps.bench.against``.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from apps.profiling.limits import processor

from .native import kernels, threads
from .work import WORK, Step, contestants

Times = dict[str, list[float]]
LEAST_SECONDS = 0.02  # of one sample; short work is repeated until it takes this long


def main(arguments: list[str] | None = None) -> int:
    """Measures all rows of WORK and writes the table."""
    parser = argparse.ArgumentParser(prog="python -m apps.bench", description="times needle")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="a file for the table too")
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
    """Seconds of one call, ``rounds`` samples for each contestant, taken in turn."""
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
    """How many calls make a sample; also warms up."""
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
    """What was measured, where and how."""
    return [
        "# Benchmark",
        "",
        f"`python -m apps.bench --rounds {rounds}`: milliseconds a call, median of {rounds} rounds "
        "in which all take turns; smaller is better.",
        f"In brackets: this time over PyTorch's, median over the rounds. {processor()}, "
        f"{kernels()} on {threads()} threads, Python {platform.python_version()}.",
        "",
    ]


def table_head(names: list[str]) -> list[str]:
    """The first two lines of the table."""
    return [f"| work | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]


def row(title: str, names: list[str], times: Times) -> str:
    """One line of the table."""
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
