"""Sorted and unique values, and positions in sorted arrays.

No backend has kernels for these functions; NumPy computes them in host memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..shapes import normalize_axis
from ..torch_names import publish
from .array import NDArray, as_array, from_host, same_device
from .data_types import result_type


def sort(
    x: NDArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> NDArray:
    """Return a copy sorted along ``axis``; NaN counts as the largest value."""
    order = _order("sort", x, axis, descending)
    return from_host(np.take_along_axis(np.asarray(x), order, axis), x.device)


def argsort(
    x: NDArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> NDArray:
    """Return the int64 positions that sort ``x`` along ``axis``; equal values keep their order.

    NaN counts as the largest value.
    """
    return from_host(_order("argsort", x, axis, descending), x.device)


def _order(op: str, x: NDArray, axis: int, descending: bool) -> Any:
    """Return the stable order of the elements along ``axis`` as a NumPy array.

    For descending order, the array is reversed, and so is its order: equal values stay in order.
    """
    along = normalize_axis(op, axis, as_array(op, x).ndim)
    host = np.asarray(x)
    if not descending:
        return np.argsort(host, along, stable=True)
    order = np.argsort(np.flip(host, along), along, stable=True)
    return np.flip(host.shape[along] - 1 - order, along)


def searchsorted(
    x1: NDArray, x2: NDArray, /, *, side: str = "left", sorter: NDArray | None = None
) -> NDArray:
    """Return the int64 positions at which ``x2`` would be inserted in ``x1`` (1-D, sorted).

    ``side``: "left" gives the first such position, "right" the last. ``sorter`` (1-D) sorts ``x1``.
    """
    if side not in ("left", "right"):
        raise ShapeError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    if as_array("searchsorted", x1).ndim != 1:
        raise ShapeError(f"searchsorted: x1 must be 1-D, got shape {x1.shape}; reshape it")
    same_device("searchsorted", x1, as_array("searchsorted", x2))
    common = result_type(x1, x2)
    values, wanted = (np.asarray(x).astype(common) for x in (x1, x2))
    order = None if sorter is None else np.asarray(sorter)
    found = np.asarray(np.searchsorted(values, wanted, side, order))  # type: ignore[call-overload]
    return from_host(found.astype(np.int64), x2.device)


class UniqueAll(NamedTuple):
    """The results of ``unique_all``."""

    values: NDArray
    """The unique values, sorted; every NaN counts as one of its own."""
    indices: NDArray
    """The int64 position of the first occurrence of each in the flat array."""
    inverse_indices: NDArray
    """The int64 positions in ``values`` that reconstruct the array, in its shape."""
    counts: NDArray
    """The int64 number of occurrences of each."""


class UniqueCounts(NamedTuple):
    """The results of ``unique_counts``; see ``UniqueAll``."""

    values: NDArray
    counts: NDArray


class UniqueInverse(NamedTuple):
    """The results of ``unique_inverse``; see ``UniqueAll``."""

    values: NDArray
    inverse_indices: NDArray


def unique_all(x: NDArray, /) -> UniqueAll:
    """Return the unique values, their first positions, the inverse, and the counts."""
    host = np.asarray(as_array("unique", x))
    values, first, inverse, counts = np.unique(
        host, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    parts = (values, first, inverse.reshape(host.shape), counts)
    return UniqueAll(*(from_host(part, x.device) for part in parts))


def unique_counts(x: NDArray, /) -> UniqueCounts:
    """Return the unique values and the number of occurrences of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: NDArray, /) -> UniqueInverse:
    """Return the unique values and the positions in them that reconstruct the array."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: NDArray, /) -> NDArray:
    """Return the unique values, sorted."""
    return unique_all(x).values


publish(__name__)
