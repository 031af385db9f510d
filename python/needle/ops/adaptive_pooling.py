"""Adaptive pools, which cover the image with a given number of windows, and max_unpool2d.

Window i of OH spans [floor(i*H/OH), ceil((i+1)*H/OH)), as in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy, to_numpy
from ..autograd import Tensor, TensorOp
from ..errors import ShapeError
from ..host_steps import current, host_step
from ..shapes import Pair, Size, as_int_tuple, pair, product, shape_of, shape_with
from .gathering import scatter
from .indexing import EmbeddingGrad
from .linalg import matmul
from .pool_windows import taken, window_pairs
from .pooling import AvgPool2d, MaxPool2d
from .registry import Array, Host, op
from .shape import reshape, transpose

Grid = int | None | tuple[int | None, int | None]


def _grid(name: str, output_size: Grid, x: Tensor) -> Pair:
    """Return (OH, OW), with None replaced by the image's size; ShapeError if a size is below 1."""
    shape = shape_with(name, x, "(N, C, H, W)", 4)
    asked = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    sizes = [size if n is None else n for n, size in zip(asked, shape[2:], strict=False)]
    rows, columns = pair(name, "output_size", tuple(sizes) if len(asked) == 2 else asked)
    if min(rows, columns) < 1 or min(shape[2:]) < 1:
        raise ShapeError(
            f"{name}: sizes must be at least 1, got output_size {(rows, columns)} for shape "
            f"{shape}; pass positive sizes"
        )
    return rows, columns


