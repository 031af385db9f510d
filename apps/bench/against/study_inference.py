"""Inference beside ONNX Runtime: the models of apps.models on one image and on batches.

ONNX Runtime runs the file that ``needle.onnx.export`` makes of the same model. It is optional:
without the packages onnxruntime and onnx, only needle is measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from apps.bench.harness.case import Case, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target
from apps.bench.harness.turns import Result

from . import tables as t
from .pieces import cases_of, measured_pieces
from .sides import OURS, Needle, Side, Step

TITLE = "Inference (evaluation mode, no gradients), float32"
PEER = "ONNX Runtime"
PACKAGES = ("onnxruntime", "onnx")
MODELS = {
    "lenet5": "LeNet-5",
    "resnet9": "ResNet9",
    "resnet20": "ResNet-20",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
}
CHANNELS = {"lenet5": 1}
BATCHES = (1, 64)
GOALS = {1: 0.8}
GOAL = 1.2
"""The goals of the ratio of speeds: by batch size, and of every other batch size."""


class Runtime(Needle):
    """ONNX Runtime with ``threads`` threads; it runs models that needle builds and exports."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.threads = threads
        self.runtime: Any = importlib.import_module("onnxruntime")
        self.onnx: Any = importlib.import_module("needle.onnx")

    def inference(self, model: Any, images: Any) -> Step:
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        content = self.onnx.export(model, images).SerializeToString()
        session = self.runtime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        return lambda: session.run(None, {"input": images})


def cases(settings: Settings) -> list[Case]:
    """Return a case for needle, for its captured calls and for ONNX Runtime."""
    ours = cases_of(OURS, _builds, settings)
    if settings.device != "cpu":
        return list(ours)
    environment = settings.environment()
    return [*ours, Case(PEER, _opened, environment, needs=PACKAGES, timeout=1200.0)]


def tables(result: Result) -> list[str]:
    """Return the table of milliseconds per call."""
    return t.pieces_table("model", result)


def targets(result: Result) -> list[Target]:
    """Return the target of each model and batch size."""
    return [
        t.least(f"inference, {piece}, {result.threads}", result, goal_of(piece), [piece])
        for piece in t.pieces_of(result)
    ]


def goal_of(piece: str) -> float:
    """Return the goal of a piece such as "ResNet-20, batch 1"."""
    return GOALS.get(int(piece.rpartition(" ")[2]), GOAL)


def _opened(settings: Settings) -> Subject:
    return measured_pieces(Runtime(settings.threads), _builds, settings, peaks=False)


def _builds(settings: Settings) -> dict[str, Callable[[Side], Step]]:
    batches = settings.batches or settings.pick(BATCHES, (1, 2))
    names = settings.pick(tuple(MODELS), ("lenet5",))
    return {
        f"{MODELS[name]}, batch {batch}": partial(_call, name=name, batch=batch)
        for name in names
        for batch in batches
    }


def _call(side: Any, name: str, batch: int) -> Step:
    """Return a call of the model from a NumPy array in memory to an array of logits."""
    random = np.random.default_rng(0)
    images = random.standard_normal((batch, CHANNELS.get(name, 3), 32, 32), np.float32)
    model = side.model(name)
    model.eval()
    step: Step = side.inference(model, images)
    return step
