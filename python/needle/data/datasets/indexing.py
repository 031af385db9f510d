"""Checks of indices, and items by slice. Called by the datasets, the pipeline and the loaders."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError
from ..samples.ticket import Indices as Indices


def check_index(owner: str, index: SupportsIndex, length: int) -> int:
    """Return ``index`` counted from the front; IndexError if it is out of range."""
    place = int(index)
    if not -length <= place < length:
        raise IndexError(f"{owner}: index must be in [-{length}, {length}), got {place}")
    return place % length


def check_indices(owner: str, indices: npt.NDArray[Any], length: int) -> Indices:
    """Return ``indices`` as int64 ``(n,)`` counted from the front, each in range."""
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ShapeError(
            f"{owner}: indices must be a flat list of ints, got shape {indices.shape} of "
            f"{indices.dtype}; for a mask give np.flatnonzero(mask)"
        )
    if indices.dtype == np.int64 and indices.size and highest(indices) < length:
        return indices
    outside = (indices < -length) | (indices >= length)
    if outside.any():
        raise IndexError(
            f"{owner}: each index must be in [-{length}, {length}), got {indices[outside][0]}"
        )
    return np.where(indices < 0, indices + length, indices).astype(np.int64)


def highest(indices: Indices) -> int:
    """Return the highest index, 0 if there is none; very large if one is negative."""
    return int(indices.view(np.uint64).max(initial=0))


def several(index: Any, length: int) -> Indices | None:
    """Return the indices that a slice, a list or an array names; None for a single index."""
    if isinstance(index, slice):
        return np.arange(*index.indices(length))
    if isinstance(index, list) or (isinstance(index, np.ndarray) and index.ndim):
        return np.arange(length)[index]
    return None
