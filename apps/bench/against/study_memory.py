"""Memory-bound operations: each reads and writes far more than it computes.

Rates count each necessary pass over the arrays; the limit is that of a[i] = b[i] + s c[i] on arrays
of that size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target
from apps.bench.harness.turns import Result

from . import tables as t
from .sides import COMPILED, EAGER, Side, Step
from .study import Build, PieceStudy

GOAL = 1.2
CHANNELS, SIDE = 64, 32
BATCHES = {"large": 128, "small": 4, "huge": 2048}  # arrays of 34 MB, 1 MB and 537 MB
PARAMETERS = (("large", 21), ("small", 1))  # number of 512 x 512 x 3 x 3 arrays: 198 MB, 9 MB


@dataclass(frozen=True)
class Operation:
    """An operation. passes: how often it must at least read or write the large array."""

    build: Callable[[Side, Any], Step]
    passes: float


def host(batch: int, seed: int = 0) -> Any:
    shape = (batch, CHANNELS, SIDE, SIDE)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def relu(side: Side, batch: int) -> Step:
    x, function = side.images(host(batch)), side.ready(side.relu)
    return lambda: function(x)


def add(side: Side, batch: int) -> Step:
    x, y = side.images(host(batch)), side.images(host(batch, 1))
    function = side.ready(lambda a, b: a + b)
    return lambda: function(x, y)


def bias(side: Side, batch: int) -> Step:
    x, b = side.images(host(batch)), side.images(host(1)[:, :, :1, :1])
    function = side.ready(lambda a, b: a + b)
    return lambda: function(x, b)


def relu_both(side: Side, batch: int) -> Step:
    x, grad = side.images(host(batch), gradient=True), side.images(host(batch, 1))
    return side.forward_and_backward(side.relu, [x], grad)


def norm(side: Side, batch: int) -> Step:
    x, function = side.images(host(batch)), side.ready(side.norm(CHANNELS))
    return lambda: function(x)


def norm_both(side: Side, batch: int) -> Step:
    x, grad = side.images(host(batch), gradient=True), side.images(host(batch, 1))
    return side.forward_and_backward(side.norm(CHANNELS), [x], grad)


def pool_both(side: Side, batch: int) -> Step:
    x = side.images(host(batch), gradient=True)
    grad = side.images(host(batch, 1)[:, :, : SIDE // 2, : SIDE // 2])
    return side.forward_and_backward(side.max_pool, [x], grad)


def loss_both(side: Side, batch: int) -> Step:
    logits = host(batch).reshape(-1, 1024)
    labels = side.tensor(np.arange(len(logits)) % 1024)
    x = side.tensor(logits, gradient=True)
    return side.forward_and_backward(lambda a: side.cross_entropy(a, labels), [x], None)


OPERATIONS = {
    "relu": Operation(relu, 2),
    "add": Operation(add, 3),
    "bias": Operation(bias, 2),
    "relu, forward and backward": Operation(relu_both, 5),
    "batch norm, training": Operation(norm, 3),
    "batch norm, forward and backward": Operation(norm_both, 8),
    "max pool 2×2, forward and backward": Operation(pool_both, 3.5),
    "softmax cross entropy, forward and backward": Operation(loss_both, 3),
}
OPTIMIZERS = {"sgd": 5.0, "adam": 7.0}


def optimizer_step(side: Side, name: str, count: int, edge: int) -> Step:
    """Return an optimiser step over ``count`` parameters of shape (edge, edge, 3, 3)."""
    random = np.random.default_rng(0)
    shape = (edge, edge, 3, 3)
    parameters = [
        side.tensor(random.standard_normal(shape, np.float32), True) for _ in range(count)
    ]
    for parameter in parameters:
        parameter.grad = side.tensor(random.standard_normal(shape, np.float32))
    return side.optimizer(name, parameters).step  # type: ignore[no-any-return]


def builds(settings: Settings) -> dict[str, Build]:
    found: dict[str, Build] = {}
    sizes = ("large", "small") if settings.device == "cpu" else ("huge",)
    for size in settings.pick(sizes, ("small",)):
        batch = settings.pick(BATCHES[size], 1)
        for name, operation in OPERATIONS.items():
            found[f"{name}, {size}"] = partial(operation.build, batch=batch)
    for size, count in settings.pick(PARAMETERS, (("small", 1),)):
        for name in OPTIMIZERS:
            edge = settings.pick(512, 4)
            found[f"{name} step, {size}"] = partial(
                optimizer_step, name=name, count=count, edge=edge
            )
    return found


def traffic(piece: str) -> float:
    """Return the minimum number of bytes that must be moved."""
    name, _, size = piece.rpartition(", ")
    if name.endswith(" step"):
        return OPTIMIZERS[name.removesuffix(" step")] * dict(PARAMETERS)[size] * 512 * 512 * 9 * 4
    return OPERATIONS[name].passes * BATCHES[size] * CHANNELS * SIDE * SIDE * 4


def targets(result: Result) -> list[Target]:
    name = f"memory-bound operations, {result.threads}, the least of all"
    return [t.least(name, result, GOAL)]


STUDY = PieceStudy(
    "Memory-bound operations on 34 MB (large), 1 MB (small) and on a GPU 537 MB (huge), float32",
    "operation",
    builds,
    ("needle", *EAGER, COMPILED),
    moved=traffic,
    targets=targets,
)
