"""A convolution moving over an image: the window, its products, and the result so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

import needle

from .canvas import Picture, picture

Array = np.ndarray[Any, Any]


def draw_sliding(image: Array, kernel: Array, step: int = 0) -> Picture:
    """Draw the window at output number ``step`` (row by row) of image (H, W) and kernel (K, L).

    No padding, stride 1. A ``step`` beyond the last one shows the last one.
    """
    result = convolved(image, kernel)
    row, column = divmod(min(max(step, 0), result.size - 1), result.shape[1])
    high, wide = kernel.shape
    products = image[row : row + high, column : column + wide] * kernel
    so_far = result.astype(float)
    so_far.reshape(-1)[row * result.shape[1] + column + 1 :] = np.nan
    figure, axes = picture(9.5, 3.2, columns=3)
    left, middle, right = axes[0]
    _show(left, image, "the image and the window")
    left.add_patch(_frame(column, row, wide, high))
    _show(middle, products, f"window times kernel, sum {products.sum():.2f}")
    for (i, j), value in np.ndenumerate(products):
        middle.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=8, color="#cc3311")
    _show(
        right, so_far, f"the result so far, {row * result.shape[1] + column + 1} of {result.size}"
    )
    right.set_xlim(-0.5, result.shape[1] - 0.5)
    right.add_patch(_frame(column, row, 1, 1))
    return figure


def convolved(image: Array, kernel: Array) -> Array:
    """Return ``needle.conv2d`` of one channel: the sum of products at each window position."""
    x, w = (needle.Tensor(a[None, None], requires_grad=False) for a in (image, kernel))
    found: Array = needle.conv2d(x, w).numpy()[0, 0]
    return found


def _show(axes: Any, values: Array, title: str) -> None:
    axes.imshow(values, cmap="gray_r")
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def _frame(column: int, row: int, width: int, height: int) -> Rectangle:
    corner = (column - 0.5, row - 0.5)
    return Rectangle(corner, width, height, fill=False, edgecolor="#cc3311", linewidth=2)
