"""Sequential fuses a layer with the following ReLU only where the results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import needle
from needle import nn


def test_a_plain_function_may_follow_a_layer() -> None:
    np.random.seed(0)
    layer = nn.Linear(3, 2)
    x = needle.Tensor(np.linspace(-1, 1, 6).reshape(2, 3), dtype="float32")
    got = nn.Sequential(layer, needle.relu)(x)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got.numpy(), needle.relu(layer(x)).numpy())


def test_a_residual_that_broadcasts_is_not_fused() -> None:
    np.random.seed(0)
    block = nn.Residual(nn.Sequential(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3)))
    x = needle.Tensor(np.random.randn(2, 1, 4, 4), dtype="float32")
    np.testing.assert_allclose(
        nn.Sequential(block, nn.ReLU())(x).numpy(), needle.relu(block(x)).numpy(), atol=1e-6
    )


def test_a_replaced_call_of_all_modules_sees_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    real = nn.Module.__call__

    def spy(self: nn.Module, *args: Any, **options: Any) -> Any:
        called.append(type(self).__name__)
        return real(self, *args, **options)

    monkeypatch.setattr(nn.Module, "__call__", spy)
    nn.Sequential(nn.Linear(3, 2), nn.ReLU())(needle.Tensor(np.ones((1, 3)), dtype="float32"))
    assert called == ["Sequential", "Linear", "ReLU"]
