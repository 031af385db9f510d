"""The loader study's other table: batch sizes, 2 workers over sequential, level T2."""

from __future__ import annotations

from functools import partial

from . import ours, pictures
from .case import Case, Subject
from .epochs import Epochs
from .harness import Result
from .loader_tables import rate_table
from .settings import Settings
from .target import Target, median_and_range, short, table

TITLE = "JPEG files, batch sizes, 2 workers, level T2"
BATCHES = (10, 50, 100, 300, 500, 1000)
PUBLISHED = (1.542, 1.600, 1.567, 1.551, 1.483, 1.727)


def prepare(settings: Settings) -> None:
    """Write the files."""
    pictures.photo_folder(settings, settings.pick(1000, 16))


def cases(settings: Settings) -> list[Case]:
    """Return two cases for each batch size."""
    return [
        Case(
            name_of(batch, workers),
            partial(open_loader, batch=batch, workers=workers),
            ours.TWO_THREADS if workers else ours.ONE_THREAD,
            same_bytes="batches",
            rounds=3,
        )
        for batch in settings.pick(BATCHES, (4, 16))
        for workers in (0, 2)
    ]


def name_of(batch: int, workers: int) -> str:
    """Return the name of the case."""
    return f"batch {batch}, {f'{workers} workers' if workers else 'sequential'}"


def open_loader(settings: Settings, batch: int, workers: int) -> Subject:
    """Open a case of needle's loader."""
    root = pictures.photo_folder(settings, settings.pick(1000, 16))
    build = partial(ours.photo_loader, root, ours.T2, batch, workers)
    return Epochs(build, ours.tensors, least=settings.pick(0.5, 0.01))


def targets(result: Result) -> list[Target]:
    """Return the target: a speed-up of at least 1.85 for the worst batch size."""
    found = [
        (result.ratio(name_of(b, 2), name_of(b, 0), "rate"), b)
        for b in BATCHES
        if name_of(b, 2) in result.outcomes
    ]
    worst, batch = min(found, default=(float("nan"), 0))
    rates = (median_and_range(result, name_of(batch, w), "rate") for w in (2, 0))
    ours_rate, sequential = rates
    return [
        Target(
            f"every batch size, T2: 2 workers over sequential (worst: batch {batch})",
            worst,
            1.85,
            f"{ours_rate} images/s",
            f"{sequential} sequential",
        )
    ]


def tables(result: Result) -> list[str]:
    """Return the speed-ups with the published ones, then all numbers."""
    speeds = [result.ratio(name_of(b, 2), name_of(b, 0), "rate") for b in BATCHES]
    rows = [
        ["speed-up here", *map(short, speeds)],
        ["published in 2021", *map(str, PUBLISHED)],
    ]
    return [*table(("batch", *map(str, BATCHES)), rows), *rate_table(result, result.outcomes)]
