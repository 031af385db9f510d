"""Data-parallel training in two processes, beside PyTorch's DistributedDataParallel on gloo.

Every process has one thread and 64 images; a model of one process is timed in turns with it, and
needle with two threads on all images. ``apps.bench.parallel`` is the program that is timed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from apps.bench.data.case import Case, Numbers, Subject
from apps.bench.data.harness import Result
from apps.bench.data.target import Target, short, spread, table

from .settings import Settings

TITLE = "Two processes of one thread, 64 images each"
MODELS = {"lenet5": "LeNet-5", "resnet20": "ResNet-20", "resnet18": "ResNet-18"}
IMAGES = 64
LIBRARIES = {"needle": "needle", "torch": "PyTorch DDP"}
FASTER = 1.8
"""The goal of two processes' images per second over one's, from ResNet-20 on."""
STEPS = {"lenet5": 100, "resnet20": 15, "resnet18": 5}


class Program(Subject):
    """``apps.bench.parallel``, started again for each measurement."""

    def __init__(self, framework: str, model: str, processes: int, settings: Settings) -> None:
        super().__init__()
        self.processes = processes
        count = settings.pick(IMAGES, 2)
        images = count * (processes if settings.threads == 1 else 2)
        steps = settings.pick(STEPS[model], 2)
        self.options = [*("--framework", framework), *("--model", model)]
        self.options += [*("--batch-size", str(images)), *("--steps", str(steps))]

    def run(self, witness: bool) -> Numbers:
        """Return milliseconds of a step, and of needle's sums over the processes."""
        command = [sys.executable, "-m", "apps.bench.parallel", *self.options]
        if self.processes > 1:
            command = [str(mpiexec()), "-n", str(self.processes), *command]
        lines = subprocess.check_output(command, text=True).splitlines()
        # MPI's libraries may print warnings beside the program's own line.
        (found,) = [json.loads(line) for line in lines if line.startswith("{")]
        names = ("step_ms", "memory_mb", "waiting_ms", "sums_ms")
        return {} if witness else {name: found[name] for name in names if name in found}


def mpiexec() -> str | None:
    """Return the program that starts several processes; None if there is none."""
    return shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def cases(settings: Settings) -> list[Case]:
    """Return a case for one and for two processes; with two threads, of one process of needle."""
    if mpiexec() is None or settings.threads > 2:
        return []
    found = []
    for model in settings.pick(tuple(MODELS), ("lenet5",)):
        for framework in LIBRARIES if settings.threads == 1 else ("needle",):
            for processes in (1, 2) if settings.threads == 1 else (1,):
                found.append(
                    Case(
                        case_name(model, framework, processes),
                        partial(_opened, framework, model, processes),
                        environment=settings.environment(),
                        needs=("torch",) if framework == "torch" else ("mpi4py",),
                        group=model,
                        timeout=600.0,
                    )
                )
    return found


def case_name(model: str, framework: str, processes: int) -> str:
    """Return the name of a case."""
    many = f"{processes} process{'es' if processes > 1 else ''}"
    return f"{MODELS[model]}, {LIBRARIES[framework]}, {many}"


def tables(result: Result, limits: Result | None) -> list[str]:
    """Return the table of steps, efficiencies and sums."""
    rows = []
    for model, title in MODELS.items():
        for framework, library in LIBRARIES.items():
            alone, both = (
                result.outcomes.get(case_name(model, framework, count)) for count in (1, 2)
            )
            if alone is None:
                continue
            cells = [spread(alone.median("step_ms"), alone.span("step_ms"))]
            cells += ["–"] * 4
            if both is not None:
                sums, waiting = both.median("sums_ms"), both.median("waiting_ms")
                hidden = f"{max(0.0, 1 - waiting / sums):.0%}" if sums == sums else "–"
                cells[1:] = [
                    spread(both.median("step_ms"), both.span("step_ms")),
                    short(efficiency(result, model, framework)),
                    hidden,
                    short(both.median("memory_mb")),
                ]
            rows.append((f"{title}, {library}", *cells))
    head = ("step", "one process, ms", "two processes, ms", "efficiency", "sums hidden", "MB each")
    return table(head, rows)


def targets(result: Result, limits: Result | None) -> list[Target]:
    """Return a target of each model: DDP's efficiency, and how much faster two processes are."""
    found = []
    for model, title in MODELS.items():
        ours, theirs = (efficiency(result, model, name) for name in LIBRARIES)
        words = [short(value) if value == value else "–" for value in (ours, theirs)]
        name = f"efficiency of two processes, {title}"
        found.append(Target(name, ours / theirs, 1.0, *words))
        if model != "lenet5":
            found.append(
                Target(f"two processes over one, {title}", 2 * ours, FASTER, words[0], "–")
            )
    return found if any(target.measured for target in found) else []


def efficiency(result: Result, model: str, framework: str) -> float:
    """Return the time of a step in one process over that in two; nan if unknown."""
    alone, both = (case_name(model, framework, count) for count in (1, 2))
    return result.ratio(alone, both, "step_ms")


def _opened(framework: str, model: str, processes: int, settings: Settings) -> Subject:
    return Program(framework, model, processes, settings)
