"""The dtypes in which an elementwise operation computes and returns, one rule for each family.

The families are the tables of ``backends/base.py``; promotion itself is in ``dtypes``. These are
pure functions of dtypes and Python scalars, which ``kernels`` calls before any kernel runs.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .. import dtypes
from ..backends import base
from ..backends.base import Scalar
from ..dtypes import DType, bool_, is_floating, is_integer, promote, promote_scalar
from ..errors import DTypeError

Rule = tuple[DType, DType]
"""The dtype to compute in (operands are cast to it) and the dtype of the result."""

FLOAT_RESULT = (*base.UNARY_FLOAT, *base.BINARY_FLOAT, "divide")
BITWISE = base.BINARY_INTEGER + base.UNARY_INTEGER
ROUNDING = ("floor", "ceil", "trunc", "round")
FLOAT_TEST = ("isnan", "isinf", "isfinite")
NOT_ZERO = (*base.BINARY_LOGICAL, "logical_not")
BOOL_FORM = {"maximum": "logical_or", "minimum": "logical_and"}
"""Operations on two bool arrays that give bool, and the kernels that compute them."""


@lru_cache(None)
def elementwise_rule(name: str, *operands: DType) -> Rule:
    """Return the rule for operands of these dtypes (one or two); DTypeError if there is none."""
    common = operands[0] if len(operands) == 1 else promote(*operands)
    if name in BITWISE and is_floating(common):
        listed = " and ".join(map(str, operands))
        raise DTypeError(f"{name}: operands must be bool or integers, got {listed}; cast them")
    if name in FLOAT_TEST:
        return (common if is_floating(common) else dtypes.default_float), bool_
    if name in base.BINARY_COMPARE or name in NOT_ZERO:
        return common, bool_
    if name in BITWISE or (name in BOOL_FORM and common == bool_):
        return common, common
    if name in FLOAT_RESULT and not is_floating(common):
        return dtypes.default_float, dtypes.default_float
    return (dtypes.default_int, dtypes.default_int) if common == bool_ else (common, common)


def scalar_rule(name: str, dtype: DType, scalar: Scalar) -> Rule:
    """Return the rule for an array of ``dtype`` and a Python scalar.

    The scalar takes the array's dtype unless its kind is higher. A comparison rounds no integer: it
    is computed in int64 if the scalar does not fit.
    """
    other = promote_scalar(dtype, scalar)
    if name in base.BINARY_COMPARE:
        if is_integer(other) and not _fits(other, scalar):
            other = dtypes.default_int
        elif is_integer(dtype) and is_floating(other):
            other = dtypes.float64
    return elementwise_rule(name, dtype, other)


def fitting(op: str, dtype: DType, scalar: Scalar) -> Scalar:
    """Return the scalar converted for a kernel of ``dtype``; DTypeError if it does not fit."""
    if is_floating(dtype):
        try:
            return float(scalar)
        except OverflowError:
            raise DTypeError(
                f"{op}: the scalar must fit {dtype}, got an int that is too large"
            ) from None
    if dtype == bool_:
        return bool(scalar)
    if isinstance(scalar, float) and not math.isfinite(scalar):
        raise DTypeError(
            f"{op}: {scalar} cannot be represented in {dtype}; cast the array to float32"
        )
    whole = int(scalar)
    if not _fits(dtype, whole):
        info = np.iinfo(dtype)
        raise DTypeError(
            f"{op}: the scalar must fit {dtype} ({info.min}..{info.max}), got {scalar}; "
            f"cast the array to a wider dtype"
        )
    return whole


def _fits(dtype: DType, scalar: Scalar) -> bool:
    info = np.iinfo(dtype)
    return int(info.min) <= scalar <= int(info.max)


def common_dtype(*items: DType | Scalar) -> DType:
    """Return the dtype that dtypes and Python scalars promote to."""
    result = bool_
    for item in items:
        if isinstance(item, np.dtype):
            result = promote(result, item)
    for item in items:
        if not isinstance(item, np.dtype):
            result = promote_scalar(result, item)
    return result
