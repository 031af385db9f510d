"""Dtype functions, constants and inspection of the array API standard.

The dtypes themselves are in ``needle.dtypes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..config import MAX_DIMS
from ..dtypes import (
    COMPUTE_DTYPES,
    DType,
    as_dtype,
    bool_,
    default_float,
    default_int,
    float_limits,
    is_floating,
    is_integer,
    promote,
)
from ..errors import DTypeError
from ..torch_names import publish
from .array import NDArray
from .device import BackendDevice, all_devices, default_device
from .dtype_rules import common_dtype

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi


def astype(x: NDArray, dtype: Any, /, *, copy: bool = True, device: Any = None) -> NDArray:
    """Return ``x.astype(dtype)``, on another device if one is given."""
    result = x.astype(dtype, copy=copy)
    return result if device is None else result.to(device)


def _dtype_of(item: Any, op: str) -> DType:
    """Return the dtype of an array, or the dtype that a name or type stands for."""
    return as_dtype(item.dtype if isinstance(item, NDArray | np.ndarray) else item, op)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that the arrays, dtypes and Python scalars promote to."""
    items = [
        item if isinstance(item, bool | int | float) else _dtype_of(item, "result_type")
        for item in arrays_and_dtypes
    ]
    if not any(isinstance(item, np.dtype) for item in items):
        raise DTypeError(
            "result_type: there must be at least one array or dtype, got none; add one"
        )
    return common_dtype(*items)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return True if ``from_`` (a dtype or array) can be promoted to ``to``."""
    target = as_dtype(to, "can_cast")
    return promote(_dtype_of(from_, "can_cast"), target) == target


_KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda dtype: dtype == bool_,
    "signed integer": lambda dtype: dtype.kind == "i",
    "unsigned integer": lambda dtype: dtype.kind == "u",
    "integral": is_integer,
    "real floating": is_floating,
    "complex floating": lambda dtype: False,
    "numeric": lambda dtype: dtype != bool_,
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return True if ``dtype`` is of a kind, such as "bool", "integral" or "real floating".

    ``kind`` may also be a dtype, or a tuple of kinds and dtypes; one of them must match.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, item) for item in kind)
    test = _KINDS.get(kind) if isinstance(kind, str) else None
    if test is not None:
        return bool(test(as_dtype(dtype, "isdtype")))
    return as_dtype(dtype, "isdtype") == as_dtype(kind, "isdtype")


def finfo(type: Any, /) -> Any:
    """Return the limits of a floating dtype (or an array's) as Python numbers.

    They are ``bits``, ``eps``, ``max``, ``min``, ``smallest_normal`` (also ``tiny``) and ``dtype``.
    """
    dtype = _dtype_of(type, "finfo")
    if not is_floating(dtype):
        raise DTypeError(f"finfo: the dtype must be floating, got {dtype}; use iinfo")
    found = float_limits(dtype)
    names = ("eps", "max", "min", "smallest_normal", "tiny")
    limits = {name: float(getattr(found, name)) for name in names}
    return SimpleNamespace(bits=int(found.bits), dtype=dtype, **limits)


def iinfo(type: Any, /) -> Any:
    """Return the limits of an integer dtype (or an array's): bits, max, min."""
    dtype = _dtype_of(type, "iinfo")
    if not is_integer(dtype):
        raise DTypeError(f"iinfo: the dtype must be an integer dtype, got {dtype}; use finfo")
    return np.iinfo(dtype)


class NamespaceInfo:
    """The inspection functions of the standard, returned by ``__array_namespace_info__()``."""

    def capabilities(self) -> dict[str, Any]:
        """Return the optional capabilities: data-dependent shapes, and the limit on axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_DIMS}

    def default_device(self) -> BackendDevice:
        """Return the device of arrays that are made without ``device=``."""
        return default_device()

    def devices(self) -> list[BackendDevice]:
        """Return the devices that can be used here."""
        return [device for device in all_devices() if device.enabled()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Return the dtypes of arrays that are made without ``dtype=``."""
        return {"real floating": default_float, "integral": default_int, "indexing": default_int}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Return a dict from names to dtypes, of one kind or of all."""
        return {d.name: d for d in COMPUTE_DTYPES if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """Return the inspection object of the standard."""
    return NamespaceInfo()


publish(__name__)
