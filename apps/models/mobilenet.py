"""MobileNet (Howard et al. 2017): depthwise 3 x 3 convolutions alternate with 1 x 1 ones."""

from __future__ import annotations

from typing import Any

from needle import Tensor, nn

from .registry import model

# (channels, stride) of each pair of a depthwise and a pointwise convolution: the paper's table 1.
BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *[(512, 1)] * 5,
    *((1024, 2), (1024, 1)),
)


class Separable(nn.Sequential):
    """Depthwise 3 x 3, batch norm, ReLU, pointwise 1 x 1, batch norm, ReLU.

    x (N, in_channels, H, W) -> (N, channels, H/stride, W/stride).
    """

    def __init__(self, in_channels: int, channels: int, stride: int, **place: Any) -> None:
        options = {"bias": False, **place}
        super().__init__(
            nn.Conv2d(in_channels, in_channels, 3, stride, 1, groups=in_channels, **options),
            nn.BatchNorm2d(in_channels, **place),
            nn.ReLU(),
            nn.Conv2d(in_channels, channels, 1, **options),
            nn.BatchNorm2d(channels, **place),
            nn.ReLU(),
        )


@model("mobilenet")
class MobileNet(nn.Module):
    """x (N, in_channels, H, W) -> logits (N, num_classes), of width 1.

    3 217 226 parameters for three channels and ten classes, 4 231 976 for a thousand. The first
    convolution has stride 1, for 32 x 32 images, where the paper's has 2 for 224 x 224.
    """

    image_size = (32, 32)

    def __init__(self, in_channels: int = 3, num_classes: int = 10, **place: Any) -> None:
        super().__init__()
        blocks, inputs = [], 32
        for channels, stride in BLOCKS:
            blocks.append(Separable(inputs, channels, stride, **place))
            inputs = channels
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 32, 3, padding=1, bias=False, **place),
            nn.BatchNorm2d(32, **place),
            nn.ReLU(),
            *blocks,
        )
        self.avgpool = nn.GlobalAvgPool()
        self.fc = nn.Linear(inputs, num_classes, **place)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.features(x)))
