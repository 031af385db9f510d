"""Definitions of the neural network ops in NumPy, float64: the oracles of the op table.

They are simple and slow: windows are computed one by one, adjoints column by column.
"""

from typing import Any

import numpy as np


def pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def window_elements(
    x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, border: float
) -> Any:
    """Yield (i, j, the element at position (i, j) of every window) for x (N, C, H, W)."""
    (kh, kw), (sy, sx), (py, px), (dy, dx) = map(pair, (kernel, stride, padding, dilation))
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)), constant_values=border)
    oh = (x.shape[2] - dy * (kh - 1) - 1) // sy + 1
    ow = (x.shape[3] - dx * (kw - 1) - 1) // sx + 1
    for i in range(kh):
        for j in range(kw):
            top, left = i * dy, j * dx
            yield i, j, x[:, :, top : top + sy * oh : sy, left : left + sx * ow : sx]


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    y: Any = 0.0
    for i, j, part in window_elements(x, weight.shape[2:], stride, padding, dilation, 0.0):
        xs = np.split(part, groups, axis=1)
        ws = np.split(weight[:, :, i, j], groups, axis=0)
        y = y + np.concatenate([np.einsum("nchw,oc->nohw", a, b) for a, b in zip(xs, ws)], axis=1)
    return y if bias is None else y + bias[:, None, None]


def adjoint(f: Any, shape: tuple[int, ...], grad: Any) -> Any:
    """Return the transpose of the linear map f, column by column."""
    columns = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    return np.array([(f(column) * grad).sum() for column in columns]).reshape(shape)


def normalised(
    x: Any, weight: Any, bias: Any, axes: Any, along: tuple[int, ...], eps: float
) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    h = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + eps)
    return h * weight.reshape(along) + bias.reshape(along)


def logsumexp(a: Any, axes: Any = None, keepdims: bool = False) -> Any:
    top = a.max(axis=axes, keepdims=True)
    total = np.log(np.exp(a - top).sum(axis=axes, keepdims=True)) + top
    return total if keepdims else total.squeeze(axes)


def cross_entropy(logits: Any, ids: Any, smoothing: float = 0.0) -> Any:
    classes = logits.shape[1]
    q = np.eye(classes)[ids.astype(int)] * (1 - smoothing) + smoothing / classes
    return -(q * (logits - logsumexp(logits, 1, True))).sum(1)


def max_pool(x: Any, *windows: Any) -> Any:
    return np.max([part for _, _, part in window_elements(x, *windows, 1, -np.inf)], axis=0)


def avg_pool(x: Any, *windows: Any) -> Any:
    return np.mean([part for _, _, part in window_elements(x, *windows, 1, 0.0)], axis=0)


def adaptive(x: Any, rows: int, columns: int) -> Any:
    def cut(size: int, count: int) -> list[slice]:
        return [slice(i * size // count, -((i + 1) * size // -count)) for i in range(count)]

    grid = [
        [x[:, :, a, b].mean((2, 3)) for b in cut(x.shape[3], columns)]
        for a in cut(x.shape[2], rows)
    ]
    return np.moveaxis(np.array(grid), (0, 1), (2, 3))


def batch_statistics(x: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    axes = (0, *range(2, x.ndim))
    return x.mean(axes), x.var(axes)
