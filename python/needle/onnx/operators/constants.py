"""Operators that create values: constants, shapes of tensors, ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..call import Call, operator


@operator("Constant")
def _constant(call: Call) -> Any:
    forms = ("value", "value_float", "value_int", "value_floats", "value_ints")
    name = next((form for form in forms if form in call.attributes), None)
    if name is None:
        raise call.refuse(f"the value must be numbers, got {', '.join(call.attributes)}")
    kind = None if name == "value" else np.float32 if "float" in name else np.int64
    return np.asarray(call.get(name), kind)


@operator("ConstantOfShape")
def _constant_of_shape(call: Call) -> Any:
    value = np.asarray(call.get("value", np.zeros(1, np.float32)))
    if value.size != 1:
        raise call.refuse(f"the value must be one number, got shape {value.shape}")
    return np.full(call.sized(call.integers(0) or ()), value.reshape(-1)[0], value.dtype)


@operator("Shape")
def _shape(call: Call) -> Any:
    """Return the sizes of axes ``start`` to ``end``, clipped to the existing axes."""
    ndim = len(call.x.shape)
    bounds = (call.get("start", 0), call.get("end", ndim))
    start, end = (min(max(b + ndim if b < 0 else b, 0), ndim) for b in bounds)
    return np.array(call.x.shape[start:end], np.int64)


@operator("Size")
def _size(call: Call) -> Any:
    return np.array(call.x.size, np.int64)


@operator("Range")
def _range(call: Call) -> Any:
    start, limit, step = (call.scalar(i) for i in (0, 1, 2))
    dtype = np.dtype(call.x.dtype)
    if not step or not all(map(math.isfinite, (start, limit, step))):
        raise call.refuse(
            f"start, limit and delta must be finite and delta not 0, got {start}, {limit}, {step}"
        )
    (count,) = call.sized([max(math.ceil((limit - start) / step), 0)])
    return (
        start + np.arange(count, dtype=np.float64 if dtype.kind == "f" else dtype) * step
    ).astype(dtype)


@operator("EyeLike")
def _eye_like(call: Call) -> Any:
    if len(call.x.shape) != 2:
        raise call.refuse(f"the input must be a matrix, got shape {call.x.shape}")
    return np.eye(*call.x.shape, k=call.get("k", 0), dtype=call.get("dtype", call.x.dtype))
