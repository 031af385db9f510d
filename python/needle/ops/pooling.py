"""Max and average pooling of images (N, C, H, W), and their gradients as separate ops.

The kernels are channels last and get permuted views. Windows that they do not support are composed
of other ops. Adaptive pools are in ``adaptive_pooling``, layers in ``nn.pooling``.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from .. import accelerated
from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy
from ..autograd import Tensor, TensorOp
from ..host_steps import host_step
from ..shapes import Shape, Size, shape_of
from .convolution import TO_FIRST, TO_LAST
from .padding import Pad
from .pool_windows import PoolWindows, WindowMax, max_positions, taken, window_pairs
from .registry import Array, op
from .shape import reshape


class _Pool2d(TensorOp):
    """Base class of the pooling ops, with the window sizes in the order that kernels take."""

    def __init__(self, kernel: Size, stride: Size | None = None, padding: Size = 0) -> None:
        self.windows = window_pairs("pool2d", kernel, stride, padding)

    def _output_size(self, name: str, x: Shape) -> tuple[int, int]:
        """Return (OH, OW) for an input of shape x; ShapeError if a window does not fit."""
        return PoolWindows.of_pairs(name, tuple(x), *self.windows).out


class MaxPool2d(_Pool2d):
    """Maximum of each window: ``max_pool2d``."""

    reads = (0,)

    def compute(self, x: Array) -> Array:
        self._output_size("max_pool2d", x.shape)
        y = accelerated.max_pool2d(xp.permute_dims(x, TO_LAST), *self.windows)
        return xp.permute_dims(y, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return MaxPool2dGrad(*self.windows)(out_grad, node.inputs[0])


class MaxPool2dGrad(_Pool2d):
    """Gradient of max pooling, which goes to the first maximum of each window; linear in grad."""

    def compute(self, grad: Array, x: Array) -> Array:
        self._output_size("max_pool2d_grad", x.shape)
        x_grad = accelerated.max_pool2d_grad(
            xp.permute_dims(grad, TO_LAST), xp.permute_dims(x, TO_LAST), *self.windows
        )
        return xp.permute_dims(x_grad, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, None]:
        x = node.inputs[1]
        return MaxPool2dSelect(*self.windows)(out_grad, x), None


class MaxPool2dSelect(_Pool2d):
    """The op that takes from a (N, C, H, W) the element at the first maximum of each window of x.

    It is the adjoint of MaxPool2dGrad, written with array operations, because only second
    derivatives need it.
    """

    def compute(self, a: Array, x: Array) -> Array:
        size = self._output_size("max_pool2d_select", x.shape)
        best, chosen = None, None
        windows = zip(self._shifts(x, -np.inf, size), self._shifts(a, 0.0, size), strict=True)
        for candidate, value in windows:
            if best is None:
                best, chosen = candidate, value
                continue
            # NaN (x != x) exceeds every number, and the first NaN is kept
            wins = xp.logical_and(
                xp.logical_or(candidate > best, candidate != candidate), best == best
            )
            best, chosen = xp.where(wins, candidate, best), xp.where(wins, value, chosen)
        return chosen

    def _shifts(self, a: Array, border: float, size: tuple[int, int]) -> list[Array]:
        """Return, for each position in a window, that element of every window."""
        kernel, stride, (top, left) = self.windows
        n, c, h, w = a.shape
        shape = (n, c, h + 2 * top, w + 2 * left)
        padded = xp.zeros_like(a) if not (top or left) else _filled(a, shape, border)
        padded[:, :, top : top + h, left : left + w] = a
        rows, columns = (s * (n - 1) + 1 for s, n in zip(stride, size, strict=True))
        return [
            padded[:, :, i : i + rows : stride[0], j : j + columns : stride[1]]
            for i in range(kernel[0])
            for j in range(kernel[1])
        ]

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, None]:
        x = node.inputs[1]
        return MaxPool2dGrad(*self.windows)(out_grad, x), None


@overload
def max_pool2d(
    x: Tensor,
    kernel: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...


@overload
def max_pool2d(
    x: Tensor,
    kernel: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any: ...


@op(MaxPool2d, MaxPool2dGrad, MaxPool2dSelect, WindowMax)
def max_pool2d(
    x: Tensor,
    kernel: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of x: (N, C, H, W) -> (N, C, OH, OW), or without N.

    The stride is the kernel size by default. Padding, at most half the kernel, is never the
    maximum; NaN always is. The first of equal maxima, in row-major order, gets the gradient.
    ``dilation``: the distance between the elements of a window. ``ceil_mode``: the last window may
    end outside the image. ``return_indices``: also return the int64 positions of the maxima in the
    flattened image. ShapeError if the sizes are invalid.
    """
    if len(shape_of("max_pool2d", x)) == 3:
        y = max_pool2d(_as_batch(x), kernel, stride, padding, dilation, ceil_mode, return_indices)
        return (y[0][0], y[1][0]) if return_indices else y[0]
    windows = PoolWindows.of(
        "max_pool2d", x.shape, kernel, stride, padding, dilation=dilation, ceil_mode=ceil_mode
    )
    if return_indices or windows.dilation != (1, 1):
        y, indices = taken(x, max_positions(x, windows), windows)
        return (y, indices) if return_indices else y
    x = _extended(x, windows, -np.inf)
    return MaxPool2d(windows.kernel, windows.stride, windows.padding)(x)


