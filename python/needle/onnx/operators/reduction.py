"""Operators along axes: sums and other reductions, softmax, and positions of extremes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import OPERATORS, Call, operator
from .indexing import along

Axes = tuple[int, ...] | None


def _reduction(name: str, function: Callable[[Tensor, Axes, bool], Any]) -> None:
    def run(call: Call) -> Any:
        listed = call.integers(1, "axes")
        if not listed and call.flag("noop_with_empty_axes"):
            return _without_axes(call, name)
        axes = call.axes(listed) if listed else tuple(range(len(call.x.shape)))
        return _typed(call, function, axes, call.flag("keepdims", True))

    OPERATORS[name] = run


def _without_axes(call: Call, name: str) -> Any:
    """Return the reduction over no axes, which transforms each element separately."""
    if name == "ReduceSumSquare":
        return call.x * call.x
    each = {"ReduceL1": ops.abs, "ReduceL2": ops.abs, "ReduceLogSum": ops.log}
    return each[name](call.x) if name in each else call.x


def _typed(call: Call, function: Callable[..., Any], axes: Axes, keepdims: bool) -> Any:
    """Return the reduction in the dtype of the input."""
    x = call.x
    result = function(x, axes, keepdims) if axes else function(x[None], (0,), False)
    if np.dtype(x.dtype).kind in "iu" and np.dtype(result.dtype).kind in "iu":
        return ops.astype(result, x.dtype)
    return result


def _square_sum(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    return ops.summation(x * x, axes, keepdims)


def _log_sum_exp(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    if x.size:
        return ops.logsumexp(x, axes=axes, keepdims=keepdims)
    return ops.log(ops.summation(x, axes, keepdims))


def _extreme(function: Callable[..., Tensor], sign: int) -> Callable[..., Any]:
    def run(x: Tensor, axes: Axes, keepdims: bool) -> Any:
        if x.size:
            return function(x, axes, keepdims)
        dtype = np.dtype(x.dtype)
        least = -math.inf if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind != "b" else 0
        most = math.inf if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind != "b" else 1
        empty = np.zeros(x.shape, dtype)
        pick: Callable[..., Any] = np.max if sign > 0 else np.min
        return pick(empty, axis=axes, keepdims=keepdims, initial=least if sign > 0 else most)

    return run


_reduction("ReduceL1", lambda x, axes, keep: ops.summation(ops.abs(x), axes, keep))
_reduction("ReduceL2", lambda x, axes, keep: ops.sqrt(_square_sum(x, axes, keep)))
_reduction("ReduceLogSum", lambda x, axes, keep: ops.log(ops.summation(x, axes, keep)))
_reduction("ReduceLogSumExp", _log_sum_exp)
_reduction("ReduceMax", _extreme(ops.max, 1))
_reduction("ReduceMean", ops.mean)
_reduction("ReduceMin", _extreme(ops.min, -1))
_reduction("ReduceProd", ops.prod)
_reduction("ReduceSum", ops.summation)
_reduction("ReduceSumSquare", _square_sum)


@operator("LogSoftmax", "Softmax")
def _softmax(call: Call) -> Tensor:
    """Return the softmax or its logarithm, before opset 13 over all axes from ``axis`` on."""
    function = ops.softmax if call.kind == "Softmax" else ops.logsoftmax
    x, axis = call.x, call.axis(call.get("axis", -1 if call.opset >= 13 else 1))
    if call.opset >= 13:
        return function(x, axis=axis)
    rows = ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return ops.reshape(function(rows, axis=1), tuple(x.shape))


@operator("ArgMax", "ArgMin")
def _place_of_extreme(call: Call) -> Any:
    function = np.argmax if call.kind == "ArgMax" else np.argmin
    axis, x = call.axis(call.get("axis", 0)), call.array(0)
    if not call.flag("select_last_index"):
        found = function(x, axis=axis)
    else:
        found = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis)
    found = np.asarray(found, np.int64)
    return np.expand_dims(found, axis) if call.flag("keepdims", True) else found


@operator("TopK")
def _top_k(call: Call) -> tuple[Any, Any]:
    """Return the k largest or smallest elements along an axis, and their positions."""
    axis, k = call.axis(call.get("axis", -1)), call.scalar(1, 0, "k")
    x = call.array(0)
    if not 0 <= k <= x.shape[axis]:
        raise call.refuse(f"k must be in [0, {x.shape[axis]}], got {k}")
    places = np.argsort(-x.astype(float) if call.flag("largest", True) else x, axis, kind="stable")
    places = np.take(places, np.arange(k), axis)
    return call.x[along(places, axis)], places


@operator("CumSum", "CumProd")
def _cumulative(call: Call) -> Tensor:
    """Return cumulative sums or products, without the element itself if ``exclusive``."""
    x, axis, back = call.x, call.axis(call.scalar(1)), call.flag("reverse")
    whole: tuple[Any, ...] = (slice(None),) * axis
    if call.flag("exclusive") and x.shape[axis]:
        start = call.constant([call.kind == "CumProd"], x.dtype)
        first = ops.broadcast_to(start, tuple(1 if i == axis else n for i, n in enumerate(x.shape)))
        kept = x[(*whole, slice(1, None) if back else slice(None, -1))]
        x = ops.concatenate((kept, first) if back else (first, kept), axis=axis)
    x = ops.flip(x, (axis,)) if back else x
    found = ops.cumsum(x, axis) if call.kind == "CumSum" else ops.cumprod(x, axis)
    return ops.astype(ops.flip(found, (axis,)) if back else found, call.x.dtype)


@operator("LpNormalization")
def _lp_norm(call: Call) -> Tensor:
    axis, p = call.axis(call.get("axis", -1)), call.get("p", 2)
    if p not in (1, 2):
        raise call.refuse(f"p must be 1 or 2, got {p}")
    size = ops.abs(call.x) if p == 1 else call.x * call.x
    total = ops.summation(size, (axis,), True)
    norm = total if p == 1 else ops.sqrt(total)
    return call.x / ops.where(ops.equal(norm, 0), norm + 1, norm)
