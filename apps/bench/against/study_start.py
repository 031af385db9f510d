"""Start-up times: the import, the first training step of a program, and a small operation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial

import numpy as np

from apps.bench.harness.case import Calls, Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range, versus
from apps.bench.harness.turns import Result

from .sides import CONTESTANTS, EAGER, OURS, is_peer
from .study import case_of
from .study_models import training_step

TITLE = "Seconds of start-up, and microseconds of a * b of ten numbers with a gradient"
CONTESTED = (OURS[0], EAGER[0])
IMPORT, STEP, SMALL = "`import`", "first training step of a process", "a * b of ten numbers"


class Start(Subject):
    """Programs of one library, started again for each measurement."""

    def __init__(self, settings: Settings, contestant: str) -> None:
        self.contestant, self.settings = contestant, settings
        self.module = "torch" if is_peer(contestant) else "needle"
        side = CONTESTANTS[contestant](settings)
        a, b = (side.tensor(np.ones(10, np.float32), gradient=True) for _ in range(2))
        least = settings.pick(0.05, 1e-3)
        self.small = Calls({SMALL: lambda: a * b}, least, items=1e-3)  # microseconds

    def run(self) -> Numbers:
        code = f"from time import perf_counter as now; t = now(); import {self.module}; "
        importing = float(program("-c", code + "print(now() - t)"))
        started = time.perf_counter()
        code = "from apps.bench.against.study_start import first_step as step; step(*sys.argv[1:])"
        program("-c", f"import sys; {code}", self.contestant, self.settings.to_json())
        step = time.perf_counter() - started
        return {IMPORT: importing, STEP: step, **self.small.run()}


def first_step(contestant: str, settings: str) -> None:
    """Run a training step of LeNet-5 with 64 images; ``settings`` is a JSON text."""
    training_step(CONTESTANTS[contestant](Settings.from_json(settings)), "lenet5", 1, 64)()


def program(*arguments: str) -> str:
    """Return the output of a Python program; bytecode is cached, as for users."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.check_output([sys.executable, *arguments], env=environment, text=True)


def cases(settings: Settings) -> list[Case]:
    if settings.device != "cpu":
        return []
    return [case_of(name, name, partial(Start, contestant=name), settings) for name in CONTESTED]


def targets(result: Result) -> list[Target]:
    found = []
    for key, goal, unit in ((IMPORT, 0.25, "s"), (SMALL, 5.0, "µs")):
        words = [f"{median_and_range(result, name, key)} {unit}" for name in CONTESTED]
        value, name = result.median(CONTESTED[0], key), f"{key}, {result.threads}"
        found.append(Target(name, value, goal, *words, at_most=True, unit=unit))
    name = f"{STEP}, {result.threads}"
    return [*found, versus(name, result, CONTESTED, 0.2, STEP, "s", at_most=True)]
