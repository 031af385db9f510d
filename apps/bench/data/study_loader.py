"""The loader study: JPEG files with four levels of transforms and 0 to 8 workers.

A publication of 2021 reported speed-ups of up to 7 with 6 workers on two cores; its sequential pass
ran first, on a cold cache. Here the order is shuffled, and cold and warm runs are separate.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from . import ours, peers, pictures
from .case import Case, Subject
from .epochs import Epochs
from .harness import Result
from .loader_tables import rate_table
from .settings import Settings
from .target import Target, median_and_range, short, table

TITLE = "JPEG files, four levels of transforms in the workers, batches of 300"
COUNT = 600
WORKERS = (0, 1, 2, 4, 6, 8)
HEADLINE = (0, 2, 8)
TORCH_WORKERS = (0, 2, 8)
PUBLISHED = {
    "T1": (1.035, 1.385, 1.875, 2.146, 1.938),
    "T2": (3.558, 5.026, 6.398, 7.162, 4.505),
    "T3": (4.291, 5.943, 6.817, 4.654, 2.745),
    "T4": (4.527, 6.685, 5.057, 3.581, 2.153),
}


def prepare(settings: Settings) -> None:
    """Write the files."""
    pictures.photo_folder(settings, settings.pick(COUNT, 16))


def cases(settings: Settings) -> list[Case]:
    """Return the cases, a group for each level."""
    found = []
    for level in ours.LEVELS:
        tag = f"loader {level}"
        for workers in settings.pick(WORKERS, (0, 2)):
            opening = partial(open_ours, level=level, workers=workers)
            threads = ours.TWO_THREADS if workers else ours.ONE_THREAD
            rounds = None if workers in HEADLINE and level != "T1" else 3
            name = name_of(level, workers)
            case = Case(name, opening, threads, group=level, same_bytes=tag, rounds=rounds)
            found.append(case)
    for workers in (0, 2):
        opening = partial(open_ours, level="T2", workers=workers, cold=True)
        name = name_of("T2", workers) + ", cold"
        threads = ours.TWO_THREADS if workers else ours.ONE_THREAD
        found.append(Case(name, opening, threads, group="T2", rounds=3))
    for workers in settings.pick(TORCH_WORKERS, (2,)):
        opening = partial(open_torch, workers=workers)
        name = "torch, " + name_of("T2", workers)
        needs = ("torch", "cv2", "simplejpeg")
        found.append(Case(name, opening, ours.ONE_THREAD, needs, group="T2"))
    return [each for level in ours.LEVELS for each in found if each.group == level]


def name_of(level: str, workers: int) -> str:
    """Return the name of the case with this number of workers."""
    return f"{level}, {workers} workers" if workers else f"{level}, sequential"


def open_ours(settings: Settings, level: str, workers: int, cold: bool = False) -> Subject:
    """Open a case of needle's loader; ``cold`` drops the files from the cache before each epoch."""
    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))
    transforms, batch = ours.LEVELS[level], settings.pick(300, 8)
    before = partial(pictures.drop_from_cache, pictures.files(root)) if cold else None
    build = partial(ours.photo_loader, root, transforms, batch, workers)
    return Epochs(build, ours.tensors, before=before, least=settings.pick(0.5, 0.01))


def open_torch(settings: Settings, workers: int) -> Subject:
    """Open the same case of PyTorch's loader with OpenCV and simplejpeg."""
    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))

    def build() -> Any:
        photos = peers.Photos(root, peers.level_two)
        return peers.torch_loader(photos, settings.pick(300, 8), workers)

    return Epochs(build, peers.torch_arrays, least=settings.pick(0.5, 0.01))


def speed_up(result: Result, level: str, workers: int) -> float:
    """Return the speed-up over the sequential pass of the same level, both warm."""
    return result.ratio(name_of(level, workers), name_of(level, 0), "rate")


def targets(result: Result) -> list[Target]:
    """Return the targets: at least 1.85 with two workers, and at most 10 % less with eight."""
    found = []
    for level in ("T2", "T3", "T4"):
        two, eight = (result.median(name_of(level, workers), "rate") for workers in (2, 8))
        found.append(
            Target(
                f"{level}: 2 workers over sequential",
                speed_up(result, level, 2),
                1.85,
                f"{median_and_range(result, name_of(level, 2), 'rate')} images/s",
                f"{median_and_range(result, name_of(level, 0), 'rate')} sequential, one thread",
            )
        )
        found.append(
            Target(
                f"{level}: 8 workers over 2",
                eight / two,
                0.9,
                f"{median_and_range(result, name_of(level, 8), 'rate')} images/s",
                f"{median_and_range(result, name_of(level, 2), 'rate')} with 2 workers",
            )
        )
    return found


def tables(result: Result) -> list[str]:
    """Return the speed-ups with the published ones, the effect of the cache, and all numbers."""
    rows = []
    for level, published in PUBLISHED.items():
        speeds = [short(speed_up(result, level, workers)) for workers in WORKERS[1:]]
        rows.append([level, *speeds])
        rows.append([f"{level}, published in 2021", *map(str, published)])
    lines = [
        "Speed-up over the sequential pass, warm, order shuffled (two cores: at most 2):",
        "",
        *table(("workers", *map(str, WORKERS[1:])), rows),
    ]
    cold = [result.median(name_of("T2", w) + ", cold", "rate") for w in (0, 2)]
    warm = [result.median(name_of("T2", w), "rate") for w in (0, 2)]
    if cold[0] == cold[0]:
        lines += [
            f"Effect of the order in the published table: T2 with 2 workers on a warm cache over a "
            f"sequential pass that ran first, cold ({short(cold[0])} images/s), is "
            f"{short(warm[1] / cold[0])}; over one that ran second, warm ({short(warm[0])}), "
            f"{short(warm[1] / warm[0])}; both cold ({short(cold[1])}), {short(cold[1] / cold[0])}."
            " The time of a cold pass depends on the disk.",
            "",
        ]
    return [*lines, *rate_table(result, result.outcomes)]
