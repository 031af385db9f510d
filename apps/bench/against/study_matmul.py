"""Matrix products in float32: square ones, and those of ResNet-18's convolutions as im2col."""

from __future__ import annotations

from functools import partial

import numpy as np

from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target
from apps.bench.harness.turns import Result

from . import tables as t
from .sides import EAGER, Side, Step
from .study import Build, PieceStudy

GOAL, SHARE = 1.0, 0.8
"""Goals for the speed ratio, and for the share of the machine's arithmetic peak."""
SQUARES = (256, 512, 1024, 2048)
IM2COL = ((32768, 576, 64), (8192, 1152, 128), (2048, 2304, 256), (512, 4608, 512))
"""Rows, inner size and columns for 32 images and 3 x 3 filters."""


def builds(settings: Settings) -> dict[str, Build]:
    """Return the products by the name rows × inner × columns."""
    squares = settings.pick((*SQUARES, *((4096,) if settings.device != "cpu" else ())), (16,))
    shapes = [(n, n, n) for n in squares] + list(settings.pick(IM2COL, ((32, 9, 4),)))
    return {" × ".join(map(str, shape)): partial(product, shape=shape) for shape in shapes}


def product(side: Side, shape: tuple[int, int, int]) -> Step:
    """Return a function that computes a (rows, inner) @ b (inner, columns)."""
    rows, inner, columns = shape
    random = np.random.default_rng(0)
    a, b = (
        side.operand(random.standard_normal(each, np.float32))
        for each in ((rows, inner), (inner, columns))
    )
    return lambda: a @ b


def flops(piece: str) -> float:
    """Return the FLOPs."""
    rows, inner, columns = map(int, piece.split(" × "))
    return 2.0 * rows * inner * columns


def targets(result: Result) -> list[Target]:
    """Return the slowest product's targets, relative to PyTorch and to the machine's peak."""
    found = [t.least(f"matmul, {result.threads}, the least of all sizes", result, GOAL)]
    return found + t.share_targets("matmul", result, flops, SHARE)


STUDY = PieceStudy(
    "Matrix products, float32",
    "rows × inner × columns",
    builds,
    ("needle", EAGER[0]),
    flops=flops,
    targets=targets,
    peaks=True,
)
