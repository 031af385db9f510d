"""Single convolutions and both of their gradients in float32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target
from apps.bench.harness.turns import Result

from . import tables as t
from .sides import EAGER, Side, Step
from .study import Build, PieceStudy

WAYS = ("forward", "input gradient", "weight gradient")
BATCH = 128


@dataclass(frozen=True)
class Shape:
    """A convolution of a (batch, inputs, side, side) array with square filters."""

    inputs: int
    outputs: int
    side: int
    size: int = 3
    stride: int = 1
    groups: int = 1
    padding: int = 1

    @property
    def name(self) -> str:
        depthwise = " depthwise" if self.groups > 1 else ""
        stride = f" stride {self.stride}" if self.stride > 1 else ""
        channels = f"{self.inputs} → {self.outputs}"
        return f"{self.size}×{self.size}{stride}{depthwise}, {channels} at {self.side}×{self.side}"

    @property
    def out_side(self) -> int:
        return (self.side + 2 * self.padding - self.size) // self.stride + 1

    def flops(self, batch: int) -> float:
        """Return the FLOPs of the direct method, which each gradient needs too."""
        area = batch * self.out_side**2 * self.size**2
        return 2.0 * area * self.outputs * self.inputs / self.groups


PLAIN = (
    Shape(16, 16, 32),
    Shape(64, 64, 32),
    Shape(128, 128, 16),
    Shape(256, 256, 8),
    Shape(512, 512, 4),
)
OTHERS = (
    Shape(256, 64, 16, size=1, padding=0),
    Shape(64, 128, 32, stride=2),
    Shape(6, 16, 14, size=5, padding=0),
    Shape(3, 16, 32, size=7, stride=4, padding=3),
    Shape(128, 128, 16, groups=128),
)


def builds(settings: Settings) -> dict[str, Build]:
    """Return each shape's forward pass and both gradients."""
    batch = settings.pick(BATCH, 2)
    shapes = settings.pick((*PLAIN, *OTHERS), (Shape(4, 8, 6), Shape(4, 4, 5, groups=4)))
    return {
        f"{shape.name}: {way}": partial(convolution, shape=shape, way=way, batch=batch)
        for shape in shapes
        for way in WAYS
    }


def convolution(side: Side, shape: Shape, way: str, batch: int) -> Step:
    random = np.random.default_rng(0)
    x = side.images(
        random.standard_normal((batch, shape.inputs, shape.side, shape.side), np.float32)
    )
    filters = (shape.outputs, shape.inputs // shape.groups, shape.size, shape.size)
    weight = side.weight(random.standard_normal(filters, np.float32) * np.float32(0.1))
    out = (batch, shape.outputs, shape.out_side, shape.out_side)
    grad = side.images(random.standard_normal(out, np.float32))
    geometry = {"stride": shape.stride, "padding": shape.padding, "groups": shape.groups}
    return side.conv2d(way, x, weight, grad, **geometry)


def flops_of(piece: str) -> float:
    """Return the FLOPs of the direct method."""
    name = piece.partition(":")[0]
    known = {shape.name: shape.flops(BATCH) for shape in (*PLAIN, *OTHERS)}
    return known.get(name, float("nan"))


def targets(result: Result) -> list[Target]:
    found = []
    for what, group, goal in (("3×3", PLAIN, 1.5), ("other", OTHERS, 1.1)):
        for way in WAYS:
            pieces = [f"{shape.name}: {way}" for shape in group]
            name = f"{what} convolutions, {way}, {result.threads}, the least of all shapes"
            found.append(t.least(name, result, goal, pieces))
    return found


STUDY = PieceStudy(
    "Convolutions, float32, batches of 128 images",
    "convolution",
    builds,
    ("needle", *EAGER),
    flops=flops_of,
    targets=targets,
)
