"""Max and average pooling of images (N, C, H, W), and their gradients as ops of their own.

The kernels are channels last and get permuted views. Layers are in ``nn.pooling``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import accelerated
from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy
from ..autograd import Tensor, TensorOp
from ..errors import ShapeError
from ..shapes import conv_output_size, pair, shape_of
from .convolution import TO_FIRST, TO_LAST, Array, Shape, Size
from .linalg import matmul
from .registry import op
from .shape import transpose


class _Pool2d(TensorOp):
    """What the family shares: the windows, in the order the kernels take them."""

    def __init__(self, kernel: Size, stride: Size | None = None, padding: Size = 0) -> None:
        self.windows = (
            pair("pool2d", "kernel", kernel),
            pair("pool2d", "stride", kernel if stride is None else stride),
            pair("pool2d", "padding", padding),
        )

    def _output_size(self, name: str, x: Shape) -> tuple[int, int]:
        """(OH, OW) for an input of shape x; ShapeError if a window would miss the image."""
        kernel, stride, padding = self.windows
        if len(x) != 4:
            raise ShapeError(f"{name}: input must be (N, C, H, W), got shape {x}; reshape it")
        if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
            raise ShapeError(
                f"{name}: padding must be at most half the kernel, got padding {padding} for "
                f"kernel {kernel}; pad less, or the input itself"
            )
        rows, columns = (
            conv_output_size(name, x[2 + i], kernel[i], stride[i], padding[i], 1) for i in (0, 1)
        )
        return rows, columns


class MaxPool2d(_Pool2d):
    """Window maxima: ``max_pool2d``."""

    def compute(self, x: Array) -> Array:
        self._output_size("max_pool2d", x.shape)
        y = accelerated.max_pool2d(xp.permute_dims(x, TO_LAST), *self.windows)
        return xp.permute_dims(y, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return MaxPool2dGrad(*self.windows)(out_grad, node.inputs[0])


class MaxPool2dGrad(_Pool2d):
    """Sends each output's gradient to the first maximum of its window in x; linear in grad."""

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
    """The element of a (N, C, H, W) that stands where x has its window's first maximum.

    The adjoint of max_pool2d_grad; plain array operations, since only second derivatives need it.
    """

    def compute(self, a: Array, x: Array) -> Array:
        size = self._output_size("max_pool2d_select", x.shape)
        best, chosen = None, None
        windows = zip(self._shifts(x, -np.inf, size), self._shifts(a, 0.0, size), strict=True)
        for candidate, value in windows:
            if best is None:
                best, chosen = candidate, value
                continue
            # x != x is NaN, which wins over any number, and the first NaN over later ones
            wins = xp.logical_and(
                xp.logical_or(candidate > best, candidate != candidate), best == best
            )
            best, chosen = xp.where(wins, candidate, best), xp.where(wins, value, chosen)
        return chosen

    def _shifts(self, a: Array, border: float, size: tuple[int, int]) -> list[Array]:
        """For each place of a window, row by row, that place's element of every window."""
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


@op(MaxPool2d, MaxPool2dGrad, MaxPool2dSelect)
def max_pool2d(x: Tensor, kernel: Size, stride: Size | None = None, padding: Size = 0) -> Tensor:
    """Window maxima of x (N, C, H, W); the stride is the kernel's size unless given.

    Padding (at most half the kernel) never wins, NaN does; of equal maxima the first, row by row,
    gets the gradient.
    """
    return MaxPool2d(kernel, stride, padding)(x)


class AvgPool2d(_Pool2d):
    """Window means, linear: ``avg_pool2d``."""

    def compute(self, x: Array) -> Array:
        self._output_size("avg_pool2d", x.shape)
        y = accelerated.avg_pool2d(xp.permute_dims(x, TO_LAST), *self.windows)
        return xp.permute_dims(y, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return AvgPool2dGrad(node.inputs[0].shape, *self.windows)(out_grad)


class AvgPool2dGrad(_Pool2d):
    """Spreads each output's gradient evenly over its window in an input of ``x_shape``."""

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
def avg_pool2d(x: Tensor, kernel: Size, stride: Size | None = None, padding: Size = 0) -> Tensor:
    """Window means of x (N, C, H, W), padding counted as zeros; the stride is the kernel's size
    unless given."""
    return AvgPool2d(kernel, stride, padding)(x)


@op(AvgPool2d)
def adaptive_avg_pool2d(x: Tensor, output_size: Size) -> Tensor:
    """Means over a grid of windows: (N, C, H, W) -> (N, C, OH, OW).

    Window i spans [floor(i*H/OH), ceil((i+1)*H/OH)), as in PyTorch. Where OH divides H and OW
    divides W this is avg_pool2d; else two products with the matrices of means.
    """
    shape = shape_of("adaptive_avg_pool2d", x)
    if len(shape) != 4:
        raise ShapeError(
            f"adaptive_avg_pool2d: input must be (N, C, H, W), got shape {shape}; reshape it"
        )
    rows, columns = pair("adaptive_avg_pool2d", "output_size", output_size)
    if min(rows, columns) < 1 or min(shape[2:]) < 1:
        raise ShapeError(
            f"adaptive_avg_pool2d: sizes must be at least 1, got output_size {(rows, columns)} for "
            f"shape {shape}; give positive sizes"
        )
    if shape[2] % rows == 0 and shape[3] % columns == 0:
        return AvgPool2d((shape[2] // rows, shape[3] // columns))(x)
    across = matmul(x, _means(shape[3], columns, x))
    return transpose(matmul(transpose(across), _means(shape[2], rows, x)))


def _means(size: int, windows: int, like: Tensor) -> Tensor:
    """(size, windows): column i averages window i of an axis."""
    matrix = np.zeros((size, windows))
    for i in range(windows):
        begin, end = i * size // windows, -(-(i + 1) * size // windows)
        matrix[begin:end, i] = 1.0 / (end - begin)
    return Tensor(matrix, device=like.device, dtype=like.dtype, requires_grad=False)


def _filled(like: Array, shape: Shape, value: float) -> Array:
    return from_numpy(np.full(shape, value), device_of(like), like.dtype)
