"""Check indices, and convert slices to indices. Called by the datasets."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from ..samples.ticket import Indices as Indices


def check_index(owner: str, index: SupportsIndex, length: int) -> int:
    """Return ``index`` counted from the front; raise IndexError if it is out of range."""
    place = int(index)
    if not -length <= place < length:
        raise IndexError(f"{owner}: index must be in [-{length}, {length}), got {place}")
    return place % length


def given_or_listed(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments, or the elements of a list or tuple that is the only argument."""
    only = given[0] if len(given) == 1 else None
    return tuple(only) if isinstance(only, (list, tuple)) else given


def several(index: Any, length: int) -> Indices | None:
    """Return the indices selected by a slice, a list or an array; None for a single index."""
    if isinstance(index, slice):
        return np.arange(*index.indices(length))
    if isinstance(index, list) or (isinstance(index, np.ndarray) and index.ndim):
        return np.arange(length)[index]
    return None
