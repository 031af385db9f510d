"""Pooling layers for x (N, C, H, W) or (N, C, L); the formulas are in ``ops.pooling``."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..autograd import Tensor
from ..ops.adaptive_pooling import Grid
from ..shapes import Size
from .module import Module


class _Pool(Module):
    """Base class of pools, which holds the window sizes and the options that are not default."""

    kernel_size: Any
    stride: Any
    padding: Any

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, **options: Any
    ) -> None:
        super().__init__()
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride
        self.options = options

    def extra_repr(self) -> str:
        sizes = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        defaults = {"dilation": 1, "count_include_pad": True, "divisor_override": None}
        changed = {k: v for k, v in self.options.items() if v != defaults.get(k, False)}
        return ", ".join([sizes, *(f"{name}={value}" for name, value in changed.items())])


class _MaxPool(_Pool):
    """Base class of max pools."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        options = {"dilation": dilation, "return_indices": return_indices, "ceil_mode": ceil_mode}
        super().__init__(kernel_size, stride, padding, **options)


class MaxPool2d(_MaxPool):
    """Maximum of each window: (N, C, H, W) -> (N, C, OH, OW).

    The stride defaults to the kernel size; options as in ``ops.max_pool2d``.
    """

    def forward(self, x: Tensor) -> Any:
        return ops.max_pool2d(x, self.kernel_size, self.stride, self.padding, **self.options)


class MaxPool1d(_MaxPool):
    """Maximum of each window: (N, C, L) -> (N, C, OL).

    The stride defaults to the kernel size; options as in ``ops.max_pool2d``.
    """

    def forward(self, x: Tensor) -> Any:
        return ops.max_pool1d(x, self.kernel_size, self.stride, self.padding, **self.options)


class AvgPool2d(_Pool):
    """Mean of each window: (N, C, H, W) -> (N, C, OH, OW). Padding counts as zeros.

    The stride defaults to the kernel size; options as in ``ops.avg_pool2d``.
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        options = {
            "ceil_mode": ceil_mode,
            "count_include_pad": count_include_pad,
            "divisor_override": divisor_override,
        }
        super().__init__(kernel_size, stride, padding, **options)

    def forward(self, x: Tensor) -> Tensor:
        return ops.avg_pool2d(x, self.kernel_size, self.stride, self.padding, **self.options)


class AvgPool1d(_Pool):
    """Mean of each window: (N, C, L) -> (N, C, OL). Padding counts as zeros.

    The stride defaults to the kernel size; options as in ``ops.avg_pool2d``.
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        options = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        super().__init__(kernel_size, stride, padding, **options)

    def forward(self, x: Tensor) -> Tensor:
        return ops.avg_pool1d(x, self.kernel_size, self.stride, self.padding, **self.options)


class MaxUnpool2d(_Pool):
    """Inverse of MaxPool2d, 0 except at the maxima: ``ops.max_unpool2d``."""

    def forward(self, x: Tensor, indices: Any, output_size: Any = None) -> Tensor:
        return ops.max_unpool2d(
            x, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class _Adaptive(Module):
    """Base class of adaptive pools."""

    shown_in_repr = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool2d(_Adaptive):
    """Means over a grid of ``output_size`` windows covering the image; None keeps that size."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveAvgPool1d(_Adaptive):
    """Means over ``output_size`` windows that cover the signal (N, C, L)."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveMaxPool2d(_Adaptive):
    """Maxima over a grid of ``output_size`` windows covering the image; None keeps that size.

    ``return_indices``: also return the positions of the maxima.
    """

    def __init__(self, output_size: Grid, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        return ops.adaptive_max_pool2d(x, self.output_size, self.return_indices)


class GlobalAvgPool(Module):
    """Mean of each channel: (N, C, H, W) -> (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.reshape(ops.adaptive_avg_pool2d(x, 1), tuple(x.shape[:2]))