@op(AvgPool2d)
def adaptive_avg_pool2d(x: Tensor, output_size: Grid) -> Tensor:
    """Return the means over a grid of windows: (N, C, H, W) -> (N, C, OH, OW), or without N.

    ``output_size``: an int or (OH, OW), where None keeps the size. If OH divides H and OW divides
    W, this is avg_pool2d; otherwise it is two products with averaging matrices. inf and NaN affect
    only their own windows. ShapeError if a size is below 1 or x has another number of axes.
    """
    shape = shape_of("adaptive_avg_pool2d", x)
    if len(shape) == 3:
        return adaptive_avg_pool2d(reshape(x, (1, *shape)), output_size)[0]
    rows, columns = _grid("adaptive_avg_pool2d", output_size, x)
    if shape[2] % rows == 0 and shape[3] % columns == 0:
        return AvgPool2d((shape[2] // rows, shape[3] // columns))(x)
    if current.recorder is None:  # a recorded step cannot branch on values
        y = _products(x, rows, columns)
        if _is_finite(y):
            return y
    return _products(Finite()(x), rows, columns) + _infinities(x, rows, columns)


def _products(x: Tensor, rows: int, columns: int) -> Tensor:
    across = matmul(x, _means(x.shape[3], columns, x))
    return transpose(matmul(transpose(across), _means(x.shape[2], rows, x)))


def _is_finite(y: Tensor) -> bool:
    return bool(xp.all(xp.isfinite(y.realize_cached_data())))


class Finite(TensorOp):
    """The op that replaces inf and NaN by 0; ``_infinities`` adds them to their windows."""

    def compute(self, a: Array) -> Array:
        return xp.where(xp.isfinite(a), a, xp.zeros_like(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient of the mean, to which every pixel of the window contributes."""
        return out_grad


def _infinities(x: Tensor, rows: int, columns: int) -> Tensor:
    """Return, as a constant, the sum of the infinite and NaN elements of each window.

    NaN counts as inf and -inf, whose sum is NaN.
    """
    data = x.realize_cached_data()
    found = []
    for finite in (data < math.inf, data > -math.inf):
        other = Tensor.make_const(1 - xp.astype(finite, data.dtype))
        windows = _products(other, rows, columns).realize_cached_data()
        found.append(xp.where(windows > 0, math.inf, xp.zeros_like(windows)))
    with np.errstate(invalid="ignore"):
        return Tensor.make_const(found[0] - found[1])


def _spans(size: int, windows: int) -> list[slice]:
    return [slice(i * size // windows, -(-(i + 1) * size // windows)) for i in range(windows)]


def _means(size: int, windows: int, like: Tensor) -> Tensor:
    data = like.realize_cached_data()
    return Tensor.make_const(_averaging(size, windows, device_of(data), data.dtype.name))


@host_step
def _averaging(size: int, windows: int, device: Any, dtype: str) -> Array:
    """Return the averaging matrix (size, windows): column i averages window i of an axis."""
    matrix = np.zeros((size, windows))
    for i, span in enumerate(_spans(size, windows)):
        matrix[span, i] = 1.0 / (span.stop - span.start)
    return from_numpy(matrix, device, np.dtype(dtype))


@op(MaxPool2d)
def adaptive_max_pool2d(x: Tensor, output_size: Grid, return_indices: bool = False) -> Any:
    """Return the maxima over a grid of windows: (N, C, H, W) -> (N, C, OH, OW), or without N.

    ``output_size`` and errors are as in ``adaptive_avg_pool2d``. ``return_indices``: also return
    the int64 positions of the maxima in the flattened image.
    """
    shape = shape_of("adaptive_max_pool2d", x)
    if len(shape) == 3:
        y = adaptive_max_pool2d(reshape(x, (1, *shape)), output_size, return_indices)
        return (y[0][0], y[1][0]) if return_indices else y[0]
    rows, columns = _grid("adaptive_max_pool2d", output_size, x)
    if not return_indices and shape[2] % rows == 0 and shape[3] % columns == 0:
        return MaxPool2d((shape[2] // rows, shape[3] // columns))(x)
    y, indices = taken(x, _positions(x, rows, columns))
    return (y, indices) if return_indices else y


@host_step
def _positions(x: Tensor, rows: int, columns: int) -> Host:
    """Return the position in the flattened image of each window's first maximum."""
    image = to_numpy(x.realize_cached_data())
    n, c, h, w = image.shape
    found = np.zeros((n, c, rows, columns), np.int64)
    for i, down in enumerate(_spans(h, rows)):
        for j, across in enumerate(_spans(w, columns)):
            width = across.stop - across.start
            pixels = (down.stop - down.start) * width
            best = image[:, :, down, across].reshape(n, c, pixels).argmax(-1)
            found[:, :, i, j] = (down.start + best // width) * w + across.start + best % width
    return found


@op(EmbeddingGrad)
def max_unpool2d(
    x: Tensor,
    indices: Any,
    kernel: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Any = None,
) -> Tensor:
    """Return zeros (N, C, H, W) with the elements of x (N, C, OH, OW) at the ``indices``.

    The partial inverse of max_pool2d with ``return_indices=True``. ``output_size``: (H, W) or a
    whole shape; by default (OH - 1) * stride - 2 * padding + kernel. If several elements have the
    same index, the last is written, and it alone gets the gradient, which PyTorch gives to all of
    them. ShapeError if the sizes do not match, IndexingError for an index outside the image.
    """
    shape = shape_of("max_unpool2d", x)
    if len(shape) not in (3, 4) or tuple(np.shape(indices)) != shape:
        raise ShapeError(
            f"max_unpool2d: x and indices must both be (N, C, OH, OW) or (C, OH, OW), got shapes "
            f"{shape} and {tuple(np.shape(indices))}; pass those that max_pool2d returned"
        )
    sizes = window_pairs("max_unpool2d", kernel, stride, padding)
    image = tuple((n - 1) * s - 2 * p + k for n, k, s, p in zip(shape[-2:], *sizes, strict=True))
    if output_size is not None:
        image = as_int_tuple("max_unpool2d", "output_size", output_size)[-2:]
    if len(image) != 2 or min(image) < 1:
        raise ShapeError(f"max_unpool2d: output_size must be (H, W), got {output_size}")
    lead = shape[:-2]
    data = x.realize_cached_data()
    zeros = xp.zeros((*lead, product(image)), dtype=data.dtype, device=data.device)
    flat = (*lead, product(shape[-2:]))
    places = reshape(indices, flat) if isinstance(indices, Tensor) else np.reshape(indices, flat)
    values = reshape(x, flat)
    out = scatter(Tensor.make_const(zeros), len(lead), places, values)
    return reshape(out, (*lead, *image))
