"""Images sampled at grid points, as in spatial transformers and optical flow: ``grid_sample``.

Other ops convert grid points to pixels and have the gradients of padding; the op ``GridSample``
takes pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy
from ..autograd import Tensor, TensorOp, as_operand
from ..errors import ShapeError, UnknownNameError, check_choice
from ..host_steps import host_step
from ..shapes import Shape, shape_of
from .elementwise import abs
from .indexing import Embedding, EmbeddingGrad, GetItem
from .reduction import summation
from .registry import Array, op
from .rounding import floor, round
from .selection import Clip, equal, where
from .shape import permute, reshape, stack

MODES = ("bilinear", "nearest")
PADDING = ("zeros", "border", "reflection")


class GridSample(TensorOp):
    """Values of x (N, C, H, W) at pixels (N, h, w, 2), each (column, row); 0 outside x.

    ``nearest``: the pixels are whole numbers; otherwise the four pixels around each are
    interpolated.
    """

    reads = (0, 1)

    def __init__(self, nearest: bool) -> None:
        self.nearest = nearest

    def compute(self, x: Array, pixels: Array) -> Array:
        rows = xp.reshape(xp.permute_dims(x, (0, 2, 3, 1)), (x.size // x.shape[1], x.shape[1]))
        total: Any = 0
        for index, inside, columns, lines in self._corners(x.shape, Tensor.make_const(pixels)):
            weight = where(inside, columns * lines, 0.0).realize_cached_data()
            total = total + Embedding(index).compute(rows) * weight
        return xp.permute_dims(total, (0, 3, 1, 2))

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, pixels = node.inputs
        grad = permute(out_grad, (0, 2, 3, 1))
        return (
            self._to_image(grad, x, pixels) if x.requires_grad else None,
            self._to_pixels(grad, x, pixels) if pixels.requires_grad else None,
        )

    def _to_image(self, grad: Tensor, x: Tensor, pixels: Tensor) -> Tensor:
        n, c, h, w = x.shape
        total: Any = 0
        for index, inside, columns, lines in self._corners(x.shape, pixels):
            part = where(inside, grad * (columns * lines), 0.0)
            total = total + EmbeddingGrad(index, (n * h * w, c))(part)
        return permute(reshape(total, (n, h, w, c)), (0, 3, 1, 2))

    def _to_pixels(self, grad: Tensor, x: Tensor, pixels: Tensor) -> Tensor:
        if self.nearest:
            return Tensor.make_const(xp.zeros_like(pixels.realize_cached_data()))
        n, c, h, w = x.shape
        rows = reshape(permute(x, (0, 2, 3, 1)), (n * h * w, c))
        slopes: list[Any] = [0, 0]
        for corner, taken in enumerate(self._corners(x.shape, pixels)):
            index, inside, columns, lines = taken
            each = summation(Embedding(index)(rows) * grad, -1, keepdims=True)
            for axis, (far, other) in enumerate(((corner % 2, lines), (corner // 2, columns))):
                slope = where(inside, each * other, 0.0)
                slopes[axis] = slopes[axis] + (slope if far else -slope)
        return reshape(stack(slopes, -1), pixels.shape)

    def _corners(
        self, shape: Shape, pixels: Tensor
    ) -> Iterator[tuple[Array, Tensor, Tensor | float, Tensor | float]]:
        """Yield, for each corner, its position in the image, a mask and its two weights.

        The position has shape (N, h, w), the others (N, h, w, 1). NaN counts as inside.
        """
        n, _, h, w = shape
        data = pixels.realize_cached_data()
        low = xp.floor(data)
        share = pixels - Tensor.make_const(low)
        first = _first_pixels(n, h * w, device_of(data))
        for down, right in ((0, 0),) if self.nearest else ((0, 0), (0, 1), (1, 0), (1, 1)):
            column, row = low[..., 0] + right, low[..., 1] + down
            outside = (column < 0) | (column >= w) | (row < 0) | (row >= h)
            known = (column == column) & (row == row) & ~outside
            column, row = (xp.astype(xp.where(known, at, 0.0), np.int64) for at in (column, row))
            index = first + row * w + column
            inside = Tensor.make_const(xp.reshape(~outside, (*outside.shape, 1)))
            yield index, inside, self._weight(share, 0, right), self._weight(share, 1, down)

    def _weight(self, share: Tensor, axis: int, far: int) -> Tensor | float:
        near = GetItem((..., slice(axis, axis + 1)))(share)
        if self.nearest:
            return 1 + near  # near is 0, or NaN where the pixel is NaN
        return near if far else 1 - near


@host_step
def _first_pixels(n: int, area: int, device: Any) -> Array:
    return from_numpy(np.arange(n).reshape(n, 1, 1) * area, device, np.int64)


@op(GridSample)
def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Return x (N, C, H, W) sampled at the points ``grid`` (N, h, w, 2): (N, C, h, w).

    A point is (column, row), where -1 and 1 are the outer edges of the image or, with
    ``align_corners``, the centres of its outer pixels. mode: "bilinear" or "nearest". padding_mode:
    pixels outside the image are 0 with "zeros", the nearest pixel with "border", the mirrored image
    with "reflection". x gets a gradient and, except with "nearest", so does the grid. ShapeError if
    the shapes do not match, UnknownNameError for another mode.
    """
    shape = shape_of("grid_sample", x)
    x = as_operand(x, grid)
    grid = as_operand(grid, x)
    check_choice("grid_sample", "mode", mode, MODES, UnknownNameError)
    check_choice("grid_sample", "padding_mode", padding_mode, PADDING, UnknownNameError)
    if len(shape) != 4 or 0 in shape[1:] or grid.shape[:1] + grid.shape[3:] != (shape[0], 2):
        raise ShapeError(
            "grid_sample: x must be (N, C, H, W) with no empty axis but N, and grid (N, h, w, 2), "
            f"got shapes {shape} and {grid.shape}; reshape them"
        )
    places = []
    for axis, size in enumerate((shape[3], shape[2])):
        at = GetItem((..., axis))(grid)
        at = (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2
        if padding_mode == "reflection":
            at = _mirrored(at, size, 0.0 if align_corners else -0.5)
        if padding_mode != "zeros":
            at = Clip(0, size - 1, flat=True)(at)
        places.append(round(at) if mode == "nearest" else at)
    return GridSample(mode == "nearest")(x, stack(places, -1))


def _mirrored(at: Tensor, size: int, low: float) -> Tensor:
    """Return coordinates reflected at ``low`` and at size - 1 - low."""
    span = size - 1 - 2 * low
    if span == 0:
        return at * 0
    away = abs(at - low)
    times = floor(away / span)
    rest = away - times * span
    there = equal(times - floor(times / 2) * 2, 0)
    return where(there, rest, span - rest) + low
