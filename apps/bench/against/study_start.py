"""Start-up times: the import, the first training step of a program, and a small operation."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from apps.bench.harness.case import Calls, Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range, spread, table
from apps.bench.harness.turns import Result

from .pieces import case_of
from .sides import CONTESTANTS, is_peer

TITLE = "Start-up, and one small operation"
CONTESTED = ("needle", "PyTorch, eager")
KEYS = {
    "import": "`import`, s",
    "first step": "process start to the end of the first training step, s",
    "small op": "a * b of ten numbers, gradient recorded, µs",
}


class Start(Subject):
    """Programs of one library, started again for each measurement."""

    def __init__(self, contestant: str, settings: Settings) -> None:
        super().__init__()
        self.contestant, self.settings = contestant, settings
        self.module = "torch" if is_peer(contestant) else "needle"
        side = CONTESTANTS[contestant](settings)
        a, b = (side.tensor(np.ones(10, np.float32), gradient=True) for _ in range(2))
        self.clock = "process_time" if settings.cpu_time else "perf_counter"
        clock = getattr(time, self.clock)
        self.small = Calls(lambda: a * b, least=settings.pick(0.05, 1e-3), clock=clock)

    def run(self, witness: bool) -> Numbers:
        if witness:
            return {}
        code = f"from time import {self.clock} as now; t = now(); import {self.module}; "
        importing = program("-c", code + "print(now() - t)")
        started = self._moment()
        text = self.settings.to_json()
        program("-m", "apps.bench.against.first_step", self.contestant, text)
        return {
            "import": float(importing),
            "first step": self._moment() - started,
            "small op": self.small.run(witness)["us"],
        }

    def _moment(self) -> float:
        """Return wall-clock time, or the processor time of ended programs."""
        if not self.settings.cpu_time:
            return time.perf_counter()
        used = os.times()
        return used.children_user + used.children_system


def program(*arguments: str) -> str:
    """Return the output of a Python program; bytecode is cached, as for users."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.check_output([sys.executable, *arguments], env=environment, text=True)


def cases(settings: Settings) -> list[Case]:
    if settings.device != "cpu":
        return []

    def opener(name: str) -> Callable[[Settings], Subject]:
        return lambda given: Start(name, given)

    return [case_of(name, name, opener(name), settings) for name in CONTESTED]


def tables(result: Result) -> list[str]:
    rows = []
    for key, words in KEYS.items():
        found = [result.outcomes[name] for name in CONTESTED if name in result.outcomes]
        rows.append((words, *(spread(each.median(key), each.span(key)) for each in found)))
    return table(("", *CONTESTED), rows)


def targets(result: Result) -> list[Target]:
    threads, (ours, theirs) = result.threads, CONTESTED
    found = []
    for key, goal, unit in (("import", 0.25, "s"), ("small op", 5.0, "µs")):
        values = [result.median(name, key) for name in CONTESTED]
        words = [
            f"{median_and_range(result, name, key)} {unit}" if not math.isnan(value) else "–"
            for name, value in zip(CONTESTED, values)
        ]
        name = f"{KEYS[key].partition(',')[0]}, {threads}"
        found.append(Target(name, values[0], goal, *words, at_most=True, unit=unit))
    ratio = result.ratio(ours, theirs, "first step")
    words = [f"{median_and_range(result, name, 'first step')} s" for name in CONTESTED]
    name = f"first training step of a process, {threads}"
    return [*found, Target(name, ratio, 0.2, *words, at_most=True)]
