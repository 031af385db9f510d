"""Start-up: seconds to the first batch of a program's loaders, and more with 1.2 million paths."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import needle.data as data
from apps.bench.harness.case import Case, Numbers, Once, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range, spread, table
from apps.bench.harness.turns import Result
from needle.data.formats.string_table import StringTable

from . import ours, peers

TITLE = "Start-up, 2 workers: seconds to the first batch, with 1.2 million paths too"
WORKERS, LOADERS = 2, 5
OURS = "needle, 1.2 M paths"
PROGRAM, TORCH_PROGRAM = "needle, a program's loaders", "torch, fork, a program's loaders"


def cases(settings: Settings) -> list[Case]:
    """Return the cases of a program's loaders, and of many paths; torch's by start method.

    needle's paths are in the table of text in which ImageFolder holds them, torch's in a list.
    """
    found = [
        Case(PROGRAM, partial(open_program, library="needle")),
        Case(TORCH_PROGRAM, partial(open_program, library="torch"), {}, ("torch",)),
    ]
    found.append(Case(OURS, open_ours, rounds=3))
    for method in ("spawn", "forkserver"):
        if method == "spawn" or not settings.quick:
            opening = partial(open_torch, method=method)
            found.append(Case(f"torch, {method}", opening, {}, ("torch",), rounds=2))
    return found


def open_program(settings: Settings, library: str) -> Subject:
    """Open a program that makes loaders of one library, started again for each measurement."""
    return Once(partial(in_a_program, library))


def in_a_program(library: str) -> Numbers:
    """Return the seconds to the first batch of a program's first loader and of further ones."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "apps.bench.data.first_batches", library, str(LOADERS)]
    out = subprocess.check_output(command, env=environment, text=True)
    first, *further = map(float, out.split())
    return {"first": first, "further": statistics.median(further)}


def paths(settings: Settings) -> list[str]:
    """Return paths like those of a large data set of photographs."""
    count = settings.pick(1_200_000, 12_000)
    return [f"train/n{i // 1300:08d}/n{i // 1300:08d}_{i}.JPEG" for i in range(count)]


def open_ours(settings: Settings) -> Subject:
    """Open a case of needle's loader."""
    build = partial(data.DataLoader, batch_size=16, num_workers=WORKERS)
    return Once(partial(both, build, StringTable(paths(settings))))


def open_torch(settings: Settings, method: str) -> Subject:
    """Open a case of PyTorch's loader."""

    def build(dataset: Any) -> Any:
        return peers.torch_loader(dataset, 16, WORKERS, multiprocessing_context=method)

    return Once(partial(both, build, paths(settings)))


def both(build: Callable[[Any], Any], names: Any) -> Numbers:
    """Return seconds without paths, with all paths, and their difference."""
    empty, full = (to_first_batch(build, ours.Paths(found)) for found in ([], names))
    return {"empty": empty, "full": full, "more": full - empty}


def to_first_batch(build: Callable[[Any], Any], dataset: Any) -> float:
    """Return the seconds from before the loader is made to the first batch."""
    started = time.perf_counter()
    loader = build(dataset)
    batches = iter(loader)
    next(batches)
    seconds = time.perf_counter() - started
    del batches
    close = getattr(loader, "close", None)
    if close is not None:
        close()
    return seconds


def targets(result: Result) -> list[Target]:
    """Return the targets: those of a program's loaders, and at most a second more with paths."""
    found = []
    for key, goal in (("first", 0.15), ("further", 0.03)):
        words = [f"{median_and_range(result, n, key)} s" for n in (PROGRAM, TORCH_PROGRAM)]
        what = f"first batch of the {key} loader of a program, {WORKERS} workers"
        value = result.median(PROGRAM, key)
        found.append(Target(what, value, goal, *words, at_most=True, unit="s"))
    words = [
        f"{median_and_range(result, name, 'more')} s more, first batch after "
        f"{median_and_range(result, name, 'full')} s"
        for name in (OURS, "torch, spawn")
    ]
    what, value = "start-up with 1.2 M paths: more than with none", result.median(OURS, "more")
    return [*found, Target(what, value, 1.0, *words, at_most=True, unit="s")]


def tables(result: Result) -> list[str]:
    """Return a table of the loaders of a program, and one of those with many paths."""
    return [
        *_table(result, {"first": "first loader, s", "further": "further loaders, s"}),
        *_table(result, {"empty": "no path, s", "full": "1.2 M paths, s", "more": "more, s"}),
    ]


def _table(result: Result, keys: dict[str, str]) -> list[str]:
    rows = [
        [name, *(spread(outcome.median(key), outcome.span(key)) for key in keys)]
        for name, outcome in result.outcomes.items()
        if set(keys) <= set(outcome.values)
    ]
    return table(("first batch of", *keys.values()), rows)
