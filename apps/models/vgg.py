"""VGG (Simonyan & Zisserman 2015) with batch norm, for small images.

One linear layer replaces the paper's three, because a 32 x 32 image is reduced to one pixel.
"""

from __future__ import annotations

from typing import Any

from needle import Tensor, nn

from .registry import model

POOL = "M"


class VGG(nn.Module):
    """x (N, in_channels, 32, 32) -> logits (N, num_classes). ``plan``: the channels of each 3 x 3
    convolution, or "M" for max pooling. Parameters have the names of torchvision's ``vgg*_bn``
    up to the classifier."""

    plan: tuple[int | str, ...]
    image_size = (32, 32)

    def __init__(self, in_channels: int = 3, num_classes: int = 10, **place: Any) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for step in self.plan:
            if isinstance(step, str):
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [
                nn.Conv2d(in_channels, step, 3, padding=1, **place),
                nn.BatchNorm2d(step, **place),
                nn.ReLU(),
            ]
            in_channels = step
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(in_channels, num_classes, **place))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


@model("vgg11")
class VGG11(VGG):
    """The paper's configuration A: 9 231 114 parameters for three channels and ten classes."""

    plan = (64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL, 512, 512, POOL)
