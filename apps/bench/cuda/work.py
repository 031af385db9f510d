"""The work measured on a GPU: pieces with their least number of bytes and operations.

``__main__.py`` times them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from apps.bench.against.flops import training_flops
from apps.bench.against.sides import Step

from .sides import GpuSide


class Piece(NamedTuple):
    """A piece of work: the bytes that it must move and its arithmetic.

    goal: share of PyTorch's best speed, or of the ceiling if ``of_limit``. captured: measure a
    captured variant too. ours: PyTorch has no counterpart.
    """

    build: Callable[[GpuSide], Step]
    moved: float = 0.0
    flops: float = 0.0
    goal: float | None = None
    of_limit: bool = False
    captured: bool = False
    ours: bool = False


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def relu(side: GpuSide, count: int) -> Step:
    x = side.tensor(numbers(count))
    return lambda: side.relu(x)


def product(side: GpuSide, n: int) -> Step:
    a, b = side.operand(numbers(n, n)), side.operand(numbers(n, n, seed=1))
    return lambda: a @ b


def convolution(side: GpuSide, what: str, batch: int, channels: int, size: int) -> Step:
    x, grad = (side.images(numbers(batch, channels, size, size, seed=s)) for s in (0, 1))
    weight = side.weight(numbers(channels, channels, 3, 3))
    return side.conv2d(what, x, weight, grad, stride=1, padding=1, groups=1)


def norm(side: GpuSide, batch: int) -> Step:
    x, layer = side.images(numbers(batch, 64, 32, 32)), side.norm(64)
    return lambda: layer(x)


def pool(side: GpuSide, batch: int) -> Step:
    x = side.images(numbers(batch, 64, 32, 32))
    return lambda: side.max_pool(x)


def augmentation(side: GpuSide, batch: int, size: int, resident: bool) -> Step:
    images = np.random.default_rng(0).integers(0, 256, (batch, size, size, 3)).astype(np.uint8)
    return side.augment(images, resident)


def training(side: GpuSide, model: str, batch: int, channels: int) -> Step:
    images = numbers(batch, channels, 32, 32)
    labels = np.random.default_rng(0).integers(0, 10, batch)
    return side.training_step(side.model(model), side.images(images), side.tensor(labels))


def fed_training(side: GpuSide, model: str, batch: int, size: int) -> Step:
    """Return steps with images from the loader, augmented on the device.

    They are as fast as the step alone if the loader always has a batch ready.
    """
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (32 * batch, size, size, 3)).astype(np.uint8)
    labels = random.integers(0, 10, len(images))
    return side.fed_step(side.model(model), images, labels, batch)


def pieces(quick: bool, precision: str = "float32") -> dict[str, Piece]:
    """Return the pieces by name. quick: tiny ones. precision: of products; it determines goals."""
    n, batch, count = (32, 2, 1000) if quick else (4096, 256, 1 << 27)
    found = {
        "relu": Piece(partial(relu, count=count), moved=8 * count),
        f"product of {n} x {n}": Piece(
            partial(product, n=n), 12 * n * n, 2 * n**3, goal=0.8 if precision == "float32" else 0.6
        ),
    }
    for channels, size in [(4, 6)] if quick else [(64, 32), (128, 16), (256, 8), (512, 4)]:
        for what in ("forward", "input gradient", "weight gradient"):
            flops = 2 * 9 * channels**2 * size**2 * batch
            build = partial(convolution, what=what, batch=batch, channels=channels, size=size)
            name = f"3x3, {channels} channels of {size} x {size}, {what}"
            found[name] = Piece(build, 0, flops, goal=0.6)
    if not quick:
        image_bytes = 4 * batch * 64 * 32 * 32
        found["batch norm"] = Piece(
            partial(norm, batch=batch), 3 * image_bytes, goal=0.85, of_limit=True
        )
        found["max pool 2 x 2"] = Piece(
            partial(pool, batch=batch), 1.25 * image_bytes, goal=0.85, of_limit=True
        )
    for size in (8,) if quick else (32, 224):
        moved = batch * size * size * 3 * 5
        for resident in (True, False):
            where = "on the GPU" if resident else "with the upload"
            name = f"crop, mirror, normalise {size} x {size}, {where}"
            build = partial(augmentation, batch=batch, size=size, resident=resident)
            goal = 0.85 if resident else None
            found[name] = Piece(build, moved, goal=goal, of_limit=True)
    for model, channels, goal in (
        ()
        if quick
        else (
            ("lenet5", 1, 1.5),
            ("resnet9", 3, 1.5),
            ("resnet18", 3, 0.7 if precision == "bf16" else None),
        )
    ):
        flops = training_flops(model, channels) * batch
        build = partial(training, model=model, batch=batch, channels=channels)
        found[f"{model}, a step of {batch}"] = Piece(build, 0, flops, goal, captured=True)
        if model == "resnet9":
            build = partial(fed_training, model=model, batch=batch, size=32)
            name = f"{model}, a step of {batch} from the loader, augmented on the device"
            found[name] = Piece(build, 0, flops, captured=True, ours=True)
    return found
