"""Data-parallel training in two processes, beside PyTorch's DistributedDataParallel on gloo.

Every process has one thread and 64 images. ``parallel.py`` is the program that is timed, in turns
with one process of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from apps.bench.harness.case import Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, short, spread, table
from apps.bench.harness.turns import Result

TITLE = "Two processes of one thread, 64 images each"
MODELS = {"lenet5": "LeNet-5", "resnet20": "ResNet-20", "resnet18": "ResNet-18"}
STEPS = {"lenet5": 100, "resnet20": 15, "resnet18": 5}
IMAGES = 64
NEEDS = {"needle": "mpi4py", "torch": "torch"}
FASTER = 1.8
"""The goal of two processes' images per second over one's, from ResNet-20 on."""


class Program(Subject):
    """``parallel.py``, started again for each measurement."""

    def __init__(self, settings: Settings, framework: str, model: str, processes: int) -> None:
        super().__init__()
        images = settings.pick(IMAGES, 2) * processes
        steps = settings.pick(STEPS[model], 2)
        self.command = [sys.executable, "-m", "apps.bench.against.parallel", framework]
        self.command += [*("--model", model), *("--batch-size", str(images))]
        self.command += ["--steps", str(steps)]
        if processes > 1:
            self.command = [str(mpiexec()), "-n", str(processes), *self.command]

    def run(self, witness: bool) -> Numbers:
        """Return milliseconds of a step, and MB of a process."""
        if witness:
            return {}
        lines = subprocess.check_output(self.command, text=True).splitlines()
        # MPI's libraries may print warnings beside the program's own line.
        (found,) = [json.loads(line) for line in lines if line.startswith("{")]
        return {name: found[name] for name in ("step_ms", "memory_mb")}


def mpiexec() -> str | None:
    """Return the program that starts several processes; None if there is none."""
    return shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def cases(settings: Settings) -> list[Case]:
    """Return a case for one and for two processes of each library and model."""
    if mpiexec() is None or settings.threads > 1 or settings.device != "cpu":
        return []
    return [
        Case(
            name_of(model, framework, processes),
            partial(Program, framework=framework, model=model, processes=processes),
            environment=settings.environment(),
            needs=(needed,),
            group=model,
            timeout=600.0,
        )
        for model in settings.pick(tuple(MODELS), ("lenet5",))
        for framework, needed in NEEDS.items()
        for processes in (1, 2)
    ]


def name_of(model: str, framework: str, processes: int) -> str:
    """Return the name of a case."""
    return f"{framework}, {MODELS[model]}, {processes} process{'es' if processes > 1 else ''}"


def tables(result: Result) -> list[str]:
    """Return the table of steps and efficiencies."""
    rows = []
    for model in MODELS:
        for framework in NEEDS:
            names = [name_of(model, framework, count) for count in (1, 2)]
            found = [result.outcomes[name] for name in names if name in result.outcomes]
            cells = [spread(each.median("step_ms"), each.span("step_ms")) for each in found]
            value = short(efficiency(result, model, framework))
            memory = short(found[-1].median("memory_mb")) if found else "–"
            rows.append((f"{MODELS[model]}, {framework}", *(cells or "––"), value, memory))
    head = ("step", "one process, ms", "two processes, ms", "efficiency", "MB each")
    return table(head, rows)


def targets(result: Result) -> list[Target]:
    """Return a target of each model: DDP's efficiency, and how much faster two processes are."""
    found = []
    for model, title in MODELS.items():
        ours, theirs = (efficiency(result, model, name) for name in NEEDS)
        words = [short(value) for value in (ours, theirs)]
        found.append(Target(f"efficiency of two processes, {title}", ours / theirs, 1.0, *words))
        if model != "lenet5":
            what = f"two processes over one, {title}"
            found.append(Target(what, 2 * ours, FASTER, words[0], "–"))
    return found if any(target.measured for target in found) else []


def efficiency(result: Result, model: str, framework: str) -> float:
    """Return the time of a step in one process over that in two; nan if unknown."""
    return result.ratio(*(name_of(model, framework, count) for count in (1, 2)), "step_ms")
