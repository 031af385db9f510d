"""Arithmetic of models: multiplications and additions of their convolutions and products."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import needle
from apps.models import build_model
from needle import nn


@cache
def training_flops(name: str, channels: int) -> float:
    """Return FLOPs of a training step per image of 32 x 32: three times the forward pass."""
    model, counted = build_model(name, in_channels=channels), [0.0]
    for layer in (module for module in _layers(model) if isinstance(module, nn.Conv2d | nn.Linear)):
        _count(layer, counted)
    with needle.no_grad():
        model.eval()
        model(needle.Tensor(np.zeros((1, channels, 32, 32)), device=needle.cpu(), dtype="float32"))
    return 3 * counted[0]


def _layers(model: nn.Module) -> list[nn.Module]:
    return [module for _, module in model.named_modules()]


def _count(layer: Any, counted: list[float]) -> None:
    forward = layer.forward

    def counting(x: Any) -> Any:
        y = forward(x)
        pixels = int(np.prod(y.shape)) // layer.weight.shape[-1]
        counted[0] += 2.0 * pixels * int(np.prod(layer.weight.shape))
        return y

    layer.forward = counting
