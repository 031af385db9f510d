"""Nested arguments and results: which leaves they have, and when two calls are alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..ndarray import NDArray
from .places import PLAIN


class CaptureWarning(UserWarning):
    """A captured function, or its kernels, runs as if it were not; the message says why."""


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with every leaf of its tuples, lists and dicts replaced by ``function(leaf)``."""
    if isinstance(value, dict):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map_leaves(function, item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(function, item) for item in value))
    return function(value)


def signature(value: Any, leaves: list[Any]) -> Hashable:
    """What must agree for a recording to fit a call; appends the leaves.

    Arrays count by geometry, dtype and device (and which of them share a buffer), plain values by
    type and value, any other object by identity.
    """
    if type(value) in (tuple, list):
        return (type(value), *[signature(item, leaves) for item in value])
    if isinstance(value, dict):
        return (dict, *[(key, signature(item, leaves)) for key, item in value.items()])
    leaves.append(value)
    if isinstance(value, Tensor):
        data = value.realize_cached_data()
        kind: Any = type(value)
        return (kind, value.requires_grad, value.op is None, *_geometry(data, leaves))
    if isinstance(value, NDArray):
        return (NDArray, *_geometry(value, leaves))
    if isinstance(value, np.ndarray):
        return (np.ndarray, value.dtype, value.shape)
    if isinstance(value, PLAIN):
        return (type(value), value)
    return (type(value), id(value))


def _geometry(array: NDArray, leaves: list[Any]) -> tuple[Hashable, ...]:
    handle, shape, strides, offset, dtype = array._view
    return shape, strides, dtype, array.device.name, *_same_buffer(handle, offset, leaves)


def _same_buffer(handle: Any, offset: int, leaves: list[Any]) -> tuple[int, int]:
    """The first of the leaves on this buffer, and how far behind its view this one begins."""
    for i, leaf in enumerate(leaves):
        array = leaf.cached_data if isinstance(leaf, Tensor) else leaf
        if isinstance(array, NDArray) and array._view.handle is handle:
            return i, offset - array._view.offset
    raise AssertionError("the array itself is the last leaf")
