"""Whole training steps (forward, backward, SGD with momentum) and their peak memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

import needle
from apps.bench.harness.case import Case, Numbers, Once
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, short, table
from apps.bench.harness.turns import Result
from apps.models import build_model
from apps.profiling import profile_inference

from . import tables as t
from .sides import COMPILED, CONTESTANTS, EAGER, GRAPHED, OURS, Side, Step
from .study import Build, case_of, cases_of

MEMORY_GOAL = 0.8
PEERS = (*EAGER, COMPILED, GRAPHED)
MEMORY_CASES = (OURS[0], *EAGER)
MEGA = 1e6


@dataclass(frozen=True)
class ModelStudy:
    """The study of one model. goal: the smallest acceptable speed ratio. batches: batch sizes."""

    model: str
    title: str
    goal: float
    batches: tuple[int, ...] = (128,)
    channels: int = 3

    @property
    def TITLE(self) -> str:  # other studies are modules with a constant TITLE
        return f"Training step of {self.title}, float32"

    def cases(self, settings: Settings) -> list[Case]:
        """Return the cases that time steps in turns, then those that measure memory."""
        steps = cases_of((*OURS, *PEERS), self._builds, settings)
        if settings.device != "cpu":
            return steps
        return steps + [
            self._memory_case(name, batch, settings)
            for batch in self._batches(settings)
            for name in MEMORY_CASES
        ]

    def tables(self, result: Result) -> list[str]:
        """Return tables of times and memory."""
        peaks = {name: result.median(name, "peak") / MEGA for name in result.outcomes}
        rows = [(name, short(peak)) for name, peak in peaks.items() if peak == peak]
        memory = table(("peak memory of three steps", "MB"), rows)
        return [*t.pieces_table("step", result, flops=self._flops), *memory]

    def targets(self, result: Result) -> list[Target]:
        """Return the targets: speed and memory at each batch size."""
        found = []
        for piece in t.pieces_of(result):
            name = f"{self.title}, {piece}, {result.threads}"
            found.append(t.least(name, result, self.goal, [piece]))
            mine, *peers = (result.median(f"{each}, {piece}", "peak") for each in MEMORY_CASES)
            other = min((peak for peak in peers if peak == peak), default=float("nan"))
            words = [f"{short(peak / MEGA)} MB" if peak == peak else "–" for peak in (mine, other)]
            found.append(
                Target(f"peak memory, {name}", mine / other, MEMORY_GOAL, *words, at_most=True)
            )
        return found

    def _batches(self, settings: Settings) -> tuple[int, ...]:
        return settings.pick(self.batches, (2,))

    def _builds(self, settings: Settings) -> dict[str, Build]:
        return {batch_name(n): partial(self._step, batch=n) for n in self._batches(settings)}

    def _step(self, side: Side, batch: int) -> Step:
        return training_step(side, self.model, self.channels, batch)

    def _memory_case(self, name: str, batch: int, settings: Settings) -> Case:
        def measure(given: Settings) -> Numbers:
            step = self._step(CONTESTANTS[name](given), batch)
            for _ in range(3):
                step()
            return {"peak": peak_memory()}

        title, group = f"{name}, {batch_name(batch)}", f"memory, {batch}"
        opening = lambda given: Once(partial(measure, given))  # noqa: E731
        return case_of(title, name, opening, settings, group=group, rounds=1)

    def _flops(self, piece: str) -> float:
        return training_flops(self.model, self.channels) * int(piece.removeprefix("batch "))


@cache
def training_flops(name: str, channels: int) -> float:
    """Return FLOPs of a training step per image of 32 x 32: three times the forward pass."""
    place = {"device": needle.default_device()}
    images = needle.Tensor(np.zeros((1, channels, 32, 32)), dtype="float32", **place)
    model = build_model(name, in_channels=channels, **place)
    profile = profile_inference(model, images, needle.Tensor([0], dtype="int64", **place))
    products = (call for call in profile.calls if call.kernel in ("conv2d", "matmul"))
    return 3.0 * sum(call.operations for call in products)


def training_step(side: Side, model: str, channels: int, batch: int) -> Step:
    """Return a training step of a model on random images of 32 x 32 pixels."""
    random = np.random.default_rng(0)
    images = random.standard_normal((batch, channels, 32, 32), np.float32)
    labels = random.integers(0, 10, batch)
    return side.training_step(side.model(model), side.images(images), side.tensor(labels))


def batch_name(batch: int) -> str:
    """Return the name of the piece of work."""
    return f"batch {batch}"


def peak_memory() -> float:
    """Return the peak resident bytes of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    import resource  # macOS counts bytes, Linux KiB

    scale = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale)


STUDIES: dict[str, ModelStudy] = {
    study.model: study
    for study in (
        ModelStudy("lenet5", "LeNet-5", 3.0, (64, 128), channels=1),
        ModelStudy("resnet9", "ResNet9", 2.0),
        ModelStudy("resnet20", "ResNet-20", 1.5),
        ModelStudy("resnet18", "ResNet-18 (CIFAR stem)", 1.5),
        ModelStudy("resnet50", "ResNet-50 (CIFAR stem)", 1.3),
    )
}
