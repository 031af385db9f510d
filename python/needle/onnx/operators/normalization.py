"""Normalisation: batch, layer, group, instance and local response norm."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator
from .shape import pad


def _standard(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x - mean) / sqrt(var + epsilon), the mean and 1/sqrt(var + epsilon) over axes."""
    mean = ops.mean(x, axes=axes, keepdims=True)
    centred = x - mean
    var = ops.mean(centred * centred, axes=axes, keepdims=True)
    inverse = (var + epsilon) ** -0.5
    return centred * inverse, mean, inverse


def _per_channel(call: Call, value: Tensor, what: str, count: int | None = None) -> Tensor:
    """Return a vector with one number per channel in a shape that broadcasts to (N, C, ...)."""
    x = call.x
    if len(x.shape) < 2:
        raise call.refuse(f"the input must be (N, C, ...), got shape {x.shape}")
    count = x.shape[1] if count is None else count
    if tuple(value.shape) != (count,):
        raise call.refuse(f"{what} must have shape ({count},), got {tuple(value.shape)}")
    return ops.reshape(value, (1, count) + (1,) * (len(x.shape) - 2))


@operator("BatchNormalization")
def _batch_norm(call: Call) -> Tensor:
    call.only(training_mode=0, spatial=1)
    named = zip(("scale", "bias", "mean", "var"), (1, 2, 3, 4), strict=True)
    scale, bias, mean, var = (_per_channel(call, call.tensor(i), name) for name, i in named)
    factor = scale / ops.sqrt(var + call.get("epsilon", 1e-5))
    return call.x * factor + (bias - mean * factor)


@operator("LayerNormalization")
def _layer_norm(call: Call) -> tuple[Tensor, ...]:
    """Return the input normalised over ``axis`` and later axes, the mean, and 1/sqrt(var + eps)."""
    x, scale, bias = call.x, call.tensor(1), call.optional(2)
    axes = tuple(range(call.axis(call.get("axis", -1)), len(x.shape)))
    y, mean, inverse = _standard(x, axes, call.get("epsilon", 1e-5))
    y = y * call.stretched(scale, x.shape, "the scale")
    if bias is not None:
        y = y + call.stretched(bias, x.shape, "the bias")
    return y, mean, inverse


@operator("RMSNormalization")
def _rms_norm(call: Call) -> Any:
    x, scale = call.x, call.tensor(1)
    axes = tuple(range(call.axis(call.get("axis", -1)), len(x.shape)))
    square = ops.mean(x * x, axes=axes, keepdims=True)
    y = x * (square + call.get("epsilon", 1e-5)) ** -0.5
    return y * call.stretched(scale, x.shape, "the scale")


@operator("InstanceNormalization")
def _instance_norm(call: Call) -> Tensor:
    axes = tuple(range(2, len(call.x.shape)))
    scale = _per_channel(call, call.tensor(1), "the scale")
    bias = _per_channel(call, call.tensor(2), "the bias")
    return _standard(call.x, axes, call.get("epsilon", 1e-5))[0] * scale + bias


@operator("GroupNormalization")
def _group_norm(call: Call) -> Tensor:
    """Normalise groups; scale and bias are per channel, or before opset 21 per group."""
    x, groups = call.x, call.get("num_groups", 1)
    if len(x.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise call.refuse(f"num_groups must divide the channels of {x.shape}, got {groups}")
    n, c, *rest = x.shape
    grouped = ops.reshape(x, (n, groups, c // groups * math.prod(rest)))
    y = ops.reshape(_standard(grouped, (2,), call.get("epsilon", 1e-5))[0], (n, c, *rest))
    if call.opset >= 21:
        scale, bias = (_per_channel(call, call.tensor(i), "scale and bias") for i in (1, 2))
        return y * scale + bias
    y, one = ops.reshape(y, (n, groups, c // groups, *rest)), (1, groups, 1, *[1] * len(rest))
    values = (_per_channel(call, call.tensor(i), "scale and bias", groups) for i in (1, 2))
    scale, bias = (ops.reshape(value, one) for value in values)
    return ops.reshape(y * scale + bias, tuple(x.shape))


@operator("MeanVarianceNormalization")
def _mean_variance_norm(call: Call) -> Tensor:
    axes = call.axes(call.listed("axes") or [0, 2, 3])
    return _standard(call.x, axes, 1e-9)[0]


@operator("LRN")
def _local_response_norm(call: Call) -> Any:
    """Return x / (bias + alpha/size * sum of squares of ``size`` adjacent channels) ** beta."""
    x, size = call.x, call.get("size", 0)
    if len(x.shape) < 2 or size < 1:
        raise call.refuse(
            f"size must be at least 1 and the input (N, C, ...), got {size} and shape {x.shape}"
        )
    before, channels = (size - 1) // 2, x.shape[1]
    rest = [0] * (len(x.shape) - 2)
    square = pad(call, x * x, [0, before, *rest, 0, size - 1 - before, *rest], 0.0)
    total = reduce(ops.add, (square[:, i : i + channels] for i in range(size)))
    scale = total * (call.get("alpha", 1e-4) / size) + call.get("bias", 1.0)
    return x / scale ** call.get("beta", 0.75)
