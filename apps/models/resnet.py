# Trail 22 of 30: BasicBlock.forward: the residual connection.
# Next: apps/training/step.py
"""Residual networks (He et al. 2016) for CIFAR, and for ImageNet with a stem of either size.

Parameters have the names of torchvision's models, so that ``nn.torch_mapping`` can load theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from needle import Tensor, init, nn, ops

from .registry import model


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: ReLU(BN(conv(ReLU(BN(conv(x))))) + shortcut(x)).

    The batch norms do the addition and ReLU in the same passes over memory.

    x (N, in_channels, H, W) -> (N, channels, H/stride, W/stride). ``shortcut``, "B", is a strided
    1 x 1 convolution with batch norm where shapes change; "A", without parameters, takes every
    stride-th pixel and fills the new channels with zeros (He et al. 2016, section 3.3).
    """

    expansion = 1

    def __init__(
        self, in_channels: int, channels: int, stride: int, shortcut: str = "B", **place: Any
    ) -> None:
        super().__init__()
        self.conv1 = _convolution(in_channels, channels, 3, stride, **place)
        self.bn1 = nn.BatchNorm2d(channels, activation="relu", **place)
        self.conv2 = _convolution(channels, channels, 3, **place)
        self.bn2 = nn.BatchNorm2d(channels, activation="relu", **place)
        self.downsample = _shortcut(in_channels, channels, stride, shortcut, **place)

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [basic-block]
        y = self.bn1(self.conv1(x))
        return self.bn2(self.conv2(y), self.downsample(x))
        ### END YOUR SOLUTION


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (with the stride, as in torchvision) and 1 x 1 convolutions, and a shortcut.

    x (N, in_channels, H, W) -> (N, 4 channels, H/stride, W/stride); ``shortcut`` as in BasicBlock.
    """

    expansion = 4

    def __init__(
        self, in_channels: int, channels: int, stride: int, shortcut: str = "B", **place: Any
    ) -> None:
        super().__init__()
        out_channels = 4 * channels
        self.conv1 = _convolution(in_channels, channels, 1, **place)
        self.bn1 = nn.BatchNorm2d(channels, activation="relu", **place)
        self.conv2 = _convolution(channels, channels, 3, stride, **place)
        self.bn2 = nn.BatchNorm2d(channels, activation="relu", **place)
        self.conv3 = _convolution(channels, out_channels, 1, **place)
        self.bn3 = nn.BatchNorm2d(out_channels, activation="relu", **place)
        self.downsample = _shortcut(in_channels, out_channels, stride, shortcut, **place)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x))
        y = self.bn2(self.conv2(y))
        return self.bn3(self.conv3(y), self.downsample(x))


class ZeroPadShortcut(nn.Module):
    """Option A of He et al. 2016: every stride-th pixel, and zeros in the new channels."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        kept = ops.avg_pool2d(x, 1, self.stride)  # x[:, :, ::stride, ::stride], by a kernel
        batch, _, height, width = kept.shape
        shape = (batch, self.new_channels, height, width)
        zeros = init.zeros(*shape, device=x.device, dtype=x.dtype)
        return ops.concatenate((kept, zeros), axis=1)


def _convolution(
    in_channels: int, out_channels: int, size: int, stride: int = 1, **place: Any
) -> nn.Module:
    """Return a convolution without bias (a batch norm follows); at stride 1 it keeps the size."""
    return nn.Conv2d(in_channels, out_channels, size, stride, size // 2, bias=False, **place)


def _shortcut(
    in_channels: int, out_channels: int, stride: int, option: str, **place: Any
) -> nn.Module:
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    if option == "A":
        return ZeroPadShortcut(out_channels - in_channels, stride)
    return nn.Sequential(
        _convolution(in_channels, out_channels, 1, stride, **place),
        nn.BatchNorm2d(out_channels, **place),
    )


class ResNet(nn.Module):
    """He et al. 2016: x (N, in_channels, H, W) -> logits (N, num_classes).

    A stem, stages of blocks (each stage but the first halves the image and doubles the channels),
    the mean over pixels, a linear layer. Parameters have torchvision's names. ``stem``: "cifar",
    3 x 3 at stride 1, or "imagenet", 7 x 7 at stride 2 and max pooling 3 x 3 at stride 2.
    """

    block: Callable[..., nn.Module] = BasicBlock
    depths: tuple[int, ...]
    width = 64  # channels of the first stage
    stem = "cifar"
    shortcut = "B"
    image_size = (32, 32)

    def __init__(self, in_channels: int = 3, num_classes: int = 10, **place: Any) -> None:
        super().__init__()
        size, stride = (7, 2) if self.stem == "imagenet" else (3, 1)
        self.conv1 = _convolution(in_channels, self.width, size, stride, **place)
        self.bn1 = nn.BatchNorm2d(self.width, activation="relu", **place)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if self.stem == "imagenet" else nn.Identity()
        inputs, self.stages = self.width, len(self.depths)
        for number, depth in enumerate(self.depths):
            channels, blocks = self.width << number, []
            for index in range(depth):
                stride = 2 if number and index == 0 else 1
                blocks.append(self.block(inputs, channels, stride, self.shortcut, **place))
                inputs = channels * self.block.expansion
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.GlobalAvgPool()
        self.fc = nn.Linear(inputs, num_classes, **place)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.bn1(self.conv1(x)))
        for number in range(self.stages):
            x = getattr(self, f"layer{number + 1}")(x)
        return self.fc(self.avgpool(x))


class CifarResNet(ResNet):
    """Networks of the paper for CIFAR: 6n + 2 layers, three stages of 16, 32 and 64 channels.

    Shortcuts are of option A.
    """

    width = 16
    shortcut = "A"


@model("resnet20")
class ResNet20(CifarResNet):
    """Network of 269 722 parameters for three channels and ten classes."""

    depths = (3, 3, 3)


@model("resnet32")
class ResNet32(CifarResNet):
    """Network of 464 154 parameters for three channels and ten classes."""

    depths = (5, 5, 5)


@model("resnet56")
class ResNet56(CifarResNet):
    """Network of 853 018 parameters for three channels and ten classes."""

    depths = (9, 9, 9)


@model("resnet110")
class ResNet110(CifarResNet):
    """Network of 1 727 962 parameters for three channels and ten classes."""

    depths = (18, 18, 18)


class ImageNetStem(ResNet):
    """Base class for large photographs, with a stem that divides their sides by four."""

    stem = "imagenet"
    image_size = (224, 224)


@model("resnet18")
class ResNet18(ResNet):
    """Network for small images: 11 173 962 parameters for three channels and ten classes."""

    depths = (2, 2, 2, 2)


@model("resnet18_imagenet")
class ImageNetResNet18(ImageNetStem, ResNet18):
    """Network of 11 689 512 parameters for three channels and 1000 classes."""


@model("resnet34")
class ResNet34(ResNet):
    """Network for small images: 21 282 122 parameters for three channels and ten classes."""

    depths = (3, 4, 6, 3)


@model("resnet34_imagenet")
class ImageNetResNet34(ImageNetStem, ResNet34):
    """Network of 21 797 672 parameters for three channels and 1000 classes."""


@model("resnet50")
class ResNet50(ResNet):
    """Network for small images: 23 520 842 parameters for three channels and ten classes."""

    block = Bottleneck
    depths = (3, 4, 6, 3)


@model("resnet50_imagenet")
class ImageNetResNet50(ImageNetStem, ResNet50):
    """Network of 25 557 032 parameters for three channels and 1000 classes."""
