"""Options and inputs that layers refuse: each error names the layer, the rule and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from needle import init, nn
from needle.errors import ShapeError

zeros = init.zeros

REFUSALS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    *[
        (
            lambda make=make, shape=shape: make(3)(zeros(*shape)),
            ShapeError,
            rf"{make.__name__}: training needs more than one value a channel, got shape \(1, 3",
        )
        for make, shape in (
            (nn.BatchNorm1d, (1, 3)),
            (nn.BatchNorm1d, (1, 3, 1)),
            (nn.BatchNorm2d, (1, 3, 1, 1)),
        )
    ],
    (
        lambda: nn.BatchNorm1d(3, track_running_stats=False).eval()(zeros(1, 3)),
        ShapeError,
        "BatchNorm1d: training needs more than one value",
    ),
    (
        lambda: nn.LayerNorm((2, 3))(zeros(4, 3)),
        ShapeError,
        r"LayerNorm: the last axes must be \(2, 3\), got shape \(4, 3\)",
    ),
    (lambda: nn.LayerNorm(3)(zeros()), ShapeError, r"LayerNorm: the last axis must have dim=3"),
    (lambda: nn.RMSNorm((2, 3))(zeros(3)), ShapeError, r"RMSNorm: the last axes must be \(2, 3\)"),
    (
        lambda: nn.GroupNorm(2, 3),
        ShapeError,
        "GroupNorm: num_groups must divide num_channels, got 2 and 3",
    ),
    (lambda: nn.GroupNorm(0, 3), ShapeError, "GroupNorm: num_groups must divide num_channels"),
    (
        lambda: nn.GroupNorm(2, 4)(zeros(2, 3)),
        ShapeError,
        r"GroupNorm: input must be \(N, C, ...\) with C=4, got shape \(2, 3\)",
    ),
    (
        lambda: nn.GroupNorm(4, 4)(zeros(1, 4)),
        ShapeError,
        r"GroupNorm: a group needs more than one value, got shape \(1, 4\) for 4 groups",
    ),
    (
        lambda: nn.InstanceNorm2d(3)(zeros(2, 3, 1, 1)),
        ShapeError,
        r"InstanceNorm2d: a channel needs more than one position, got shape \(2, 3, 1, 1\)",
    ),
    (
        lambda: nn.InstanceNorm1d(3)(zeros(3)),
        ShapeError,
        r"InstanceNorm1d: input must be \(N, C, L\) with C=3, got shape \(3,\)",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSALS, ids=lambda v: str(v)[:50])
def test_a_layer_refuses(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_batch_of_one_is_normalised_in_evaluation() -> None:
    assert nn.BatchNorm1d(3).eval()(zeros(1, 3)).shape == (1, 3)
    assert nn.BatchNorm2d(3)(zeros(1, 3, 1, 2)).shape == (1, 3, 1, 2)
