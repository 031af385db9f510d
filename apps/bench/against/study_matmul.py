"""Matrix products in float32: square ones, and those of ResNet-18's convolutions as im2col."""

from __future__ import annotations

from functools import partial

import numpy as np

from apps.bench.data.case import Case
from apps.bench.data.harness import Result
from apps.bench.data.target import Target

from . import tables as t
from .pieces import Build, cases_of
from .settings import Settings
from .sides import SLOW, Side, Step

TITLE = "Matrix products, float32"
GOAL = 1.0
SQUARES = (256, 512, 1024, 2048)
IM2COL = ((32768, 576, 64), (8192, 1152, 128), (2048, 2304, 256), (512, 4608, 512))
"""Rows, inner size and columns for 32 images and 3 x 3 filters."""


def sizes(settings: Settings) -> dict[str, tuple[int, int, int]]:
    """Return (rows, inner, columns) by name."""
    squares = settings.pick(SQUARES, (16,))
    others = settings.pick(IM2COL, ((32, 9, 4),))
    shapes = [(n, n, n) for n in squares] + list(others)
    return {" × ".join(map(str, shape)): shape for shape in shapes}


def builds(settings: Settings) -> dict[str, Build]:
    return {name: partial(product, shape=shape) for name, shape in sizes(settings).items()}


def product(side: Side, shape: tuple[int, int, int]) -> Step:
    """Return a call of a (rows, inner) @ b (inner, columns)."""
    rows, inner, columns = shape
    random = np.random.default_rng(0)
    a, b = (
        side.tensor(random.standard_normal(s, np.float32))
        for s in ((rows, inner), (inner, columns))
    )
    return lambda: a @ b


def cases(settings: Settings) -> list[Case]:
    names = ["needle", SLOW[0], "PyTorch, eager"]
    return cases_of(names, builds, settings, peaks=True)


def work(piece: str) -> float:
    """Return the FLOPs."""
    rows, inner, columns = map(int, piece.split(" × "))
    return 2.0 * rows * inner * columns


def tables(result: Result, limits: Result | None) -> list[str]:
    return t.pieces_table("rows × inner × columns", result, limits, flops=work)


def targets(result: Result, limits: Result | None) -> list[Target]:
    name = f"matmul, {t.threads_of(result)}, the least of all sizes"
    found = [t.least(name, result, GOAL)]
    return found + t.share_targets("matmul", result, limits, work, 0.8)
