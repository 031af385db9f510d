"""Max and average pooling over windows of images (N, H, W, C), with their gradients.

Called by ``ops.pooling``, which checks the shapes and the padding (at most half the kernel) and
translates from NCHW.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ..backends.base import Backend, Pair
from ..shapes import Geometry
from .registry import Array, accelerated, empty, full
from .windows import Windows, crop, pad, view_windows

Image = tuple[int, int, int, int]


def _windows(op: str, shape: Image, kernel: Pair, stride: Pair, padding: Pair) -> Windows:
    return Windows(op, (shape[1], shape[2]), kernel, Geometry(stride, padding))


@lru_cache(1024)
def _out_shape(op: str, shape: Image, kernel: Pair, stride: Pair, padding: Pair) -> Image:
    rows, columns = _windows(op, shape, kernel, stride, padding).out
    return (shape[0], rows, columns, shape[3])


@accelerated()
def max_pool2d(x: Array, kernel: Pair, stride: Pair, padding: Pair) -> Array:
    """Return (N, OH, OW, C): the maximum of each window; NaN propagates, padding is ignored."""
    ### BEGIN YOUR SOLUTION [max-pool]
    xp = x.__array_namespace__()
    windows = _windows("max_pool2d", x.shape, kernel, stride, padding)
    return xp.max(view_windows(pad(x, padding, -math.inf), windows), axis=(3, 4))
    ### END YOUR SOLUTION


@max_pool2d.kernel
def _(backend: Backend, x: Array, kernel: Pair, stride: Pair, padding: Pair) -> Array:
    out = empty(x, _out_shape("max_pool2d", x.shape, kernel, stride, padding))
    backend.max_pool2d(x.view, out.view, kernel, stride, padding)
    return out


@accelerated()
def max_pool2d_grad(grad: Array, x: Array, kernel: Pair, stride: Pair, padding: Pair) -> Array:
    """Return x_grad (N, H, W, C): the first maximum of each window gets its output's gradient.

    The elements of a window are ordered row by row. In a window with NaN, the first NaN gets the
    gradient.
    """
    ### BEGIN YOUR SOLUTION [max-pool-grad]
    xp = x.__array_namespace__()
    windows = _windows("max_pool2d", x.shape, kernel, stride, padding)
    highest = max_pool2d.definition(x, kernel, stride, padding)
    padded = pad(x, padding, -math.inf)
    inside = pad(full(x, x.shape, True, "bool"), padding, False)
    free = full(x, highest.shape, True, "bool")  # windows whose maximum has not been found yet
    x_grad = full(x, padded.shape, 0.0)
    for down, across in windows.taps():
        value = padded[:, down, across, :]
        wins = xp.logical_or(value == highest, xp.isnan(value))
        wins = xp.logical_and(xp.logical_and(wins, inside[:, down, across, :]), free)
        free = xp.logical_and(free, xp.logical_not(wins))
        gain = xp.where(wins, grad, xp.zeros_like(grad))
        x_grad[:, down, across, :] = x_grad[:, down, across, :] + gain
    return crop(x_grad, padding)
    ### END YOUR SOLUTION


@max_pool2d_grad.kernel
def _(backend: Backend, grad: Array, x: Array, kernel: Pair, stride: Pair, padding: Pair) -> Array:
    out = empty(x, x.shape)
    backend.max_pool2d_grad(grad.view, x.view, out.view, kernel, stride, padding)
    return out


@accelerated()
def avg_pool2d(x: Array, kernel: Pair, stride: Pair, padding: Pair) -> Array:
    """Return (N, OH, OW, C): the mean of each window; padding counts as zeros in the mean."""
    xp = x.__array_namespace__()
    windows = _windows("avg_pool2d", x.shape, kernel, stride, padding)
    return xp.mean(view_windows(pad(x, padding), windows), axis=(3, 4))


@avg_pool2d.kernel
def _(backend: Backend, x: Array, kernel: Pair, stride: Pair, padding: Pair) -> Array:
    out = empty(x, _out_shape("avg_pool2d", x.shape, kernel, stride, padding))
    backend.avg_pool2d(x.view, out.view, kernel, stride, padding)
    return out


@accelerated()
def avg_pool2d_grad(
    grad: Array, x_shape: Image, kernel: Pair, stride: Pair, padding: Pair
) -> Array:
    """Return x_grad, of ``x_shape``: each output's gradient spread evenly over its window."""
    n, h, w, c = x_shape
    windows = _windows("avg_pool2d", x_shape, kernel, stride, padding)
    share = grad * (1.0 / (kernel[0] * kernel[1]))
    x_grad = full(grad, (n, h + 2 * padding[0], w + 2 * padding[1], c), 0.0)
    for down, across in windows.taps():
        x_grad[:, down, across, :] = x_grad[:, down, across, :] + share
    return crop(x_grad, padding)


@avg_pool2d_grad.kernel
def _(
    backend: Backend, grad: Array, x_shape: Image, kernel: Pair, stride: Pair, padding: Pair
) -> Array:
    out = empty(grad, x_shape)
    backend.avg_pool2d_grad(grad.view, out.view, kernel, stride, padding)
    return out
