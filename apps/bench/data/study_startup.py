"""Start-up: seconds to the first batch, and the additional seconds with 1.2 million paths.

needle's paths are in a StringTable, as ImageFolder stores them, and torch's in a list.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import needle.data as data
from apps.bench.harness.case import Case, Numbers, Once, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range
from apps.bench.harness.turns import Result
from needle.data.formats.string_table import StringTable

from . import peers

TITLE = "Start-up with 1.2 million paths, 2 workers: seconds to the first batch"
WORKERS = 2
OURS, TORCH = "needle, 1.2 M paths", "torch, spawn"


def cases(settings: Settings) -> list[Case]:
    """Return the case of needle and that of torch."""
    return [Case(OURS, open_ours, rounds=3), Case(TORCH, open_torch, {}, ("torch",), rounds=2)]


class Paths:
    """A data set that holds a list of paths and returns their lengths."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return max(len(self.paths), 64)

    def __getitem__(self, index: int) -> Any:
        path = self.paths[index] if len(self.paths) else ""
        return np.int64(len(path)), np.int64(index)


def paths(settings: Settings) -> list[str]:
    """Return paths like those of a large data set of photographs."""
    count = settings.pick(1_200_000, 12_000)
    return [f"train/n{i // 1300:08d}/n{i // 1300:08d}_{i}.JPEG" for i in range(count)]


def open_ours(settings: Settings) -> Subject:
    """Open the case of needle's loader."""
    build = partial(data.DataLoader, batch_size=16, num_workers=WORKERS)
    return Once(partial(both, build, StringTable(paths(settings))))


def open_torch(settings: Settings) -> Subject:
    """Open the case of PyTorch's loader."""

    def build(dataset: Any) -> Any:
        return peers.torch_loader(dataset, 16, WORKERS, multiprocessing_context="spawn")

    return Once(partial(both, build, paths(settings)))


def both(build: Callable[[Any], Any], names: Any) -> Numbers:
    """Return the seconds with all paths, and the difference from the seconds without paths."""
    empty, full = (to_first_batch(build, Paths(found)) for found in ([], names))
    return {"full": full, "more": full - empty}


def to_first_batch(build: Callable[[Any], Any], dataset: Any) -> float:
    """Return the seconds from before the loader's construction to its first batch."""
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
    """Return the target: 1.2 million paths add at most one second."""
    words = [
        f"{median_and_range(result, name, 'more')} s more, first batch after "
        f"{median_and_range(result, name, 'full')} s"
        for name in (OURS, TORCH)
    ]
    what, value = "start-up with 1.2 M paths: more than with none", result.median(OURS, "more")
    return [Target(what, value, 1.0, *words, at_most=True, unit="s")]
