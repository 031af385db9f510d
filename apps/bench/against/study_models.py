"""Whole training steps (forward, backward, SGD with momentum) and their peak memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from apps.bench.harness.case import Case, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, short, table
from apps.bench.harness.turns import Result

from . import tables as t
from .flops import training_flops
from .pieces import Build, case_of, cases_of
from .sides import COMPILED, CONTESTANTS, EAGER, GRAPHED, OURS, SLOW, Side, Step

MEMORY_GOAL = 0.8
PEERS = (*EAGER, COMPILED, GRAPHED)
MEGA = 1e6


@dataclass(frozen=True)
class ModelStudy:
    """The study of a model.

    goal: of the ratio of speeds. batches: default batch sizes. slow: include needle's slow
    variants.
    """

    model: str
    title: str
    goal: float
    batches: tuple[int, ...] = (128,)
    channels: int = 3
    slow: bool = False

    @property
    def TITLE(self) -> str:  # same name as in the modules of other studies
        return f"Training step of {self.title}, float32"

    def cases(self, settings: Settings) -> list[Case]:
        """Return cases of steps in turns, then of memory in separate processes."""
        ours = [*OURS, *(SLOW[: settings.pick(2, 1)] if self.slow else ())]
        names = [*ours, *PEERS[: settings.pick(4, 1)]]
        if settings.device != "cpu":
            return cases_of(names, self._builds, settings)
        memory = [
            self._memory_case(name, batch, settings)
            for batch in self._batches(settings)
            for name in settings.pick((OURS[0], *PEERS[:2]), OURS[: int(self.slow)])
        ]
        return cases_of(names, self._builds, settings) + memory

    def tables(self, result: Result) -> list[str]:
        """Return tables of times and memory."""
        lines = t.pieces_table("step", result, flops=self._flops)
        rows = []
        for name, outcome in result.outcomes.items():
            if "peak" in outcome.values:
                cells = [short(outcome.median(key) / MEGA) for key in ("loaded", "peak")]
                rows.append((name, *cells))
        head = ("memory of a process, MB", "library and data", "peak of three steps")
        return [*self._other_batches(result), *lines, *(table(head, rows) if rows else [])]

    def _other_batches(self, result: Result) -> list[str]:
        """Return a note if the measured batch sizes differ from those of the targets."""
        meant = [batch_name(n) for n in self.batches]
        if set(t.pieces_of(result)) <= set(meant):
            return []
        measured, wanted = ", ".join(t.pieces_of(result)), ", ".join(meant)
        return [f"Measured with {measured} (`--batch`); the target is meant for {wanted}.", ""]

    def targets(self, result: Result) -> list[Target]:
        """Return the targets: speed and memory at each batch size."""
        found = []
        for piece in t.pieces_of(result):
            name = f"{self.title}, {piece}, {result.threads}"
            found.append(t.least(name, result, self.goal, [piece]))
            mine = result.median(memory_name(OURS[0], piece), "peak")
            peers = [result.median(memory_name(peer, piece), "peak") for peer in PEERS[:2]]
            other = min((peak for peak in peers if peak == peak), default=float("nan"))
            words = [f"{short(peak / MEGA)} MB" if peak == peak else "–" for peak in (mine, other)]
            found.append(
                Target(f"peak memory, {name}", mine / other, MEMORY_GOAL, *words, at_most=True)
            )
        return found

    def _batches(self, settings: Settings) -> tuple[int, ...]:
        return settings.batches or settings.pick(self.batches, (2,))

    def _builds(self, settings: Settings) -> dict[str, Build]:
        return {batch_name(n): partial(self._step, batch=n) for n in self._batches(settings)}

    def _step(self, side: Side, batch: int) -> Step:
        return training_step(side, self.model, self.channels, batch)

    def _memory_case(self, name: str, batch: int, settings: Settings) -> Case:
        def open_it(given: Settings) -> Subject:
            side = CONTESTANTS[name](given)
            subject = Idle()
            subject.first = {"loaded": peak_memory()}
            step = self._step(side, batch)
            for _ in range(3):
                step()
            subject.first["peak"] = peak_memory()
            return subject

        title = memory_name(name, batch_name(batch))
        return case_of(title, name, open_it, settings, group=f"memory, {batch}", rounds=1)

    def _flops(self, piece: str) -> float:
        return training_flops(self.model, self.channels) * int(piece.removeprefix("batch "))


def training_step(side: Side, model: str, channels: int, batch: int) -> Step:
    """Return a training step of a model on random images of 32 x 32 pixels."""
    random = np.random.default_rng(0)
    images = random.standard_normal((batch, channels, 32, 32), np.float32)
    labels = random.integers(0, 10, batch)
    return side.training_step(side.model(model), side.images(images), side.tensor(labels))


class Idle(Subject):
    """A subject whose measurements were made when it was opened."""

    def run(self, witness: bool) -> dict[str, float]:
        return {}


def batch_name(batch: int) -> str:
    """Return the name of the piece."""
    return f"batch {batch}"


def memory_name(contestant: str, piece: str) -> str:
    """Return the name of the case."""
    return f"{contestant}, {piece}"


def peak_memory() -> float:
    """Return the peak resident bytes of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    import resource  # macOS, where it counts bytes

    scale = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale)


STUDIES: dict[str, ModelStudy] = {
    study.model: study
    for study in (
        ModelStudy("lenet5", "LeNet-5", 3.0, (64, 128), channels=1, slow=True),
        ModelStudy("resnet9", "ResNet9", 2.0, slow=True),
        ModelStudy("resnet20", "ResNet-20", 1.5, slow=True),
        ModelStudy("resnet18", "ResNet-18 (CIFAR stem)", 1.5),
        ModelStudy("resnet50", "ResNet-50 (CIFAR stem)", 1.3),
    )
}
