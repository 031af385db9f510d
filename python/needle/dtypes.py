"""The dtype table of six rows, bfloat16 beside them, and the promotion rules.

A dtype *is* a ``numpy.dtype``, so it compares equal to its name (``a.dtype == "float32"``) and
NumPy accepts it. Promotion follows the Python array API standard 2024.12. Where the standard leaves
mixed kinds undefined, the order bool < integer < floating decides, and an integer array takes the
dtype of the floating operand. ``src/core/dtype.h`` has the same rows for C++.

bfloat16, the upper half of a float32, is for storage on backends that have it: an operation on such
arrays computes in float32 and rounds its result once. NumPy knows it from the package ml_dtypes,
which is imported when the dtype is first named.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DTypeError

DType = np.dtype[Any]

BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class Row:
    """A supported dtype: the NumPy object, its code in C++, its kind (0 bool, 1 int, 2 float)."""

    dtype: DType
    code: int
    kind: int


TABLE = (
    Row(np.dtype("bool"), 0, 0),
    Row(np.dtype("uint8"), 1, 1),
    Row(np.dtype("int32"), 2, 1),
    Row(np.dtype("int64"), 3, 1),
    Row(np.dtype("float32"), 4, 2),
    Row(np.dtype("float64"), 5, 2),
)
BY_NAME = {row.dtype.name: row for row in TABLE}
KIND = {row.dtype: row.kind for row in TABLE}
TABLE_ORDER: dict[DType, float] = {row.dtype: row.code for row in TABLE}

bool_, uint8, int32, int64, float32, float64 = (row.dtype for row in TABLE)
default_float, default_int = float32, int64


def as_dtype(dtype: Any, op: str = "dtype") -> DType:
    """Return the dtype of the table for a name, a NumPy dtype or a Python type; else DTypeError.

    Python's ``float`` means the default float32, ``int`` int64 and ``bool`` bool. "bfloat16" is a
    dtype too, beside the table.
    """
    if dtype is float:
        return default_float
    if isinstance(dtype, np.dtype) and dtype in KIND:
        return dtype
    resolved = numpy_dtype(dtype, op)
    if is_bfloat16(resolved):
        KIND[resolved], TABLE_ORDER[resolved] = 2, TABLE_ORDER[float32] - 0.5
    if resolved not in KIND:
        raise _unsupported(op, dtype)
    return resolved


def numpy_dtype(dtype: Any, op: str = "dtype") -> DType:
    """Return NumPy's dtype for a name or type; DTypeError if NumPy has none.

    It need not be in the table: NumPy mode accepts every dtype of NumPy.
    """
    if str(dtype) == BFLOAT16:
        return _bfloat16(op)
    try:
        resolved: DType = np.dtype(dtype)
    except (TypeError, ValueError):
        raise _unsupported(op, dtype) from None
    return resolved


def _bfloat16(op: str) -> DType:
    try:
        import ml_dtypes
    except ImportError:
        raise DTypeError(
            f"{op}: bfloat16 needs the package ml_dtypes, which is not installed; pip install "
            "ml_dtypes, or use float32"
        ) from None
    found: DType = np.dtype(ml_dtypes.bfloat16)
    return found


def is_bfloat16(dtype: DType) -> bool:
    """Return True for bfloat16."""
    return dtype.kind == "V" and dtype.name == BFLOAT16


def _unsupported(op: str, dtype: Any) -> DTypeError:
    nearest = difflib.get_close_matches(str(dtype), BY_NAME, n=1)
    hint = f". Did you mean {nearest[0]!r}?" if nearest else ""
    return DTypeError(
        f"{op}: {dtype!r} is not a supported dtype; use one of {', '.join(BY_NAME)}{hint}"
    )


def is_floating(dtype: DType) -> bool:
    """Return True for float32, float64 and bfloat16."""
    return dtype.kind == "f" or is_bfloat16(dtype)


def float_limits(dtype: DType) -> Any:
    """Return ``numpy.finfo`` of a floating dtype: bits, eps, max, min, ..."""
    if is_bfloat16(dtype):
        from ml_dtypes import finfo

        limits: Any = finfo
        return limits(dtype)
    return np.finfo(dtype)


def is_integer(dtype: DType) -> bool:
    """Return True for uint8, int32 and int64."""
    return KIND[dtype] == 1


def promote(a: DType, b: DType) -> DType:
    """Return the dtype of an operation on dtypes ``a`` and ``b``: the later row of the table.

    uint8 and int32 give int32, float32 and float64 give float64 (the standard's table). An integer
    or bool array and a floating one give the floating dtype, which the standard leaves undefined;
    bfloat16 comes before float32.
    """
    return a if TABLE_ORDER[a] >= TABLE_ORDER[b] else b


def promote_scalar(dtype: DType, scalar: bool | int | float) -> DType:
    """Return the dtype of an operation on an array of ``dtype`` and a Python scalar.

    It is the array's dtype, or the default dtype of the scalar's kind if that kind is higher.
    """
    kind = 0 if isinstance(scalar, bool) else 1 if isinstance(scalar, int) else 2
    if kind <= KIND[dtype]:
        return dtype
    return default_int if kind == 1 else default_float
