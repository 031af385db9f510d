"""How the cost of a convolution grows with the batch, the channels and the image.

A kernel has cliffs where a block, a cache or a thread is no longer full. Along each line of shapes
the rate should rise to the machine's limit and stay there; where it falls, there is a cliff.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from apps.bench.data.case import Case
from apps.bench.data.harness import Result
from apps.bench.data.target import Target

from . import tables as t
from .pieces import Build, cases_of
from .settings import Settings
from .study_conv2d import WAYS, Shape, convolution

TITLE = "Growth of 3x3 convolutions over batch, channels and image, float32"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CHANNELS = (4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512)
SIDES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64)
CLIFF = 0.5
"""A rate below this part of the best one before it on its line is a cliff."""


def shapes() -> Iterator[tuple[str, Shape, int]]:
    """Yield (name, shape, batch) along the three lines."""
    for batch in BATCHES:
        yield f"batch {batch}, 64 channels, 16x16", Shape(64, 64, 16), batch
    for channels in CHANNELS:
        yield f"{channels} channels, batch 16, 16x16", Shape(channels, channels, 16), 16
    for side in SIDES:
        yield f"{side}x{side}, batch 16, 64 channels", Shape(64, 64, side), 16


def builds(settings: Settings) -> dict[str, Build]:
    chosen = settings.pick(list(shapes()), [("batch 1, 4 channels, 3x3", Shape(4, 4, 3), 1)])
    return {
        f"{name}: {way}": partial(convolution, shape=shape, way=way, batch=batch)
        for name, shape, batch in chosen
        for way in settings.pick(WAYS, WAYS[:1])
    }


def cases(settings: Settings) -> list[Case]:
    """Return a case of needle and one of PyTorch, with all shapes."""
    return cases_of(["needle", "PyTorch, channels last"], builds, settings)


def work(piece: str) -> float:
    """Return the FLOPs of the direct method."""
    known = {name: shape.flops(batch) for name, shape, batch in shapes()}
    return known.get(piece.partition(": ")[0], float("nan"))


def tables(result: Result, limits: Result | None) -> list[str]:
    """Return the table of all shapes, and the cliffs."""
    found = cliffs(result)
    note = f"Cliffs, where the rate falls below {CLIFF:.0%} of a smaller shape's: "
    return [
        *t.pieces_table("convolution", result, limits, flops=work),
        note + (", ".join(found) if found else "none") + ".",
        "",
    ]


def cliffs(result: Result) -> list[str]:
    """Return the pieces of needle whose rate is below a part of the best before on their line."""
    found = []
    for way in WAYS:
        names = [f"{name}: {way}" for name, _, _ in shapes()]
        lengths = (len(BATCHES), len(CHANNELS), len(SIDES))
        for length in lengths:
            line, names = names[:length], names[length:]
            best = 0.0
            for name in line:
                rate = work(name) / result.median("needle", name)
                if rate < CLIFF * best:
                    found.append(name)
                best = max(best, rate)
    return found


def targets(result: Result, limits: Result | None) -> list[Target]:
    """Return no target: the lines show where a kernel is worth work."""
    return []
