"""The dtype table and the promotion rules.

A dtype *is* a ``numpy.dtype``, so it compares equal to its name (``a.dtype == "float32"``) and
NumPy accepts it. Promotion follows the Python array API standard 2024.12. Where the standard leaves
mixed kinds undefined, the order bool < integer < floating decides, and an integer array takes the
dtype of the floating operand. ``src/core/dtype.h`` has the same rows in C++; a test compares them.

bfloat16 is a storage dtype: an operation on such arrays computes in float32 and rounds its result
once. NumPy knows it from the package ml_dtypes, which is imported when the dtype is first named.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .errors import DTypeError

DType = np.dtype[Any]

BOOL, INTEGER, FLOATING = 0, 1, 2
"""The kinds of dtypes, in the order of promotion."""


@dataclass(frozen=True)
class Row:
    """A supported dtype: its name and kind, and the dtype in which operations on it compute."""

    name: str
    kind: int
    compute: str
    package: str = "numpy"
    """The package that defines the dtype."""

    @property
    def is_storage(self) -> bool:
        """Return True if operations on the dtype compute in another one."""
        return self.compute != self.name


TABLE = (
    Row("bool", BOOL, "bool"),
    Row("uint8", INTEGER, "uint8"),
    Row("int32", INTEGER, "int32"),
    Row("int64", INTEGER, "int64"),
    Row("bfloat16", FLOATING, "float32", package="ml_dtypes"),
    Row("float32", FLOATING, "float32"),
    Row("float64", FLOATING, "float64"),
)
"""Every dtype, in the order of promotion: two dtypes promote to the later row."""

NAMES = tuple(row.name for row in TABLE)
COMPUTE_DTYPES = tuple(np.dtype(row.name) for row in TABLE if not row.is_storage)
"""The dtypes in which operations compute; NumPy itself has them all."""

bool_, uint8, int32, int64, float32, float64 = map(
    np.dtype, ("bool", "uint8", "int32", "int64", "float32", "float64")
)
default_float, default_int = float32, int64


def as_dtype(dtype: Any, op: str = "dtype") -> DType:
    """Return the dtype of the table for a name, a NumPy dtype or a Python type.

    Python's ``float`` means the default float32, ``int`` int64 and ``bool`` bool. DTypeError for
    anything else, and for bfloat16 if the package ml_dtypes is not installed.
    """
    resolved = default_float if dtype is float else numpy_dtype(dtype, op)
    if _row(resolved) is None:
        raise _unsupported(op, dtype)
    return resolved


def numpy_dtype(dtype: Any, op: str = "dtype", default: DType | None = None) -> DType:
    """Return NumPy's dtype for a name or type, ``default`` for None; DTypeError if there is none.

    The dtype need not be in the table, because NumPy mode accepts every NumPy dtype.
    """
    dtype = default if dtype is None else dtype
    if isinstance(dtype, np.dtype):
        return dtype
    if dtype is None:  # NumPy would take float64
        raise _unsupported(op, dtype)
    for row in TABLE:
        if row.package != "numpy" and row.name == str(dtype):
            return _from_package(row, op)
    try:
        found: DType = np.dtype(dtype)
    except (TypeError, ValueError):
        raise _unsupported(op, dtype) from None
    return found


def _from_package(row: Row, op: str) -> DType:
    try:
        found: DType = np.dtype(getattr(importlib.import_module(row.package), row.name))
    except ImportError:
        raise DTypeError(
            f"{op}: {row.name} needs the package {row.package}, which is not installed; pip "
            f"install {row.package}, or use {row.compute}"
        ) from None
    return found


def _unsupported(op: str, dtype: Any) -> DTypeError:
    nearest = difflib.get_close_matches(str(dtype), NAMES, n=1)
    hint = f". Did you mean {nearest[0]!r}?" if nearest else ""
    return DTypeError(
        f"{op}: {dtype!r} is not a supported dtype; use one of {', '.join(NAMES)}{hint}"
    )


@lru_cache(maxsize=256)  # NumPy takes microseconds to find the name of a dtype
def _row(dtype: DType) -> Row | None:
    """Return the dtype's row, None if it is not in the table."""
    return next((row for row in TABLE if row.name == dtype.name and dtype.isnative), None)


def kind_of(dtype: DType) -> int:
    """Return the kind of a dtype of the table: BOOL, INTEGER or FLOATING."""
    row = _row(dtype)
    assert row is not None, dtype
    return row.kind


