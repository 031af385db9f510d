"""The dtype table: six rows, and the promotion rules that follow from their order.

A dtype *is* a ``numpy.dtype``, so it compares equal to its name (``a.dtype == "float32"``) and
NumPy understands it. Promotion follows the Python array API standard 2024.12; where the standard
leaves mixed kinds open, the kind order bool < integer < floating decides and an integer array
takes the floating operand's dtype. ``src/core/dtype.h`` holds the same rows for C++.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DTypeError

DType = np.dtype[Any]


@dataclass(frozen=True)
class Row:
    """One supported dtype: its NumPy object, its code in C++, its kind (0 bool, 1 int, 2 float)."""

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

bool_, uint8, int32, int64, float32, float64 = (row.dtype for row in TABLE)
default_float, default_int = float32, int64


def as_dtype(dtype: Any, op: str = "dtype") -> DType:
    """The table's dtype for a name, a NumPy dtype or a Python type; DTypeError for any other.

    Python's ``float`` means the default float32, ``int`` int64 and ``bool`` bool.
    """
    if dtype is float:
        return default_float
    if isinstance(dtype, np.dtype) and dtype in KIND:
        return dtype
    resolved = numpy_dtype(dtype, op)
    if resolved not in KIND:
        raise _unsupported(op, dtype)
    return resolved


def numpy_dtype(dtype: Any, op: str = "dtype") -> DType:
    """NumPy's dtype for a name or type, also one that is not in the table (NumPy mode takes those);
    DTypeError for what NumPy does not know either."""
    try:
        resolved: DType = np.dtype(dtype)
    except (TypeError, ValueError):
        raise _unsupported(op, dtype) from None
    return resolved


def _unsupported(op: str, dtype: Any) -> DTypeError:
    nearest = difflib.get_close_matches(str(dtype), BY_NAME, n=1)
    hint = f". Did you mean {nearest[0]!r}?" if nearest else ""
    return DTypeError(
        f"{op}: {dtype!r} is not a supported dtype; use one of {', '.join(BY_NAME)}{hint}"
    )


def is_floating(dtype: DType) -> bool:
    """Whether the dtype is float32 or float64."""
    return dtype.kind == "f"


def is_integer(dtype: DType) -> bool:
    """Whether the dtype is uint8, int32 or int64."""
    return KIND[dtype] == 1


def promote(a: DType, b: DType) -> DType:
    """The dtype of an operation on arrays of dtypes ``a`` and ``b``: the later row of the table.

    uint8 with int32 gives int32, float32 with float64 float64 (the standard's table); an integer
    or bool array with a floating one gives the floating dtype (left open by the standard).
    """
    return a if TABLE_ORDER[a] >= TABLE_ORDER[b] else b


def promote_scalar(dtype: DType, scalar: bool | int | float) -> DType:
    """The dtype of an array of ``dtype`` combined with a Python scalar: the array's own unless the
    scalar's kind is higher (then that kind's default dtype)."""
    kind = 0 if isinstance(scalar, bool) else 1 if isinstance(scalar, int) else 2
    if kind <= KIND[dtype]:
        return dtype
    return default_int if kind == 1 else default_float


TABLE_ORDER = {row.dtype: row.code for row in TABLE}
