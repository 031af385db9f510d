"""The pages and the picture of the data module's benchmark. Called by __main__.py."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from needle.testing.installation import processor

from .harness import Result
from .results import PICTURE, draw_targets, note_lines, target_lines, versions, write_page
from .settings import Settings
from .studies import STUDIES
from .target import Target

PEERS = ("torch", "grain", "opencv-python-headless", "albumentations", "simplejpeg", "numpy")

HOW = (
    "Every case runs in its own process. The cases of a group take turns in shuffled order, "
    "{rounds} rounds unless a note says otherwise; numbers are medians, with the range over the "
    "rounds in brackets. Rates are those of whole epochs with the files in the page cache; the "
    "rate *from construction* is that of the first epoch and includes the start of the loader and "
    "its workers. CPU seconds are those of all processes together. Peak memory (PSS, which counts "
    "shared pages once) is measured in a separate epoch that is not timed and in which every byte "
    "is checked: needle's loaders must give the same bytes with every engine and number of "
    "workers, and all contestants the same mean."
)
AGAIN = (
    "`make bench-data` measures everything and writes this page; `python -m apps.bench.data STUDY` "
    "measures one study. All numbers, with the tables of each study, are then in "
    "`runs/bench-data/` (`results.json`, `DETAILS.md`). The studies:"
)


def write(page_folder: Path, folder: Path, results: dict[str, Result], settings: Settings) -> None:
    """Write RESULTS.md and its picture into ``page_folder``, and DETAILS.md into ``folder``."""
    page_folder.mkdir(parents=True, exist_ok=True)
    drawn = draw_targets(page_folder / PICTURE, targets_of(results))
    write_page(page_folder, "RESULTS.md", page(results, settings, drawn))
    write_page(folder, "DETAILS.md", details(results, settings))


def page(results: dict[str, Result], settings: Settings, drawn: bool) -> list[str]:
    """Return the lines of the summary page."""
    lines = ["# The data module, measured", "", circumstances(settings), ""]
    lines += target_lines(targets_of(results), drawn)
    lines += [HOW.format(rounds=settings.rounds), "", AGAIN, ""]
    lines += [f"- `{name}`: {STUDIES[name].TITLE}" for name in results]
    return [*lines, "", *note_lines(results)]


def details(results: dict[str, Result], settings: Settings) -> list[str]:
    """Return the lines of the page with every study's tables."""
    lines = ["# The data module, measured: all studies", "", circumstances(settings), ""]
    lines += [HOW.format(rounds=settings.rounds), ""]
    for name, result in results.items():
        lines += [f"## {STUDIES[name].TITLE}", "", f"`python -m apps.bench.data {name}`", ""]
        lines += [*STUDIES[name].tables(result), *note_lines({name: result})]
    return lines


def circumstances(settings: Settings) -> str:
    """Return a line about the machine, the date, the versions and the data."""
    pictures = "real photographs" if settings.photos else "made-up photographs"
    small = "CIFAR-10" if settings.cifar else "random pixels in place of CIFAR-10"
    quick = " **A quick run on tiny data: its numbers mean nothing.**" if settings.quick else ""
    return (
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}, Python "
        f"{platform.python_version()}; {versions(PEERS)}. {datetime.date.today()}, {pictures}, "
        f"{small}.{quick}"
    )


def targets_of(results: dict[str, Result]) -> list[Target]:
    """Return the targets of all studies."""
    return [target for name, result in results.items() for target in STUDIES[name].targets(result)]
