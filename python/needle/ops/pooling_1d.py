"""Pool signals (N, C, L) or (C, L), as images with one row."""

from __future__ import annotations

from typing import Any

from ..autograd import Tensor
from ..shapes import Pair, row_pair, shape_with
from .adaptive_pooling import adaptive_avg_pool2d, adaptive_max_pool2d
from .pooling import AvgPool2d, MaxPool2d, avg_pool2d, max_pool2d
from .registry import op
from .shape import reshape

One = int | tuple[int]


def _image(name: str, x: Tensor) -> Tensor:
    shape = shape_with(name, x, "(N, C, L)", 2, 3)
    return reshape(x, (*shape[:-1], 1, shape[-1]))


def _signal(y: Any) -> Any:
    if isinstance(y, tuple):
        return tuple(_signal(part) for part in y)
    return reshape(y, (*y.shape[:-2], y.shape[-1]))


def _sizes(name: str, kernel: One, stride: One | None, padding: One) -> tuple[Pair, Pair, Pair]:
    return (
        row_pair(name, "kernel", kernel, 1),
        row_pair(name, "stride", kernel if stride is None else stride, 1),
        row_pair(name, "padding", padding, 0),
    )


@op(MaxPool2d)
def max_pool1d(
    x: Tensor,
    kernel: One,
    stride: One | None = None,
    padding: One = 0,
    dilation: One = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of x: (N, C, L) -> (N, C, OL), or without N.

    Options and errors are as in ``max_pool2d``.
    """
    name, windows = "max_pool1d", (kernel, stride, padding)
    more = (row_pair(name, "dilation", dilation, 1), ceil_mode, return_indices)
    return _signal(max_pool2d(_image(name, x), *_sizes(name, *windows), *more))


@op(AvgPool2d)
def avg_pool1d(
    x: Tensor,
    kernel: One,
    stride: One | None = None,
    padding: One = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of x: (N, C, L) -> (N, C, OL), or without N.

    Options and errors are as in ``avg_pool2d``.
    """
    sizes = _sizes("avg_pool1d", kernel, stride, padding)
    images = avg_pool2d(_image("avg_pool1d", x), *sizes, ceil_mode, count_include_pad)
    y: Tensor = _signal(images)
    return y


@op(AvgPool2d)
def adaptive_avg_pool1d(x: Tensor, output_size: One) -> Tensor:
    """Return the means over ``output_size`` windows of x: (N, C, L) -> (N, C, OL)."""
    name = "adaptive_avg_pool1d"
    size = row_pair(name, "output_size", output_size, 1)
    y: Tensor = _signal(adaptive_avg_pool2d(_image(name, x), size))
    return y


@op(MaxPool2d)
def adaptive_max_pool1d(x: Tensor, output_size: One, return_indices: bool = False) -> Any:
    """Return the maxima over ``output_size`` windows of x: (N, C, L) -> (N, C, OL)."""
    name = "adaptive_max_pool1d"
    size = row_pair(name, "output_size", output_size, 1)
    return _signal(adaptive_max_pool2d(_image(name, x), size, return_indices))
