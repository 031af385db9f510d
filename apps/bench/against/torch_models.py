"""The models of apps.models in plain torch.nn, with the same layers, names and parameters.

Imported only if PyTorch is installed; tests load the state of each model into its counterpart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F


def lenet5() -> nn.Module:
    """Return LeNet-5 for x (N, 1, 32, 32)."""
    pool = (nn.ReLU(), nn.MaxPool2d(2))
    features = nn.Sequential(nn.Conv2d(1, 6, 5), *pool, nn.Conv2d(6, 16, 5), *pool)
    hidden = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU())
    classifier = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(84, 10))
    return named(features=features, classifier=classifier)


def named(**modules: nn.Module) -> nn.Module:
    """Return a Sequential whose modules have names."""
    return nn.Sequential(OrderedDict(modules))


class Residual(nn.Module):
    """A residual module: fn(x) + x."""

    def __init__(self, fn: nn.Module) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fn(x) + x


def conv_bn(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    """Return a convolution with bias, batch norm and ReLU."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def resnet9() -> nn.Module:
    """Return the course's ResNet9 for x (N, 3, 32, 32)."""

    def pair_of(channels: int) -> nn.Module:
        return Residual(nn.Sequential(*(conv_bn(channels, channels, 3) for _ in range(2))))

    layers = nn.Sequential(
        conv_bn(3, 16, 7, 4),
        conv_bn(16, 32, 3, 2),
        pair_of(32),
        conv_bn(32, 64, 3, 2),
        conv_bn(64, 128, 3, 2),
        pair_of(128),
        nn.Flatten(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return named(layers=layers)


class ZeroPad(nn.Module):
    """A shortcut that takes every other pixel and fills the new channels with zeros."""

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self.new_channels = new_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.new_channels))


class Block(nn.Module):
    """A residual block. sizes: kernel sizes of its convolutions. stride: that of the 3 x 3 one."""

    def __init__(
        self, inputs: int, channels: int, stride: int, sizes: tuple[int, ...], zero_pad: bool
    ) -> None:
        super().__init__()
        outputs = channels * (4 if len(sizes) == 3 else 1)
        widths = [inputs, *([channels] * (len(sizes) - 1)), outputs]
        self.count, strided = len(sizes), len(sizes) - 2
        for i, size in enumerate(sizes):
            step = stride if i == strided else 1
            convolution = nn.Conv2d(widths[i], widths[i + 1], size, step, size // 2, bias=False)
            setattr(self, f"conv{i + 1}", convolution)
            setattr(self, f"bn{i + 1}", nn.BatchNorm2d(widths[i + 1]))
        self.downsample: nn.Module = nn.Identity()
        if zero_pad and inputs != outputs:
            self.downsample = ZeroPad(outputs - inputs)
        elif stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = y + self.downsample(x) if i == self.count else y
            y = F.relu(y)
        return y


def resnet(
    depths: tuple[int, ...],
    sizes: tuple[int, ...] = (3, 3),
    width: int = 64,
    zero_pad: bool = False,
) -> nn.Module:
    """Return a ResNet with the CIFAR stem for x (N, 3, 32, 32)."""
    modules = {
        "conv1": nn.Conv2d(3, width, 3, padding=1, bias=False),
        "bn1": nn.BatchNorm2d(width),
        "relu": nn.ReLU(),
    }
    inputs = width
    for number, depth in enumerate(depths):
        blocks, channels = [], width << number
        for i in range(depth):
            stride = 2 if number and i == 0 else 1
            blocks.append(Block(inputs, channels, stride, sizes, zero_pad))
            inputs = channels * (4 if len(sizes) == 3 else 1)
        modules[f"layer{number + 1}"] = nn.Sequential(*blocks)
    return named(
        **modules, avgpool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(inputs, 10)
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lenet5": lenet5,
    "resnet9": resnet9,
    "resnet20": partial(resnet, (3, 3, 3), width=16, zero_pad=True),
    "resnet18": partial(resnet, (2, 2, 2, 2)),
    "resnet50": partial(resnet, (3, 4, 6, 3), (1, 3, 1)),
}
"""Constructors by name, for ten classes; LeNet-5 has one input channel, the others three."""
