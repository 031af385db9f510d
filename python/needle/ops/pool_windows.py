"""Pooling windows of any geometry, and the positions of the maxima in them.

Positions are found on the host; the gradient of gathering at positions is that of ``Embedding``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy, to_numpy
from ..autograd import Tensor
from ..errors import ShapeError
from ..host_steps import host_step
from ..shapes import Pair, Shape, Size, conv_output_size, pair, product
from .indexing import Embedding, EmbeddingGrad, on_device
from .registry import Array, Host
from .shape import reshape


class PoolWindows(NamedTuple):
    """Pooling windows on images of ``size`` (H, W); each field is a pair for rows and columns."""

    size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    out: Pair
    """The number of windows down and across."""

    @classmethod
    def of(
        cls,
        name: str,
        shape: Shape,
        kernel: Size,
        stride: Size | None,
        padding: Size,
        *,
        dilation: Size = 1,
        ceil_mode: bool = False,
    ) -> PoolWindows:
        """Return the windows on x of ``shape`` (N, C, H, W); ShapeError if the sizes do not fit."""
        stride = None if isinstance(stride, tuple) and not stride else stride
        windows = window_pairs(name, _spread(kernel), _spread(stride), _spread(padding))
        gaps = pair(name, "dilation", _spread(dilation))
        return cls.of_pairs(name, tuple(shape), *windows, gaps, bool(ceil_mode))

    @classmethod
    @lru_cache(1024)
    def of_pairs(
        cls,
        name: str,
        shape: Shape,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        ceil_mode: bool = False,
    ) -> PoolWindows:
        """Return ``of`` for sizes that are pairs."""
        if len(shape) != 4:
            raise ShapeError(
                f"{name}: the input must be (N, C, H, W), got shape {shape}; reshape it"
            )
        if 0 in shape[1:]:
            raise ShapeError(
                f"{name}: only the batch may be empty, got shape {shape}; leave such inputs out"
            )
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
        if any(2 * p > span for p, span in zip(padding, spans, strict=True)):
            raise ShapeError(
                f"{name}: padding must be at most half the kernel, got padding {padding} for "
                f"kernel {kernel} with dilation {dilation}; use less padding or pad the input "
                "itself"
            )
        size, sizes = (shape[2], shape[3]), (kernel, stride, padding, dilation)
        down, across = (_count(name, *each, ceil_mode) for each in zip(size, *sizes, strict=True))
        return cls(size, *sizes, (down, across))

    @property
    def beyond(self) -> Pair:
        """The number of rows and columns by which the last windows exceed the padding."""
        down, across = (
            max(0, (out - 1) * stride + dilation * (kernel - 1) + 1 - size - 2 * padding)
            for size, kernel, stride, padding, dilation, out in zip(*self, strict=True)
        )
        return down, across

    def counts(self, include_padding: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return how many rows of each window count, going down, and how many columns, across."""
        rows, columns = (
            tuple(
                min(i * s - p + k, size + p if include_padding else size)
                - (i * s - p if include_padding else max(i * s - p, 0))
                for i in range(out)
            )
            for size, k, s, p, _, out in zip(*self, strict=True)
        )
        return rows, columns

    def taps(self) -> tuple[Host, Host]:
        """Return the image rows (OH, KH) and columns (OW, KW) that the windows read."""
        rows, columns = (
            (np.arange(out) * s - p)[:, None] + np.arange(k) * d
            for _, k, s, p, d, out in zip(*self, strict=True)
        )
        return rows, columns


def window_pairs(
    name: str, kernel: Size, stride: Size | None, padding: Size
) -> tuple[Pair, Pair, Pair]:
    """Return kernel, stride and padding as pairs; a stride of None is the kernel size."""
    stride = kernel if stride is None else stride
    return (
        pair(name, "kernel", kernel),
        pair(name, "stride", stride),
        pair(name, "padding", padding),
    )


def _spread(size: Any) -> Any:
    """Return the int of a tuple or list of length 1; return anything else unchanged."""
    return size[0] if isinstance(size, (tuple, list)) and len(size) == 1 else size


def _count(
    name: str, size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """Return the number of windows along an axis, with ``ceil_mode`` as in PyTorch."""
    if not ceil_mode or min(kernel, stride, dilation) < 1 or padding < 0:
        return conv_output_size(name, size, kernel, stride, padding, dilation)
    span = dilation * (kernel - 1) + 1
    count = -(-(size + 2 * padding - span) // stride) + 1
    if (count - 1) * stride >= size + padding:
        count -= 1  # the last window would start inside the padding
    if count < 1:
        raise ShapeError(
            f"{name}: the window must fit the padded input, got window {span} for size {size} with "
            f"padding {padding}; pad more or use a smaller kernel"
        )
    return count


@host_step
def max_positions(x: Tensor, windows: PoolWindows) -> Host:
    """Return the position (N, C, OH, OW), in H * W, of each window's first maximum or NaN."""
    image = to_numpy(x.realize_cached_data())
    rows, columns = windows.taps()
    (h, w), (kh, kw) = windows.size, windows.kernel
    inside = (
        (((rows >= 0) & (rows < h))[:, None, :, None])
        & (((columns >= 0) & (columns < w))[None, :, None, :])
    )
    inside = inside.reshape(*windows.out, kh * kw)
    if not inside.any(-1).all():
        raise ShapeError(
            f"max_pool2d: every window must contain an element of the image, got kernel "
            f"{windows.kernel} with dilation {windows.dilation} for size {windows.size}; pad less"
        )
    places = rows.clip(0, h - 1)[:, None, :, None] * w + columns.clip(0, w - 1)[None, :, None, :]
    places = places.reshape(inside.shape)
    values = image.reshape(*image.shape[:2], h * w)[:, :, places]
    best = np.where(inside, values, -np.inf).argmax(-1)
    # If all elements of a window are -inf, padding may be found first.
    first = inside.argmax(-1)
    best = np.where(
        np.take_along_axis(inside[None, None], best[..., None], -1)[..., 0], best, first
    )
    return np.take_along_axis(places[None, None], best[..., None], -1)[..., 0]


class WindowMax(Embedding):
    """Maxima of dilated or uneven windows, at positions that were found on the host.

    ``windows``: None if the windows are uneven.
    """

    def __init__(self, ids: Array, windows: PoolWindows | None) -> None:
        super().__init__(ids)
        self.windows = windows

    def compute(self, x: Array) -> Array:
        return super().compute(xp.reshape(x, (-1,)))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        shape = node.inputs[0].shape
        return reshape(EmbeddingGrad(self.ids, (product(shape),))(out_grad), shape)


def taken(x: Tensor, positions: Host, windows: PoolWindows | None = None) -> tuple[Tensor, Tensor]:
    """Return the elements of x (N, C, H, W) at positions in H * W, and the positions."""
    device = device_of(x.realize_cached_data())
    rows = _flat_positions(positions, product(x.shape[2:]), device)
    return WindowMax(rows, windows)(x), Tensor.make_const(on_device(positions, device))


@host_step
def _flat_positions(positions: Host, pixels: int, device: Any) -> Array:
    """Convert positions in each image to positions in the flattened x."""
    planes = np.arange(product(positions.shape[:2])).reshape(*positions.shape[:2], 1, 1)
    return from_numpy(planes * pixels + positions, device, np.int64)
