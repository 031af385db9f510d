"""Find positions of elements (argmax, argmin, nonzero), and take elements by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..shapes import normalize_axis
from ..torch_names import publish
from .array import NDArray, along, as_array, only_axis


def argmax(x: NDArray, /, *, axis: int | None = None, keepdims: bool = False) -> NDArray:
    """Return the int64 position of the first maximum along ``axis`` (None: of the flat array).

    NaN counts as the maximum.
    """
    return as_array("argmax", x).argmax(axis, keepdims)


def argmin(x: NDArray, /, *, axis: int | None = None, keepdims: bool = False) -> NDArray:
    """Return the int64 position of the first minimum along ``axis`` (None: of the flat array).

    NaN counts as the minimum.
    """
    return as_array("argmin", x).argmin(axis, keepdims)


def nonzero(x: NDArray, /) -> tuple[NDArray, ...]:
    """Return the row-major positions of the nonzero elements, one int64 array per axis."""
    if as_array("nonzero", x).ndim == 0:
        raise ShapeError("nonzero: the array must have at least 1 axis, got (); reshape it")
    return tuple(NDArray(i, device=x.device, dtype="int64") for i in np.nonzero(np.asarray(x)))


def take(x: NDArray, indices: Any, /, *, axis: int | None = None) -> NDArray:
    """Return ``x`` indexed along ``axis``, which may be omitted only for a 1-D array."""
    return along(x, only_axis("take", x, axis), np.asarray(indices))


def take_along_axis(x: NDArray, indices: Any, /, *, axis: int = -1) -> NDArray:
    """Return ``out[i, j, ...] = x[i, indices[i, j, ...], ...]`` for axis 1, others likewise."""
    place = normalize_axis("take_along_axis", axis, as_array("take_along_axis", x).ndim)
    index = np.asarray(indices)
    if index.ndim != x.ndim:
        raise ShapeError(
            f"take_along_axis: the indices must have {x.ndim} axes, got shape {index.shape}"
        )
    grid: list[Any] = list(np.ogrid[tuple(slice(size) for size in x.shape)])
    grid[place] = index
    return x[tuple(grid)]


publish(__name__)
