"""Call signatures: hashable keys of nested arguments, and a map over nested results."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..errors import NeedleError
from ..ndarray import NDArray
from .guards import PLAIN_TYPES, array_in, fact


class CaptureWarning(UserWarning):
    """Issued with the reason when a function, or its kernels, runs without capture."""


class CaptureError(NeedleError, RuntimeError):
    """Raised if a step uses data outside its arguments and state, or if replays have been stale."""


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Return nested tuples, lists and dicts with ``function`` applied to every leaf."""
    if isinstance(value, dict):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map_leaves(function, item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(function, item) for item in value))
    return function(value)


def signature(value: Any, leaves: list[Any]) -> Hashable:
    """Return the key of a call, which a recording must match, and append the leaves.

    Arrays are keyed by geometry, dtype and device (and by the leaves that share their buffer),
    plain values by type and value, and any other object by identity.
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
    key: Hashable = fact(value) if isinstance(value, PLAIN_TYPES) else (type(value), id(value))
    return key


def _geometry(array: NDArray, leaves: list[Any]) -> tuple[Hashable, ...]:
    """Return the layout of the last leaf, the first leaf on its buffer, and the offset from it."""
    handle, shape, strides, offset, dtype = array.view
    first, start = len(leaves) - 1, offset
    for i in range(first):
        other = array_in(leaves[i])
        if other is not None and other.view.handle is handle:
            first, start = i, other.view.offset
            break
    return shape, strides, dtype, array.device.name, first, offset - start


def function_name(function: Any) -> str:
    """Return the name of a step for messages."""
    return str(getattr(function, "__qualname__", type(function).__name__))
