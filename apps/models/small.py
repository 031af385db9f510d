"""LeNet-5, the course's ResNet9 and its MLP with residual blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import needle
from needle import nn

from .registry import model


@model("lenet5")
class LeNet5(nn.Module):
    """LeCun et al. 1998: x (N, in_channels, 32, 32) -> logits (N, num_classes).

    It has the paper's five trained layers and their sizes, 61 706 parameters for one channel and
    ten classes. Max pooling and ReLU replace the paper's scaled averages and tanh, and every map of
    the second convolution reads all six of the first.
    """

    image_size = (32, 32)

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 10,
        device: Any = None,
        dtype: Any = "float32",
    ) -> None:
        ### BEGIN YOUR SOLUTION [lenet5]
        super().__init__()
        place = {"device": device, "dtype": dtype}
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5, **place),  # 32 -> 28
            nn.ReLU(),
            nn.MaxPool2d(2),  # -> 14
            nn.Conv2d(6, 16, 5, **place),  # -> 10
            nn.ReLU(),
            nn.MaxPool2d(2),  # -> 5
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, 120, **place),
            nn.ReLU(),
            nn.Linear(120, 84, **place),
            nn.ReLU(),
            nn.Linear(84, num_classes, **place),
        )
        ### END YOUR SOLUTION

    def forward(self, x: needle.Tensor) -> needle.Tensor:
        return self.classifier(self.features(x))


class ConvBN(nn.Sequential):
    """Convolution with bias ("same" padding), batch norm, ReLU: (N, C, H, W) -> (N, O, OH, OW)."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, **place: Any
    ) -> None:
        super().__init__(
            nn.Conv(in_channels, out_channels, kernel_size, stride=stride, **place),
            nn.BatchNorm2d(out_channels, **place),
            nn.ReLU(),
        )


@model("resnet9")
class ResNet9(nn.Module):
    """The course's ResNet9: x (N, in_channels, 32, 32) -> logits (N, num_classes).

    431 946 parameters for three channels and ten classes. The layers are made in forward order,
    so that a seed gives the course's numbers.
    """

    image_size = (32, 32)

    def __init__(
        self,
        device: Any = None,
        dtype: Any = "float32",
        *,
        in_channels: int = 3,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        place = {"device": device, "dtype": dtype}

        def pair_of(channels: int) -> nn.Module:
            blocks = [ConvBN(channels, channels, 3, 1, **place) for _ in range(2)]
            return nn.Residual(nn.Sequential(*blocks))

        self.layers = nn.Sequential(
            ConvBN(in_channels, 16, 7, 4, **place),  # 32 -> 8
            ConvBN(16, 32, 3, 2, **place),  # -> 4
            pair_of(32),
            ConvBN(32, 64, 3, 2, **place),  # -> 2
            ConvBN(64, 128, 3, 2, **place),  # -> 1
            pair_of(128),
            nn.Flatten(),
            nn.Linear(128, 128, **place),
            nn.ReLU(),
            nn.Linear(128, num_classes, **place),
        )

    def forward(self, x: needle.Tensor) -> needle.Tensor:
        return self.layers(x)


class ResidualBlock(nn.Sequential):
    """ReLU(x + norm(Linear(Dropout(ReLU(norm(Linear(x))))))), (N, dim) -> (N, dim)."""

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        norm: Callable[..., nn.Module] = nn.BatchNorm1d,
        drop_prob: float = 0.1,
        **place: Any,
    ) -> None:
        inner = nn.Sequential(
            nn.Linear(dim, hidden_dim, **place),
            norm(hidden_dim, **place),
            nn.ReLU(),
            nn.Dropout(drop_prob),
            nn.Linear(hidden_dim, dim, **place),
            norm(dim, **place),
        )
        super().__init__(nn.Residual(inner), nn.ReLU())


@model("mlp_resnet")
class MLPResNet(nn.Module):
    """The course's MLP with residual blocks on flattened images, x (N, ...) -> (N, num_classes).

    ``in_channels`` channels of 28 x 28; another number of inputs by ``dim``.
    """

    image_size = (28, 28)

    def __init__(
        self,
        dim: int | None = None,
        hidden_dim: int = 100,
        num_blocks: int = 3,
        num_classes: int = 10,
        norm: Callable[..., nn.Module] = nn.BatchNorm1d,
        drop_prob: float = 0.1,
        *,
        in_channels: int = 1,
        device: Any = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        # Options are passed only if given, because a user's norm may accept the width alone.
        given = {"device": device, "dtype": None if dtype == "float32" else dtype}
        place = {name: value for name, value in given.items() if value is not None}
        inputs = in_channels * 28 * 28 if dim is None else dim
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, hidden_dim, **place),
            nn.ReLU(),
            *(
                ResidualBlock(hidden_dim, hidden_dim // 2, norm, drop_prob, **place)
                for _ in range(num_blocks)
            ),
            nn.Linear(hidden_dim, num_classes, **place),
        )

    def forward(self, x: needle.Tensor) -> needle.Tensor:
        return self.layers(x)
