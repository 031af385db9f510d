"""Resize, one axis at a time, as a gather (nearest) or a product with a matrix of weights.

The formulas are those of ONNX's specification of Resize; cubic interpolation follows Keys 1981.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator

Array = NumpyArray[Any]
COORDINATES = (
    *("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    *("half_pixel_symmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"),
)
ROUNDING: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@operator("Resize")
def _resize(call: Call) -> Tensor:
    x, ndim = call.x, len(call.x.shape)
    if call.opset < 11:
        raise call.refuse("opset 11 or later is required; convert the model")
    mode = call.choice("mode", "nearest", "linear", "cubic")
    coordinates = call.choice("coordinate_transformation_mode", *COORDINATES)
    rounding = ROUNDING[call.choice("nearest_mode", *ROUNDING)]
    axes = call.axes(call.listed("axes") or range(ndim))
    scales, sizes = _targets(call, axes)
    call.sized([*(n for i, n in enumerate(x.shape) if i not in axes), *sizes])
    region = _region(call, axes) if coordinates == "tf_crop_and_resize" else None
    for i, axis in enumerate(axes):
        size, target = x.shape[axis], sizes[i]
        part = None if region is None else (region[i], region[len(axes) + i])
        if target == size and scales[i] == 1.0 and part is None:
            continue
        if not size:
            raise call.refuse(f"an axis of size 0 cannot be resized to {target}")
        at = _places(coordinates, size, target, scales[i], part)
        if mode == "nearest":
            picked = np.clip(rounding(at), 0, size - 1).astype(np.int64)
            before: tuple[Any, ...] = (slice(None),) * axis
            x = x[(*before, picked)]
        else:
            call.sized((size, target))
            x = _weighted(call, x, axis, _weights(call, mode, at, size, scales[i]))
        if part is not None:
            x = _outside(call, x, axis, (at < 0) | (at > size - 1))
    return x


@operator("GridSample")
def _grid_sample(call: Call) -> Tensor:
    mode = call.choice("mode", "bilinear", "linear", "nearest")
    padding = call.choice("padding_mode", "zeros", "border", "reflection")
    name = "nearest" if mode == "nearest" else "bilinear"
    return ops.grid_sample(call.x, call.tensor(1), name, padding, call.flag("align_corners"))


def _targets(call: Call, axes: tuple[int, ...]) -> tuple[list[float], list[int]]:
    """Return the scale and the new size of each axis."""
    own = [call.x.shape[axis] for axis in axes]
    given, sizes = call.numbers(2), call.integers(3)
    scales = [] if given is None else [float(each) for each in given.reshape(-1)]
    if sizes:
        if len(sizes) != len(own):
            raise call.refuse(f"sizes must name {len(own)} axes, got {sizes}")
        scales = [target / max(size, 1) for target, size in zip(sizes, own, strict=True)]
        policy = call.choice("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller")
        if policy != "stretch":
            scale = min(scales) if policy == "not_larger" else max(scales)
            scales = [scale] * len(own)
            sizes = [math.floor(size * scale + 0.5) for size in own]
        return scales, sizes
    if len(scales) != len(own) or not all(0 < s < math.inf for s in scales):
        raise call.refuse(f"scales must be {len(own)} positive numbers, got {scales}")
    return scales, [math.floor(size * s) for size, s in zip(own, scales, strict=True)]


def _region(call: Call, axes: tuple[int, ...]) -> list[float]:
    region = call.array(1).reshape(-1)
    if region.size != 2 * len(axes):
        raise call.refuse(f"roi must be two numbers for each axis, got {region.size}")
    return [float(each) for each in region]


def _places(mode: str, size: int, target: int, scale: float, part: Any) -> Array:
    """Return the coordinate of each new element in the old axis."""
    i = np.arange(target, dtype=np.float64)
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if mode == "align_corners":
        exact = target if abs(scale * size - target) < 1e-6 * target else scale * size
        step = (size - 1) / (exact - 1) if exact != 1 else 0.0
        return i * step
    if mode == "pytorch_half_pixel" and target <= 1:
        return np.zeros(target)
    if mode == "tf_crop_and_resize":
        start, end = part
        if target <= 1:
            return np.full(target, 0.5 * (start + end) * (size - 1))
        step = (end - start) * (size - 1) / (target - 1)
        return np.asarray(start * (size - 1) + i * step)
    at = (i + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        at += size / 2 * (1 - target / (scale * size))
    return at


def _weights(call: Call, mode: str, at: Array, size: int, scale: float) -> Array:
    """Return the interpolation matrix (new size, size); each row sums to 1."""
    a = call.get("cubic_coeff_a", -0.75)
    reach, kernel = (1, _triangle) if mode == "linear" else (2, lambda d: _cubic(d, a))
    shrink = min(scale, 1.0) if call.flag("antialias") else 1.0
    span = math.ceil(reach / shrink)
    first = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - span, span + 1)
    weight = kernel((first - at[:, None]) * shrink)
    if call.flag("exclude_outside"):
        weight = np.where((first < 0) | (first >= size), 0.0, weight)
    weight /= weight.sum(axis=1, keepdims=True)
    matrix = np.zeros((at.size, size))
    rows = np.broadcast_to(np.arange(at.size)[:, None], first.shape)
    np.add.at(matrix, (rows, np.clip(first, 0, size - 1)), weight)
    return matrix


def _triangle(distance: Array) -> Array:
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _weighted(call: Call, x: Tensor, axis: int, matrix: Array) -> Tensor:
    """Return x with an axis multiplied by a matrix (new size, size)."""
    product = ops.matmul(ops.transpose(x, (axis, -1)), call.constant(matrix.T, x.dtype))
    return ops.transpose(product, (axis, -1))


def _outside(call: Call, x: Tensor, axis: int, outside: Array) -> Tensor:
    """Return x with the extrapolation value at coordinates outside the input."""
    mask = outside.reshape([-1 if i == axis else 1 for i in range(len(x.shape))])
    value = call.constant([call.get("extrapolation_value", 0.0)], x.dtype)
    return ops.where(call.constant(mask), value, x)
