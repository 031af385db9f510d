"""The layer table: how a layer is made, the shapes of its inputs, and the same layer in PyTorch.

``nn/test_layer_table`` and ``torch_parity/test_layers`` generate the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from needle import nn

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class LayerRow:
    """One layer with its options."""

    case: str
    """The layer's name, and what distinguishes the row from others of the layer."""
    make: Callable[..., Any]
    """Called with ``device`` and ``dtype``; returns the layer."""
    theirs: Callable[[Any], Any] | None
    """Called with ``torch.nn``; returns the same layer. None: PyTorch has no such layer."""
    shapes: tuple[Shape, ...]
    """The shapes of the inputs; each letter is a size that a test draws."""
    empty: bool = True
    """True if the batch, the letter N, may be empty."""
    biased: bool = False
    """True if running_var is the biased variance, unlike PyTorch's."""

    def inputs(self, random: np.random.Generator, **given: int) -> list[Any]:
        """Return normal inputs, whose sizes are drawn from 3 to 7 unless ``given``."""
        drawn = {letter: int(random.integers(3, 8)) for letter in "NCHWTL"} | given
        return [
            random.standard_normal([drawn[s] if isinstance(s, str) else s for s in shape])
            for shape in self.shapes
        ]


def row(case: str, make: Any, theirs: Any, *shapes: Shape, **options: Any) -> LayerRow:
    """Return a LayerRow."""
    return LayerRow(case, make, theirs, shapes, **options)


IMAGES: Shape = ("N", 4, "H", "W")
SIGNALS: Shape = ("N", 4, "L")

NORMS = [
    row(
        "BatchNorm1d",
        lambda **o: nn.BatchNorm1d(4, **o),
        lambda t: t.BatchNorm1d(4),
        ("N", 4),
        biased=True,
    ),
    row(
        "BatchNorm1d-NCL",
        lambda **o: nn.BatchNorm1d(4, **o),
        lambda t: t.BatchNorm1d(4),
        SIGNALS,
        biased=True,
    ),
    row(
        "BatchNorm2d",
        lambda **o: nn.BatchNorm2d(4, **o),
        lambda t: t.BatchNorm2d(4),
        IMAGES,
        biased=True,
    ),
    row(
        "BatchNorm2d-plain",
        lambda **o: nn.BatchNorm2d(4, eps=0.1, affine=False, **o),
        lambda t: t.BatchNorm2d(4, eps=0.1, affine=False),
        IMAGES,
        biased=True,
    ),
    row(
        "BatchNorm2d-average",
        lambda **o: nn.BatchNorm2d(4, momentum=None, **o),
        lambda t: t.BatchNorm2d(4, momentum=None),
        IMAGES,
        biased=True,
    ),
    row(
        "BatchNorm1d-untracked",
        lambda **o: nn.BatchNorm1d(4, track_running_stats=False, **o),
        lambda t: t.BatchNorm1d(4, track_running_stats=False),
        ("N", 4),
        empty=False,
    ),
    row("LayerNorm", lambda **o: nn.LayerNorm(5, **o), lambda t: t.LayerNorm(5), ("N", "T", 5)),
    row("LayerNorm-vector", lambda **o: nn.LayerNorm(5, **o), lambda t: t.LayerNorm(5), (5,)),
    row(
        "LayerNorm-axes",
        lambda **o: nn.LayerNorm((3, 5), eps=0.1, **o),
        lambda t: t.LayerNorm((3, 5), eps=0.1),
        ("N", "T", 3, 5),
    ),
    row(
        "LayerNorm-unbiased",
        lambda **o: nn.LayerNorm([3, 5], bias=False, **o),
        lambda t: t.LayerNorm([3, 5], bias=False),
        ("N", 3, 5),
    ),
    row(
        "LayerNorm-plain",
        lambda **o: nn.LayerNorm(5, elementwise_affine=False, **o),
        lambda t: t.LayerNorm(5, elementwise_affine=False),
        ("N", 5),
    ),
    row("GroupNorm", lambda **o: nn.GroupNorm(2, 4, **o), lambda t: t.GroupNorm(2, 4), IMAGES),
    row(
        "GroupNorm-plain",
        lambda **o: nn.GroupNorm(1, 4, 0.1, False, **o),
        lambda t: t.GroupNorm(1, 4, 0.1, False),
        ("N", 4),
    ),
    row("InstanceNorm1d", lambda **o: nn.InstanceNorm1d(4), lambda t: t.InstanceNorm1d(4), SIGNALS),
    row(
        "InstanceNorm1d-tracked",
        lambda **o: nn.InstanceNorm1d(4, 0.1, 0.2, True, True, **o),
        lambda t: t.InstanceNorm1d(4, 0.1, 0.2, True, True),
        SIGNALS,
        empty=False,
    ),
    row(
        "InstanceNorm2d",
        lambda **o: nn.InstanceNorm2d(4, affine=True, **o),
        lambda t: t.InstanceNorm2d(4, affine=True),
        IMAGES,
    ),
    row(
        "InstanceNorm2d-image",
        lambda **o: nn.InstanceNorm2d(4, affine=True, **o),
        lambda t: t.InstanceNorm2d(4, affine=True),
        (4, "H", "W"),
    ),
    row("RMSNorm", lambda **o: nn.RMSNorm(5, **o), lambda t: t.RMSNorm(5), ("N", "T", 5)),
    row(
        "RMSNorm-axes",
        lambda **o: nn.RMSNorm((3, 5), 0.1, **o),
        lambda t: t.RMSNorm((3, 5), 0.1),
        ("N", 3, 5),
    ),
    row(
        "RMSNorm-plain",
        lambda **o: nn.RMSNorm(5, elementwise_affine=False, **o),
        lambda t: t.RMSNorm(5, elementwise_affine=False),
        ("N", 5),
    ),
]

LAYERS = [*NORMS]
