"""Where elements are: argmax, argmin, nonzero; and taking them by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import accelerated
from ..dtypes import bool_, uint8
from ..errors import ShapeError
from ..shapes import normalize_axis
from .array import NDArray
from .elementwise import as_array


def argmax(x: NDArray, /, *, axis: int | None = None, keepdims: bool = False) -> NDArray:
    """int64 position of the first maximum along ``axis`` (None: of the flat array); NaN wins."""
    return _arg("argmax", accelerated.argmax, x, axis, keepdims)


def argmin(x: NDArray, /, *, axis: int | None = None, keepdims: bool = False) -> NDArray:
    """int64 position of the first minimum along ``axis`` (None: of the flat array); NaN wins."""
    return _arg("argmin", accelerated.argmin, x, axis, keepdims)


def _arg(
    name: str, function: Callable[..., Any], x: NDArray, axis: int | None, keepdims: bool
) -> NDArray:
    if as_array(name, x).dtype == bool_:
        x = x.astype(uint8)
    ndim = x.ndim
    flat = x.reshape((-1,)) if axis is None else x
    place = 0 if axis is None else normalize_axis(name, axis, ndim)
    if not flat.shape[place] and (axis is None or all(x.shape[:place] + x.shape[place + 1 :])):
        raise ShapeError(f"{name}: at least one element is needed, got shape {x.shape}")
    result: NDArray = function(flat, place, keepdims)
    return result.reshape((1,) * ndim) if keepdims and axis is None else result


def nonzero(x: NDArray, /) -> tuple[NDArray, ...]:
    """One int64 array an axis: the positions of the elements that are not 0, in row-major order."""
    if as_array("nonzero", x).ndim == 0:
        raise ShapeError("nonzero: the array must have at least 1 axis, got (); reshape it")
    return tuple(NDArray(i, device=x.device, dtype="int64") for i in np.nonzero(np.asarray(x)))


def take(x: NDArray, indices: Any, /, *, axis: int | None = None) -> NDArray:
    """``x[..., indices, ...]`` on ``axis``, which only a 1-D array may leave out."""
    if axis is None and as_array("take", x).ndim != 1:
        raise ShapeError(f"take: axis may be left out for 1-D arrays only, got shape {x.shape}")
    place = 0 if axis is None else normalize_axis("take", axis, x.ndim)
    return x[(slice(None),) * place + (np.asarray(indices),)]


def take_along_axis(x: NDArray, indices: Any, /, *, axis: int = -1) -> NDArray:
    """out[i, j, ...] = x[i, indices[i, j, ...], ...] with the index on ``axis``."""
    place = normalize_axis("take_along_axis", axis, as_array("take_along_axis", x).ndim)
    index = np.asarray(indices)
    if index.ndim != x.ndim:
        raise ShapeError(
            f"take_along_axis: the indices must have {x.ndim} axes as the array, got {index.shape}"
        )
    grid: list[Any] = list(np.ogrid[tuple(slice(size) for size in x.shape)])
    grid[place] = index
    return x[tuple(grid)]
