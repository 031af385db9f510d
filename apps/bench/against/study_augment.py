"""Augmentation on a GPU, alone and before a training step."""

from __future__ import annotations

from functools import partial

import numpy as np

from apps.bench.harness.settings import Settings

from .pieces import Build
from .sides import EAGER, Side, Step
from .study import PieceStudy

BATCH = 256


def builds(settings: Settings) -> dict[str, Build]:
    """Return the chain on images of two sizes, on the device already or with their upload."""
    batch = settings.pick(BATCH, 2)
    return {
        f"{size}×{size}, {'on the GPU' if resident else 'with the upload'}": partial(
            augmentation, batch=batch, size=size, resident=resident
        )
        for size in settings.pick((32, 224), (8,))
        for resident in (True, False)
    }


def augmentation(side: Side, batch: int, size: int, resident: bool) -> Step:
    images = np.random.default_rng(0).integers(0, 256, (batch, size, size, 3)).astype(np.uint8)
    return side.augment(images, resident)


def fed(settings: Settings) -> dict[str, Build]:
    """Return steps on a resident batch, and on batches from the loader.

    They take as long as each other if the loader always has a batch ready.
    """
    batch = settings.pick(BATCH, 2)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (32 * batch, 32, 32, 3)).astype(np.uint8)
    labels = random.integers(0, 10, len(images))

    def alone(side: Side) -> Step:
        pixels = images[:batch].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
        x, y = side.images(pixels), side.tensor(labels[:batch])
        return side.training_step(side.model("resnet9"), x, y)

    def from_loader(side: Side) -> Step:
        return side.fed_step(side.model("resnet9"), images, labels, batch)

    return {"ResNet9, one batch": alone, "ResNet9, from the loader": from_loader}


STUDY = PieceStudy(
    f"Crop, mirror and normalise {BATCH} images on a GPU",
    "images",
    builds,
    ("needle", *EAGER),
    only_gpu=True,
)
FED = PieceStudy(
    f"Training steps of {BATCH} images that are augmented on a GPU",
    "step",
    fed,
    ("needle", "needle, captured"),
    only_gpu=True,
)
