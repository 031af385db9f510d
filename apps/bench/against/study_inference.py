"""Compare inference with ONNX Runtime: the models of apps.models on one image and on batches.

ONNX Runtime runs the file that ``needle.onnx.export`` makes of the same model.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target
from apps.bench.harness.turns import Result

from . import tables as t
from .sides import OURS, RUNTIME, Side, Step
from .study import Build, PieceStudy

MODELS = {
    "lenet5": "LeNet-5",
    "resnet9": "ResNet9",
    "resnet20": "ResNet-20",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
}
CHANNELS = {"lenet5": 1}
GOALS = {1: 0.8, 64: 1.2}
"""Goals for the speed ratio, by batch size."""


def targets(result: Result) -> list[Target]:
    """Return the target of each model and batch size."""
    return [
        t.least(f"inference, {piece}, {result.threads}", result, goal_of(piece), [piece])
        for piece in t.pieces_of(result)
    ]


def goal_of(piece: str) -> float:
    """Return the goal of a piece such as "ResNet-20, batch 1"."""
    return GOALS[int(piece.rpartition(" ")[2])]


def builds(settings: Settings) -> dict[str, Build]:
    """Return a function for each model and batch size."""
    return {
        f"{MODELS[name]}, batch {batch}": partial(call_of, name=name, batch=batch)
        for name in settings.pick(tuple(MODELS), ("lenet5",))
        for batch in settings.pick(tuple(GOALS), (1,))
    }


def call_of(side: Side, name: str, batch: int) -> Step:
    """Return a function that maps a NumPy array to logits by the model."""
    random = np.random.default_rng(0)
    images = random.standard_normal((batch, CHANNELS.get(name, 3), 32, 32), np.float32)
    model = side.model(name)
    model.eval()
    step: Step = side.inference(model, images)
    return step


STUDY = PieceStudy(
    "Inference (evaluation mode, no gradients), float32",
    "model",
    builds,
    (*OURS, RUNTIME),
    targets=targets,
)