@lru_cache(maxsize=256)
def is_storage(dtype: DType) -> bool:
    """Return True if operations on the dtype compute in another one, as they do for bfloat16."""
    row = _row(dtype)
    return row is not None and row.is_storage


@lru_cache(maxsize=256)
def compute_dtype(dtype: DType) -> DType:
    """Return the dtype in which operations compute: float32 for bfloat16, else ``dtype`` itself.

    ``dtype`` may be any NumPy dtype.
    """
    row = _row(dtype)
    return np.dtype(row.compute) if row is not None and row.is_storage else dtype


def is_floating(dtype: DType) -> bool:
    """Return True for float32, float64, bfloat16 and all other floating dtypes of NumPy."""
    return dtype.kind == "f" or is_storage(dtype)


def unmasked(op: str, source: Any) -> np.ndarray[Any, DType]:
    """Return ``source`` as a NumPy array; DTypeError if an element of a masked array is masked."""
    host = np.asarray(source)
    _check_masks(op, source, host)
    return host


def real_array(op: str, source: Any) -> np.ndarray[Any, DType]:
    """Return ``unmasked(op, source)``; DTypeError for text, objects and complex numbers."""
    host = unmasked(op, source)
    if not is_real(host.dtype):  # NumPy would parse numbers in text
        raise DTypeError(
            f"{op}: elements must be bool, integers or floats, got {host.dtype} from "
            f"{type(source).__name__}; convert them first"
        )
    return host


def _check_masks(op: str, source: Any, host: np.ndarray[Any, DType]) -> None:
    if isinstance(source, (list, tuple)):
        numbers = host.ndim == 1 and host.dtype.kind in "biuf"  # a masked number becomes NaN
        if not numbers or (host.dtype.kind == "f" and np.isnan(host).any()):
            for part, each in zip(source, host, strict=True):
                _check_masks(op, part, each)
    elif isinstance(source, np.ma.MaskedArray) and (count := np.count_nonzero(source.mask)):
        raise DTypeError(
            f"{op}: arrays must have no masked elements, got {count}; write array.filled(value) "
            "or array.compressed()"
        )


def check_fits(op: str, host: Any, dtype: DType | None) -> None:
    """Raise DTypeError if an array's numbers, truncated, do not fit an integer ``dtype``."""
    if dtype is None or dtype.kind not in "iu" or dtype == host.dtype or host.dtype.kind == "b":
        return
    if lost := outside(host, dtype):
        raise DTypeError(
            f"{op}: the elements must fit {lost}; choose a wider dtype, or clip them first"
        )


def outside(array: Any, dtype: DType) -> str:
    """Describe an integer dtype's range and the extreme value outside it; "" if all values fit."""
    if not array.size:
        return ""
    info, low, high = np.iinfo(dtype), array.min().item(), array.max().item()
    if low > int(info.min) - 1 and high < int(info.max) + 1:  # false for NaN
        return ""
    got = low if low <= int(info.min) - 1 else high
    return f"{dtype} ({info.min}..{info.max}), got {got}"


def is_real(dtype: DType) -> bool:
    """Return True for bool, integer and floating dtypes of NumPy and of the table."""
    return dtype.kind in "biuf" or is_storage(dtype)


def is_integer(dtype: DType) -> bool:
    """Return True for uint8, int32 and int64."""
    return kind_of(dtype) == INTEGER


def float_limits(dtype: DType) -> Any:
    """Return ``numpy.finfo`` of a floating dtype: bits, eps, max, min, ..."""
    row = _row(dtype)
    return importlib.import_module("numpy" if row is None else row.package).finfo(dtype)


@lru_cache(maxsize=256)
def promote(a: DType, b: DType) -> DType:
    """Return the dtype of an operation on dtypes ``a`` and ``b``: the later row of the table.

    uint8 and int32 give int32, float32 and float64 give float64 (the standard's table). An integer
    or bool array and a floating one give the floating dtype, which the standard leaves undefined;
    bfloat16 comes before float32.
    """
    return a if NAMES.index(a.name) >= NAMES.index(b.name) else b


def promote_scalar(dtype: DType, scalar: bool | int | float) -> DType:
    """Return the dtype of an operation on an array of ``dtype`` and a Python scalar.

    It is the array's dtype, or the default dtype of the scalar's kind if that kind is higher.
    """
    kind = BOOL if isinstance(scalar, bool) else INTEGER if isinstance(scalar, int) else FLOATING
    if kind <= kind_of(dtype):
        return dtype
    return default_int if kind == INTEGER else default_float
