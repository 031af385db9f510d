"""Partial moments of the channels: the definition of what ``Backend.conv2d_moments`` writes.

They combine by the formula of Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise
algorithm for computing sample variances". Tests compare the kernels with both functions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..backends.base import MOMENT_PIXELS

Float64 = NDArray[np.float64]


def partial_moments(y: NDArray[np.generic]) -> Float64:
    """Return (ceil(pixels / 64), 2, C) for y (..., C): means, and squared deviations from them."""
    rows = y.reshape(-1, y.shape[-1]).astype("float64")
    parts = [rows[i : i + MOMENT_PIXELS] for i in range(0, len(rows), MOMENT_PIXELS)]
    return np.stack([[part.mean(0), ((part - part.mean(0)) ** 2).sum(0)] for part in parts])


def combined(moments: NDArray[np.generic], pixels: int) -> tuple[Float64, Float64]:
    """Return the mean and the biased variance (C,) of all pixels."""
    means, squares = np.moveaxis(moments.astype("float64"), 1, 0)
    counts = np.full((len(moments), 1), float(MOMENT_PIXELS))
    counts[-1] = pixels - MOMENT_PIXELS * (len(moments) - 1)
    mean = (counts * means).sum(0) / pixels
    return mean, (squares + counts * (means - mean) ** 2).sum(0) / pixels
