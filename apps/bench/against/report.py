"""The pages and the picture of the comparison with PyTorch. Called by __main__.py."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from apps.bench.data.harness import Result
from apps.bench.data.results import (
    PICTURE,
    draw_targets,
    note_lines,
    target_lines,
    versions,
    write_page,
)
from apps.bench.data.target import Target
from apps.bench.native import kernels
from needle.testing.installation import processor

from . import study_limits
from . import tables as t
from .studies import STUDIES

HOW = (
    "Every contestant runs in its own process, all libraries with the same number of threads, and "
    "takes turns with the others in shuffled order; times are medians over the rounds, with the "
    "range in brackets. A ratio (×) of speeds is the time of PyTorch's fastest variant over the "
    "time of needle's fastest variant, paired round by round. PyTorch's variants are eager, eager "
    "with tensors in channels-last order, and torch.compile (training steps and memory-bound "
    "operations; for a product or a convolution alone it calls the same kernel); its optimisers "
    "are the fused ones. *needle, captured* is `needle.capture`. The models in plain torch.nn "
    "(`torch_models.py`) have the same layers and number of parameters; a test loads the state of "
    "one into the other. A training step is forward, backward and SGD with momentum on random "
    "images of 32 × 32 pixels. FLOP rates of training steps count three times the multiplications "
    "and additions of the forward pass; those of convolutions count the operations of the direct "
    "method, and Winograd's needs fewer, so a share of the peak above 100 % is possible. Memory is "
    "the peak resident size of a process that runs three steps."
)
AGAIN = (
    "`make bench-against` measures everything and writes `apps/bench/RESULTS.md`; `python -m "
    "apps.bench.against --work {work} --threads 1,2 --page FOLDER` measures all or a part of it "
    "and writes the page there. All numbers, with the tables of each piece of work and needle's "
    "slower variants (NumPy backend, plain kernels), are then in `runs/bench-against/` "
    "(`results.json`, `DETAILS.md`)."
)


def work_of(study: str) -> str:
    """Return the piece of work of a study: "matmul" for "matmul, 2 threads"."""
    return study.partition(", ")[0]


def place(study: str) -> tuple[int, str]:
    """Return the sort key of a study on the page."""
    known = list(STUDIES)
    work = work_of(study)
    return known.index(work) if work in known else len(known), study


def limits_for(study: str, results: dict[str, Result]) -> Result | None:
    """Return the measured limits of the machine on as many threads as ``study`` used."""
    return results.get(f"limits, {study.rpartition(', ')[2]}")


def targets_of(results: dict[str, Result]) -> list[Target]:
    """Return the targets of all studies."""
    return [
        target
        for name, result in results.items()
        for target in STUDIES[work_of(name)].targets(result, limits_for(name, results))
    ]


def write(page_folder: Path, folder: Path, results: dict[str, Result]) -> None:
    """Write RESULTS.md and its picture into ``page_folder``, and DETAILS.md into ``folder``."""
    page_folder.mkdir(parents=True, exist_ok=True)
    drawn = draw_targets(page_folder / PICTURE, targets_of(results))
    write_page(page_folder, "RESULTS.md", page(results, drawn))
    write_page(folder, "DETAILS.md", details(results))


def page(results: dict[str, Result], drawn: bool) -> list[str]:
    """Return the lines of the summary page."""
    lines = ["# needle beside PyTorch", "", circumstances(), ""]
    lines += target_lines(targets_of(results), drawn)
    works = ",".join(dict.fromkeys(work_of(name) for name in results))
    lines += [HOW, "", AGAIN.format(work=works), ""]
    machine = [name for name in results if work_of(name) == "limits"]
    lines += [study_limits.sentence(results[name]) for name in machine]
    return [*lines, *([""] if machine else []), *note_lines(results)]


def details(results: dict[str, Result]) -> list[str]:
    """Return the lines of the page with every study's tables."""
    lines = ["# needle beside PyTorch: every piece of work", "", circumstances(), "", HOW, ""]
    for name, result in results.items():
        study, limits = STUDIES[work_of(name)], limits_for(name, results)
        lines += [f"## {study.TITLE}, {t.threads_of(result)}", "", *study.tables(result, limits)]
        lines += note_lines({name: result})
    return lines


def circumstances() -> str:
    """Return a line about the machine and the versions."""
    return (
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}, {kernels()}, Python "
        f"{platform.python_version()}; {versions(('torch', 'numpy'))}."
    )
