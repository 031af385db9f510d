"""Sliding windows over images (N, H, W, C): positions, padding, and the view of all windows.

Nothing here computes with values. Called by ``convolution`` and ``pooling``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..backends.base import Pair
from ..shapes import Geometry
from .registry import Array, full


class Windows(NamedTuple):
    """The windows of a ``kernel`` on an image of ``size`` (H, W); ``op`` names them in errors."""

    op: str
    size: Pair
    kernel: Pair
    geometry: Geometry

    @property
    def out(self) -> Pair:
        """The number of windows down and across; ShapeError if none fits."""
        return self.geometry.output_size(self.op, self.size, self.kernel)

    def taps(self) -> Iterator[tuple[slice, slice]]:
        """Yield the slices of a padded image that each tap reads, in row-major order."""
        (sh, sw), _, (dh, dw), _ = self.geometry
        (kh, kw), (oh, ow) = self.kernel, self.out
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
                yield rows, slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)


def pad(x: Array, padding: Pair, value: float = 0.0) -> Array:
    """Return x (N, H, W, C) with ``padding`` rows and columns of ``value`` on each side."""
    (n, h, w, c), (ph, pw) = x.shape, padding
    out = full(x, (n, h + 2 * ph, w + 2 * pw, c), value)
    out[:, ph : ph + h, pw : pw + w, :] = x
    return out


def crop(padded: Array, padding: Pair) -> Array:
    """Return the view without the padding: the inverse of ``pad``."""
    (_, h, w, _), (ph, pw) = padded.shape, padding
    return padded[:, ph : h - ph, pw : w - pw, :]


def view_windows(padded: Array, windows: Windows) -> Array:
    """Return the view (N, OH, OW, KH, KW, C) of all windows on a padded image; no copy."""
    ### BEGIN YOUR SOLUTION [windows]
    (n, _, _, c), (kh, kw), (oh, ow) = padded.shape, windows.kernel, windows.out
    sn, sh, sw, sc = padded.strides
    (step_h, step_w), _, (gap_h, gap_w), _ = windows.geometry
    shape = (n, oh, ow, kh, kw, c)
    strides = (sn, sh * step_h, sw * step_w, sh * gap_h, sw * gap_w, sc)
    if isinstance(padded, np.ndarray):
        return np.lib.stride_tricks.as_strided(padded, shape, strides)
    return padded.as_strided(shape, strides)
    ### END YOUR SOLUTION
