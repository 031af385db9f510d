"""Pooling over windows of any rank, with dilation and ceil mode, and global pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator
from .convolution import spatial, window_pads
from .shape import pad


@dataclass(frozen=True)
class _Windows:
    """Pooling windows, with sizes per spatial axis; ``after`` includes ceil mode's padding."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    before: list[int]
    after: list[int]
    pads: list[int]
    """The padding after each axis given in the file."""
    sizes: list[int]
    """The spatial sizes of the result."""

    @classmethod
    def of(cls, call: Call) -> _Windows:
        """Return the windows of a node; raise OnnxError if they do not fit the input."""
        count = len(call.x.shape) - 2
        kernel = call.listed("kernel_shape")
        if count < 1 or kernel is None or len(kernel) != count:
            raise call.refuse(
                f"kernel_shape must have one size for each spatial axis of (N, C, ...), got "
                f"{kernel} for shape {call.x.shape}"
            )
        kernel = spatial(call, "kernel_shape", 1, count)
        stride, dilation = (spatial(call, name, 1, count) for name in ("strides", "dilations"))
        reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
        before, pads = window_pads(call, call.x, reach, stride)
        if any(max(b, a) >= r for b, a, r in zip(before, pads, reach, strict=True)):
            raise call.refuse(f"pads must be less than the window {reach}, got {before}, {pads}")
        sizes, after = [], []
        for size, b, a, r, s in zip(call.x.shape[2:], before, pads, reach, stride, strict=True):
            steps = (size + b + a - r) / s
            n = math.ceil(steps) if call.flag("ceil_mode") else math.floor(steps)
            if n * s >= size + b:  # a window must not start outside the image
                n -= 1
            if n < 0:
                raise call.refuse(f"the window {reach} is larger than the input {call.x.shape}")
            sizes.append(n + 1)
            after.append(max(n * s + r - size - b, 0))
        call.sized((*call.x.shape[:2], *sizes))
        return cls(kernel, stride, dilation, before, after, pads, sizes)

    @property
    def native(self) -> bool:
        """Return True if needle's own pooling supports these windows."""
        fits = all(2 * b <= k for b, k in zip(self.before, self.kernel, strict=True))
        plain = len(self.kernel) == 2 and set(self.dilation) == {1}
        return plain and fits and self.before == self.after == self.pads

    @property
    def pairs(self) -> tuple[Any, Any, Any]:
        """The sizes as arguments of needle's own pooling."""
        return tuple(self.kernel), tuple(self.stride), tuple(self.before)

    def shifts(self, call: Call, x: Tensor, value: Any) -> list[Tensor]:
        """Return, for each offset in a window, that element of every window."""
        x = pad(call, x, [0, 0, *self.before, 0, 0, *self.after], value)
        shifts = []
        for offset in product(*map(range, self.kernel)):
            index = [slice(None), slice(None)]
            for o, d, s, n in zip(offset, self.dilation, self.stride, self.sizes, strict=True):
                index.append(slice(o * d, o * d + (n - 1) * s + 1, s))
            shifts.append(x[tuple(index)])
        return shifts


@operator("MaxPool")
def _max_pool(call: Call) -> Any:
    """Return the largest element of each window, and its position if that output is read."""
    windows, dtype = _Windows.of(call), np.dtype(call.x.dtype)
    least = -math.inf if dtype.kind == "f" else np.iinfo(dtype).min
    if windows.native and dtype.kind == "f":
        largest = ops.max_pool2d(call.x, *windows.pairs)
    else:
        largest = reduce(ops.maximum, windows.shifts(call, call.x, least))
    return largest if call.outputs == 1 else (largest, _positions(call, windows, least))


def _positions(call: Call, windows: _Windows, least: Any) -> Any:
    """Return the flat positions of the largest elements in row-major or column-major order."""
    order = "F" if call.flag("storage_order") else "C"
    n, c, *sizes = call.x.shape
    area = math.prod(sizes)
    one = np.arange(area).reshape(sizes, order=order)  # type: ignore[call-overload]
    flat = one + np.arange(n * c).reshape(n, c, *[1] * len(sizes)) * area
    values = [each.numpy() for each in windows.shifts(call, call.x, least)]
    places = [each.numpy() for each in windows.shifts(call, call.constant(flat), -1)]
    best, found = values[0], places[0]
    for value, place in zip(values[1:], places[1:], strict=True):
        better = ((value > best) | (found < 0)) & (place >= 0)
        best, found = np.where(better, value, best), np.where(better, place, found)
    return found.astype(np.int64)


@operator("AveragePool")
def _average_pool(call: Call) -> Tensor:
    """Return the mean of each window; padding counts if ``count_include_pad``."""
    windows, include = _Windows.of(call), call.flag("count_include_pad")
    if windows.native and (include or not any(windows.before)):
        return ops.avg_pool2d(call.x, *windows.pairs)
    total = reduce(ops.add, windows.shifts(call, call.x, 0.0))
    ones = call.constant(np.ones((1, 1, *call.x.shape[2:])), call.x.dtype)
    if include:  # elements that ceil_mode adds beyond the padding are never averaged
        ones = pad(call, ones, [0, 0, *windows.before, 0, 0, *windows.pads], 1.0)
        rest = [a - p for a, p in zip(windows.after, windows.pads, strict=True)]
        inner = replace(windows, before=[0] * len(rest), after=[max(r, 0) for r in rest])
        counts = inner.shifts(call, ones, 0.0)
    else:
        counts = windows.shifts(call, ones, 0.0)
    return total / reduce(ops.add, counts)


@operator("LpPool")
def _lp_pool(call: Call) -> Any:
    """Return (sum of |x| ** p) ** (1/p) of each window."""
    p = call.get("p", 2)
    if p < 1:
        raise call.refuse(f"p must be 1 or more, got {p}")
    parts = _Windows.of(call).shifts(call, ops.abs(call.x) ** p, 0.0)
    return reduce(ops.add, parts) ** (1 / p)


@operator("GlobalAveragePool", "GlobalMaxPool")
def _global(call: Call) -> Tensor:
    if len(call.x.shape) < 3:
        raise call.refuse(f"the input must be (N, C, ...), got shape {call.x.shape}")
    reduction = ops.max if call.kind == "GlobalMaxPool" else ops.mean
    return reduction(call.x, axes=tuple(range(2, len(call.x.shape))), keepdims=True)
