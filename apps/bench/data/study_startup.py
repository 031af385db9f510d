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
from needle.data.formats.string_table import StringTable

from . import ours, peers
from .case import Case, Numbers, Once, Subject
from .harness import Result
from .settings import Settings
from .target import Target, median_and_range, spread, table

TITLE = "Start-up with 1.2 million paths, 2 workers: seconds to the first batch"
WORKERS = 2
METHODS = ("spawn", "forkserver")
PROGRAMS = {"needle, a program's loaders": "needle", "torch, fork, a program's loaders": "torch"}


def cases(settings: Settings) -> list[Case]:
    """Return the cases by start method; paths are a list of str, or needle's table of text."""
    found = [
        Case(
            name,
            partial(open_program, library=library),
            {},
            () if library == "needle" else ("torch",),
        )
        for name, library in PROGRAMS.items()
    ]
    for kind in ("list", "table"):
        found.append(Case(f"needle, forkserver, {kind}", partial(open_ours, kind=kind), rounds=3))
    for method in METHODS:
        if method == "spawn" or not settings.quick:
            opening = partial(open_torch, method=method)
            rounds = 2 if method == "spawn" else 1
            found.append(Case(f"torch, {method}, list", opening, {}, ("torch",), rounds=rounds))
    return found


def open_program(settings: Settings, library: str) -> Subject:
    """Open a program that makes loaders of one library, started again for each measurement."""
    return Once(partial(in_a_program, library))


def in_a_program(library: str) -> Numbers:
    """Return the seconds to the first batch of a program's first loader and of further ones."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "apps.bench.data.first_batches", library]
    out = subprocess.check_output(command, env=environment, text=True)
    first, *further = map(float, out.split())
    return {"first": first, "further": statistics.median(further)}


def paths(settings: Settings) -> list[str]:
    """Return paths like those of a large data set of photographs."""
    count = settings.pick(1_200_000, 12_000)
    return [f"train/n{i // 1300:08d}/n{i // 1300:08d}_{i}.JPEG" for i in range(count)]


def open_ours(settings: Settings, kind: str) -> Subject:
    """Open a case of needle's loader. kind: that of the data set's paths."""
    names: Any = paths(settings)
    if kind == "table":
        names = StringTable(names)

    def build(dataset: Any) -> Any:
        return data.DataLoader(dataset, 16, num_workers=WORKERS)

    return Once(partial(both, build, names))


def open_torch(settings: Settings, method: str) -> Subject:
    """Open a case of PyTorch's loader."""
    names = paths(settings)

    def build(dataset: Any) -> Any:
        return peers.torch_loader(dataset, 16, WORKERS, multiprocessing_context=method)

    return Once(partial(both, build, names))


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
    ours, theirs = PROGRAMS
    for key, goal in (("first", 0.15), ("further", 0.03)):
        words = [f"{median_and_range(result, name, key)} s" for name in (ours, theirs)]
        name = f"first batch of the {key} loader of a program, {WORKERS} workers"
        found.append(Target(name, result.median(ours, key), goal, *words, at_most=True, unit="s"))
    for method in METHODS:
        for kind, words in (("table", "as ImageFolder holds them"), ("list", "in a list")):
            own, peer = (
                f"{median_and_range(result, name, 'more')} s more, first batch after "
                f"{median_and_range(result, name, 'full')} s"
                for name in (f"needle, {method}, {kind}", f"torch, {method}, list")
            )
            found.append(
                Target(
                    f"start-up with 1.2 M paths {words}, {method}: more than with none",
                    result.median(f"needle, {method}, {kind}", "more"),
                    1.0,
                    own,
                    f"torch, a list: {peer}",
                    at_most=True,
                    unit="s",
                )
            )
    return found


def tables(result: Result) -> list[str]:
    """Return two tables of seconds."""
    starts = [
        [name, *(spread(o.median(key), o.span(key)) for key in ("first", "further"))]
        for name, o in result.outcomes.items()
        if "first" in o.values
    ]
    rows = [
        [name, *(spread(o.median(key), o.span(key)) for key in ("empty", "full", "more"))]
        for name, o in result.outcomes.items()
        if "more" in o.values
    ]
    return [
        *table(("first batch of", "first loader, s", "further loaders, s"), starts),
        "",
        *table(("", "no path, s", "1.2 M paths, s", "more, s"), rows),
    ]