def _as_batch(x: Tensor) -> Tensor:
    return reshape(x, (1, *x.shape))


def _extended(x: Tensor, windows: PoolWindows, value: float) -> Tensor:
    """Return x padded further where the last windows reach beyond the padding."""
    down, across = windows.beyond
    if not (down or across):
        return x
    return Pad(((0, 0), (0, 0), (0, down), (0, across)), value)(x)


class AvgPool2d(_Pool2d):
    """Mean of each window: ``avg_pool2d``."""

    reads = ()

    def compute(self, x: Array) -> Array:
        self._output_size("avg_pool2d", x.shape)
        y = accelerated.avg_pool2d(xp.permute_dims(x, TO_LAST), *self.windows)
        return xp.permute_dims(y, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return AvgPool2dGrad(node.inputs[0].shape, *self.windows)(out_grad)


class AvgPool2dGrad(_Pool2d):
    """Gradient of average pooling, spread evenly over each window of an ``x_shape`` input."""

    def __init__(self, x_shape: Shape, *windows: Any, **options: Any) -> None:
        super().__init__(*windows, **options)
        self.x_shape = tuple(x_shape)

    def compute(self, grad: Array) -> Array:
        self._output_size("avg_pool2d_grad", self.x_shape)
        n, c, h, w = self.x_shape
        x_grad = accelerated.avg_pool2d_grad(
            xp.permute_dims(grad, TO_LAST), (n, h, w, c), *self.windows
        )
        return xp.permute_dims(x_grad, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return AvgPool2d(*self.windows)(out_grad)


@op(AvgPool2d, AvgPool2dGrad)
def avg_pool2d(
    x: Tensor,
    kernel: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window of x: (N, C, H, W) -> (N, C, OH, OW), or without N.

    The stride is the kernel size by default. Padding, at most half the kernel, counts as zeros, or
    not at all with ``count_include_pad=False``. ``ceil_mode``: the last window may end outside the
    padding; the part outside is not counted. ``divisor_override``: divide sums by this number
    instead. ShapeError if the sizes are invalid, ValueError for a divisor of 0.
    """
    options = (ceil_mode, count_include_pad, divisor_override)
    if len(shape_of("avg_pool2d", x)) == 3:
        return avg_pool2d(_as_batch(x), kernel, stride, padding, *options)[0]
    if divisor_override == 0:
        raise ValueError("avg_pool2d: divisor_override must not be 0, got 0; pass None for means")
    windows = PoolWindows.of("avg_pool2d", x.shape, kernel, stride, padding, ceil_mode=ceil_mode)
    y = AvgPool2d(windows.kernel, windows.stride, windows.padding)(_extended(x, windows, 0.0))
    area = windows.kernel[0] * windows.kernel[1]
    if divisor_override is not None:
        return y * (area / divisor_override)
    rows, columns = windows.counts(count_include_pad)
    if {*rows} == {windows.kernel[0]} and {*columns} == {windows.kernel[1]}:
        return y
    data = y.realize_cached_data()
    return y * Tensor.make_const(_ratios(area, rows, columns, device_of(data), data.dtype.name))


@host_step
def _ratios(
    area: int, rows: tuple[int, ...], columns: tuple[int, ...], device: Any, dtype: str
) -> Array:
    """Return (OH, OW): the window size divided by the number of elements that are averaged."""
    return from_numpy(area / np.outer(rows, columns), device, np.dtype(dtype))


def _filled(like: Array, shape: Shape, value: float) -> Array:
    return from_numpy(np.full(shape, value), device_of(like), like.dtype)
