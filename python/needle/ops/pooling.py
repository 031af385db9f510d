"""Max and average pooling of images (N, C, H, W), and their gradients as separate ops.

The kernels work channels last and receive permuted views. Layers are in ``nn.pooling``.
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
    """Base class of the pooling ops: the window sizes in the order of the kernels' arguments."""

    def __init__(self, kernel: Size, stride: Size | None = None, padding: Size = 0) -> None:
        self.windows = (
            pair("pool2d", "kernel", kernel),
            pair("pool2d", "stride", kernel if stride is None else stride),
            pair("pool2d", "padding", padding),
        )

    def _output_size(self, name: str, x: Shape) -> tuple[int, int]:
        """Return (OH, OW) for an input of shape x; ShapeError if a window would miss the image."""
        kernel, stride, padding = self.windows
        if len(x) != 4:
            raise ShapeError(
                f"{name}: expected 4 axes (N, C, H, W), got shape {tuple(x)}; reshape the input"
            )
        if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
            raise ShapeError(
                f"{name}: padding must be at most half the kernel, got padding {padding} for "
                f"kernel {kernel}; use less padding or pad the input itself"
            )
        rows, columns = (
            conv_output_size(name, x[2 + i], kernel[i], stride[i], padding[i], 1) for i in (0, 1)
        )
        return rows, columns


class MaxPool2d(_Pool2d):
    """Maximum of each window: ``max_pool2d``."""

    def compute(self, x: Array) -> Array:
        self._output_size("max_pool2d", x.shape)
        y = accelerated.max_pool2d(xp.permute_dims(x, TO_LAST), *self.windows)
        return xp.permute_dims(y, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return MaxPool2dGrad(*self.windows)(out_grad, node.inputs[0])


class MaxPool2dGrad(_Pool2d):
    """Gradient of max pooling: to the first maximum of each window of x; linear in grad."""

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
    """Selection of the elements of a (N, C, H, W) at the first maxima of the windows of x.

    The adjoint of MaxPool2dGrad. It is written with array operations, because only second
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
            # NaN (x != x) wins over any number, and the first NaN wins over later ones
            wins = xp.logical_and(
                xp.logical_or(candidate > best, candidate != candidate), best == best
            )
            best, chosen = xp.where(wins, candidate, best), xp.where(wins, value, chosen)
        return chosen

    def _shifts(self, a: Array, border: float, size: tuple[int, int]) -> list[Array]:
        """Return, for each position in a window, row by row, that element of every window."""
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
    """Return the maximum of each window of x: (N, C, H, W) -> (N, C, OH, OW).

    The stride is the kernel size by default. Padding, at most half the kernel, never is the
    maximum; NaN always is. Of equal maxima the first one, row by row, gets the gradient. ShapeError
    if the sizes do not fit.
    """
    return MaxPool2d(kernel, stride, padding)(x)


class AvgPool2d(_Pool2d):
    """Mean of each window: ``avg_pool2d``."""

    def compute(self, x: Array) -> Array:
        self._output_size("avg_pool2d", x.shape)
        y = accelerated.avg_pool2d(xp.permute_dims(x, TO_LAST), *self.windows)
        return xp.permute_dims(y, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return AvgPool2dGrad(node.inputs[0].shape, *self.windows)(out_grad)


class AvgPool2dGrad(_Pool2d):
    """Gradient of average pooling: spread evenly over each window of an input of ``x_shape``."""

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
    """Return the mean of each window of x: (N, C, H, W) -> (N, C, OH, OW).

    Padding counts as zeros. The stride is the kernel size by default. ShapeError if the sizes do
    not fit.
    """
    return AvgPool2d(kernel, stride, padding)(x)


@op(AvgPool2d)
def adaptive_avg_pool2d(x: Tensor, output_size: Size) -> Tensor:
    """Return the means over a grid of windows: (N, C, H, W) -> (N, C, OH, OW).

    Window i spans [floor(i*H/OH), ceil((i+1)*H/OH)), as in PyTorch. If OH divides H and OW divides
    W, this is avg_pool2d; otherwise two products with averaging matrices. ShapeError if a size is
    below 1 or x does not have 4 axes.
    """
    shape = shape_of("adaptive_avg_pool2d", x)
    if len(shape) != 4:
        raise ShapeError(
            f"adaptive_avg_pool2d: expected 4 axes (N, C, H, W), got shape {shape}; reshape the "
            "input"
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
    """Return the averaging matrix (size, windows): column i averages window i of an axis."""
    matrix = np.zeros((size, windows))
    for i in range(windows):
        begin, end = i * size // windows, -(-(i + 1) * size // windows)
        matrix[begin:end, i] = 1.0 / (end - begin)
    return Tensor(matrix, device=like.device, dtype=like.dtype, requires_grad=False)


def _filled(like: Array, shape: Shape, value: float) -> Array:
    return from_numpy(np.full(shape, value), device_of(like), like.dtype)
