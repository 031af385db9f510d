"""Sliding windows over images (N, H, W, C): geometry, padding, and the view of all windows.

No arithmetic on values here. Called by ``convolution`` and ``pooling``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..backends.base import Pair
from ..shapes import conv_output_size
from .registry import Array, full


class Geometry(NamedTuple):
    """How windows of a ``kernel`` lie on a padded image of ``size`` (H, W)."""

    op: str
    size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair = (1, 1)

    @property
    def out(self) -> Pair:
        """The number of windows down and across; ShapeError where not even one fits."""
        _, size, kernel, stride, padding, dilation = self
        rows, columns = (
            conv_output_size(self.op, size[i], kernel[i], stride[i], padding[i], dilation[i])
            for i in (0, 1)
        )
        return rows, columns

    def taps(self) -> Iterator[tuple[slice, slice]]:
        """Row by row, for each place in the kernel the slices that it meets in a padded image."""
        (kh, kw), (sh, sw), (dh, dw), (oh, ow) = self.kernel, self.stride, self.dilation, self.out
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
                yield rows, slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)


def pad(x: Array, padding: Pair, value: float = 0.0) -> Array:
    """x (N, H, W, C) with ``padding`` rows and columns of ``value`` on every side, row-major."""
    (n, h, w, c), (ph, pw) = x.shape, padding
    out = full(x, (n, h + 2 * ph, w + 2 * pw, c), value)
    out[:, ph : ph + h, pw : pw + w, :] = x
    return out


def crop(padded: Array, padding: Pair) -> Array:
    """A view without the padding: the inverse of ``pad``."""
    (_, h, w, _), (ph, pw) = padded.shape, padding
    return padded[:, ph : h - ph, pw : w - pw, :]


def windows(padded: Array, geometry: Geometry) -> Array:
    """The view (N, OH, OW, KH, KW, C) of all windows on a padded image; no copy."""
    ### BEGIN YOUR SOLUTION [windows]
    (n, _, _, c), (kh, kw), (oh, ow) = padded.shape, geometry.kernel, geometry.out
    sn, sh, sw, sc = padded.strides
    (step_h, step_w), (gap_h, gap_w) = geometry.stride, geometry.dilation
    shape = (n, oh, ow, kh, kw, c)
    strides = (sn, sh * step_h, sw * step_w, sh * gap_h, sw * gap_w, sc)
    if isinstance(padded, np.ndarray):
        return np.lib.stride_tricks.as_strided(padded, shape, strides)
    return padded.as_strided(shape, strides)
    ### END YOUR SOLUTION
