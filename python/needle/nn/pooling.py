"""Pooling layers for x (N, C, H, W); the formulas are in ``ops.pooling``."""

from __future__ import annotations

from .. import ops
from ..autograd import Tensor
from .module import Module

Size = int | tuple[int, int]


class _Pool2d(Module):
    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_Pool2d):
    """Maximum of each window: (N, C, H, W) -> (N, C, OH, OW).

    The stride defaults to the kernel size.
    """

    def forward(self, x: Tensor) -> Tensor:
        return ops.max_pool2d(x, self.kernel_size, self.stride, self.padding)


class AvgPool2d(_Pool2d):
    """Mean of each window: (N, C, H, W) -> (N, C, OH, OW). Padding counts as zeros.

    The stride defaults to the kernel size.
    """

    def forward(self, x: Tensor) -> Tensor:
        return ops.avg_pool2d(x, self.kernel_size, self.stride, self.padding)


class AdaptiveAvgPool2d(Module):
    """Means over a grid of ``output_size`` windows that cover the image."""

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"

    def forward(self, x: Tensor) -> Tensor:
        return ops.adaptive_avg_pool2d(x, self.output_size)


class GlobalAvgPool(Module):
    """Mean of each channel: (N, C, H, W) -> (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.reshape(ops.adaptive_avg_pool2d(x, 1), tuple(x.shape[:2]))
