"""ONNX's window operators on images (convolution, pooling), and padding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import ops
from ..autograd import Tensor
from .call import Call, operator

Pair = tuple[int, int]


@operator("Conv")
def _conv(call: Call) -> Tensor:
    x, weight, bias = call.x, call.tensor(1), call.optional(2)
    sizes = tuple(weight.shape[2:])
    if len(sizes) != 2:
        raise call.refuse(f"images (N, C, H, W) are supported, got a weight of {weight.shape}")
    dilation = _pair(call, "dilations", 1)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, sizes, strict=True)]
    x, padding = _padded(call, x, reach, 0.0, limited=False)
    stride, groups = _pair(call, "strides", 1), call.get("group", 1)
    return ops.conv2d(x, weight, bias, stride, padding, dilation, groups)


@operator("MaxPool")
def _max_pool(call: Call) -> Tensor:
    call.only(ceil_mode=0, storage_order=0, dilations=[1, 1])
    kernel = _pair(call, "kernel_shape", 1)
    x, padding = _padded(call, call.x, kernel, -math.inf)
    return ops.max_pool2d(x, kernel, _pair(call, "strides", 1), padding)


@operator("AveragePool")
def _average_pool(call: Call) -> Tensor:
    call.only(ceil_mode=0, dilations=[1, 1])
    kernel, stride = _pair(call, "kernel_shape", 1), _pair(call, "strides", 1)
    x, padding = _padded(call, call.x, kernel, 0.0)
    means = ops.avg_pool2d(x, kernel, stride, padding)
    inside = _pads(call, call.x, kernel)
    if call.get("count_include_pad", 0) or not any(inside):
        return means
    ones = Tensor(np.ones((1, 1, *call.x.shape[2:])), device=x.device, dtype=x.dtype)
    # The mean of ones is the fraction of each window that lies inside the image.
    counted, padding = _padded(call, ones, kernel, 0.0)
    return means / ops.avg_pool2d(counted, kernel, stride, padding)


@operator("GlobalAveragePool")
def _global_average_pool(call: Call) -> Tensor:
    return ops.mean(call.x, axes=tuple(range(2, len(call.x.shape))), keepdims=True)


def _pair(call: Call, name: str, default: int) -> Pair:
    values = call.get(name, [default, default])
    if len(values) != 2:
        raise call.refuse(f"{name} must have two sizes (images), got {values}")
    return int(values[0]), int(values[1])


def _pads(call: Call, x: Tensor, reach: Sequence[int]) -> list[int]:
    """Return [top, left, bottom, right] from ``pads`` or ``auto_pad``."""
    mode = call.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return [int(pad) for pad in call.get("pads", [0, 0, 0, 0])]
    if mode == "VALID":
        return [0, 0, 0, 0]
    begin, end = [], []
    for size, span, step in zip(x.shape[2:], reach, _pair(call, "strides", 1), strict=True):
        total = max((-(-size // step) - 1) * step + span - size, 0)
        less, more = total // 2, total - total // 2
        begin.append(less if mode == "SAME_UPPER" else more)
        end.append(more if mode == "SAME_UPPER" else less)
    return [*begin, *end]


def _padded(
    call: Call, x: Tensor, reach: Sequence[int], value: float, limited: bool = True
) -> tuple[Tensor, Pair]:
    """Return x and the symmetric padding that is left to the op; otherwise x is padded here.

    ``limited``: the op accepts padding of at most half a window.
    """
    top, left, bottom, right = _pads(call, x, reach)
    fits = not limited or (2 * top <= reach[0] and 2 * left <= reach[1])
    if (top, left) == (bottom, right) and fits and min(top, left) >= 0:
        return x, (top, left)
    return pad(call, x, [0, 0, top, left, 0, 0, bottom, right], value), (0, 0)


def pad(call: Call, x: Tensor, widths: Sequence[int], value: float) -> Tensor:
    """Return x with constant borders; ``widths``: those before each axis, then those after each."""
    count = len(x.shape)
    if min(widths) < 0:
        raise call.refuse(f"pads must not be negative, got {list(widths)}")
    for axis in range(count):
        for width, before in ((widths[axis], True), (widths[count + axis], False)):
            if not width:
                continue
            shape = [*x.shape]
            shape[axis] = width
            border = Tensor(np.full(shape, value), device=x.device, dtype=x.dtype)
            border.requires_grad = False
            x = ops.concatenate((border, x) if before else (x, border), axis=axis)
    return x


@operator("Pad")
def _pad(call: Call) -> Tensor:
    call.only(mode="constant")
    widths, value = call.numbers(1), call.numbers(2)
    if widths is None or call.optional(3) is not None:
        raise call.refuse("pads must be given for every axis; the input axes is not supported")
    return pad(call, call.x, [int(w) for w in widths], 0.0 if value is None else value.item())
