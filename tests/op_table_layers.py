"""Rows of the op table for composite ops: norms, convolutions of signals, resampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, ShapeError, UnknownNameError
from tests.nn_oracles import adjoint, conv2d
from tests.op_row import Failure, OpRow, normal, refused


def grouped(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    rows = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    y = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + eps)
    along = (-1, *[1] * (x.ndim - 2))
    return y.reshape(x.shape) * weight.reshape(along) + bias.reshape(along)


def root_mean_square(x: Any, weight: Any, eps: float) -> Any:
    axes = tuple(range(-weight.ndim, 0))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + eps) * weight


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    axes = tuple(range(-weight.ndim, 0))
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps) * (
        weight
    ) + bias


NORMALIZATION = [
    OpRow(
        "layer_norm",
        lambda x, w, b: ops.layer_norm(x, w, b, eps=1e-2),
        lambda x, w, b: layer_norm(x, w, b, 1e-2),
        normal((3, 2, 4), (2, 4), (2, 4)),
        "two axes",
        resize=False,
    ),
    OpRow(
        "layer_norm",
        lambda x: ops.layer_norm(x, normalized_shape=4),
        lambda x: layer_norm(x, np.ones(4), 0.0, 1e-5),
        normal((3, 4)),
        "without weight",
    ),
    OpRow(
        "layer_norm",
        lambda x, b: ops.layer_norm(x, bias=b),
        lambda x, b: layer_norm(x, np.ones(4), b, 1e-5),
        normal((4,), (4,)),
        "of a vector",
        resize=False,
        failures=(refused(ops.layer_norm, "layer_norm: normalized_shape, weight and bias", ()),),
    ),
    *[
        OpRow(
            "group_norm",
            lambda x, w, b, g=groups: ops.group_norm(x, g, w, b, eps=1e-2),
            lambda x, w, b, g=groups: grouped(x, g, w, b, 1e-2),
            normal(shape, shape[1:2], shape[1:2]),
            f"{groups} groups",
            resize=False,
            failures=(
                refused(
                    lambda x: ops.group_norm(x, 2),
                    "group_norm: input must be (N, C, ...) and the number of groups must divide C, "
                    "got shape (2, 3) and 2 groups",
                    (2, 3),
                ),
                refused(
                    lambda x, w: ops.group_norm(x, 1, w),
                    "group_norm: weight and bias must have shape (3,), one value per channel, got",
                    (2, 3),
                    (2,),
                ),
            ),
        )
        for shape, groups in (((3, 4, 2, 3), 2), ((2, 6), 3), ((0, 4, 5), 2))
    ],
    OpRow(
        "instance_norm",
        lambda x, w, b: ops.instance_norm(x, w, b, eps=1e-2),
        lambda x, w, b: grouped(x, 4, w, b, 1e-2),
        normal((3, 4, 2, 3), (4,), (4,)),
        resize=False,
        failures=(refused(ops.instance_norm, "instance_norm: input must be (N, C, ...)", (3,)),),
    ),
    *[
        OpRow(
            "rms_norm",
            lambda x, w: ops.rms_norm(x, w, eps=1e-2),
            lambda x, w: root_mean_square(x, w, 1e-2),
            normal(shape, width),
            f"{len(width)} axes of {len(shape)}",
            resize=False,
            failures=(
                refused(ops.rms_norm, "rms_norm: normalized_shape, weight and", (2, 3), (2,)),
            ),
        )
        for shape, width in (((4, 5), (5,)), ((3, 2, 4), (2, 4)), ((0, 3), (3,)))
    ],
    OpRow(
        "rms_norm",
        ops.rms_norm,
        lambda x: root_mean_square(x, np.ones(4), np.finfo("float64").eps),
        normal((3, 4)),
        "without weight",
        rtol=1e-5,
    ),
]


def transposed(x: Any, weight: Any, bias: Any, more: Any, groups: int = 1, **options: Any) -> Any:
    """Return the adjoint of conv2d; the output is ``more`` larger than the smallest size."""
    step, pad, spread = (options[name] for name in ("stride", "padding", "dilation"))
    size = [
        (x.shape[2 + i] - 1) * step[i] - 2 * pad[i] + spread[i] * (weight.shape[2 + i] - 1) + 1
        for i in (0, 1)
    ]
    shape = (x.shape[0], weight.shape[1] * groups, size[0] + more[0], size[1] + more[1])
    y = adjoint(lambda v: conv2d(v, weight, groups=groups, **options), shape, x)
    return y + bias[:, None, None]


UNEVEN = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
ACROSS = {"stride": (1, 2), "padding": (0, 1), "dilation": (1, 2)}

CONVOLUTION = [
    OpRow(
        "conv_transpose2d",
        lambda x, w, b: ops.conv_transpose2d(x, w, b, output_padding=(1, 0), **UNEVEN),
        lambda x, w, b: transposed(x, w, b, (1, 0), **UNEVEN),
        normal((2, 4, 2, 3), (4, 1, 3, 2), (2,)),
        resize=False,
        failures=(
            refused(ops.conv_transpose2d, "conv_transpose2d: the input must be", (3, 4), (4, 3)),
            refused(
                ops.conv_transpose2d,
                "conv_transpose2d: the weight's first axis must be the input's channels, and "
                "groups must divide it, got 2 for 3 channels with groups=1",
                (1, 3, 4, 4),
                (2, 3, 2, 2),
            ),
            refused(
                lambda x, w: ops.conv_transpose2d(x, w, output_padding=1),
                "conv_transpose2d: output_padding must be at least 0 and less than stride or dil",
                (1, 1, 4, 4),
                (1, 1, 2, 2),
            ),
            refused(
                lambda x, w: ops.conv_transpose2d(x, w, padding=3),
                "conv_transpose2d: the output must have at least one element per axis, got size "
                "(-1, -1)",
                (1, 1, 4, 4),
                (1, 1, 2, 2),
            ),
            refused(
                ops.conv_transpose2d,
                "conv_transpose2d: bias must have shape (3,), one value per output channel, got",
                (1, 1, 4, 4),
                (1, 3, 2, 2),
                (2,),
            ),
        ),
    ),
    OpRow(
        "conv_transpose1d",
        lambda x, w, b: ops.conv_transpose1d(x, w, b, 2, 1, 1, dilation=2),
        lambda x, w, b: transposed(x[:, :, None], w[:, :, None], b, (0, 1), **ACROSS)[:, :, 0],
        normal((2, 3, 4), (3, 2, 2), (2,)),
        resize=False,
        failures=(
            refused(
                ops.conv_transpose1d,
                "conv_transpose1d: input and weight must have 3 axes, got",
                (3, 4),
                (4, 3),
            ),
        ),
    ),
    OpRow(
        "conv1d",
        lambda x, w, b: ops.conv1d(x, w, b, 2, 1, 2, 2),
        lambda x, w, b: conv2d(x[:, :, None], w[:, :, None], b, groups=2, **ACROSS)[:, :, 0],
        normal((2, 4, 6), (2, 2, 3), (2,)),
        resize=False,
        failures=(
            refused(
                ops.conv1d,
                "conv1d: input and weight must have 3 axes, got shape (3, 4)",
                (3, 4),
                (4, 3),
            ),
            refused(
                lambda x, w: ops.conv1d(x, w, stride=(1, 2)),
                "conv1d: stride must be an int or one int, got (1, 2)",
                (1, 1, 3),
                (1, 1, 3),
            ),
        ),
    ),
]


def linear(x: Any, count: int, axis: int, align_corners: bool = False) -> Any:
    """Return x resampled along an axis by np.interp."""
    size = x.shape[axis]
    if align_corners:
        place = np.linspace(0, size - 1, count)
    else:
        place = (np.arange(count) + 0.5) * size / count - 0.5
    weights = np.array([np.interp(place, np.arange(size), one) for one in np.eye(size)])
    return np.moveaxis(np.moveaxis(x, axis, -1) @ weights, -1, axis)


def cubic(x: Any, count: int, axis: int) -> Any:
    """Return x resampled along an axis by Keys' kernel with a = -0.75 and repeated edges."""
    size = x.shape[axis]
    wide = np.pad(x, [(9, 9) if i == axis else (0, 0) for i in range(x.ndim)], mode="edge")
    place = (np.arange(count) + 0.5) * size / count - 0.5
    d = np.abs(place[:, None] - np.arange(-9, size + 9))
    near, far = 1.25 * d**3 - 2.25 * d**2 + 1, -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
    weights = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return np.moveaxis(np.moveaxis(wide, axis, -1) @ weights.T, -1, axis)


def resampling(case: str, shape: Any, oracle: Any, failures: Any = (), **options: Any) -> OpRow:
    return OpRow(
        "interpolate",
        lambda x: ops.interpolate(x, **options),
        oracle,
        normal(shape),
        case,
        failures=failures,
    )


def interpolation_refused(error: type[Exception], message: str, **options: Any) -> Failure:
    return refused(
        lambda a: ops.interpolate(a, **options),
        f"interpolate: {message}",
        (1, 2, 3, 3),
        error=error,
    )


INTERPOLATION = [
    resampling(
        "nearest",
        (2, 3, 2, 4),
        lambda x: x.repeat(3, 2).repeat(2, 3),
        (
            interpolation_refused(UnknownNameError, "mode must be one of nearest", mode="lanczos"),
            interpolation_refused(ShapeError, "mode 'linear' takes (N, C, L)", mode="linear"),
            interpolation_refused(ValueError, "exactly one of size and scale_factor must be given"),
            interpolation_refused(ValueError, "exactly one of", size=3, scale_factor=2),
            interpolation_refused(
                ValueError,
                "align_corners is for linear and cubic modes",
                size=3,
                align_corners=True,
            ),
            interpolation_refused(ShapeError, "size or scale_factor must be one", size=(3, 3, 3)),
            interpolation_refused(ShapeError, "size or scale_factor must be one", scale_factor=0),
            interpolation_refused(
                ShapeError, "the output must not be empty, got sizes (0, 0)", scale_factor=0.1
            ),
        ),
        scale_factor=(3, 2),
    ),
    resampling("nearest, smaller", (2, 3, 5), lambda x: x[:, :, [0, 1, 3]], size=3),
    resampling(
        "nearest-exact", (2, 3, 4), lambda x: x[:, :, [0, 2, 3]], size=3, mode="nearest-exact"
    ),
    resampling("linear", (2, 3, 4), lambda x: linear(x, 7, 2), size=7, mode="linear"),
    *[
        resampling(
            f"bilinear, align_corners {corners}",
            (2, 3, 3, 5),
            lambda x, c=corners: linear(linear(x, 6, 2, c), 4, 3, c),
            size=(6, 4),
            mode="bilinear",
            align_corners=corners,
        )
        for corners in (False, True)
    ],
    resampling(
        "cubic",
        (2, 2, 3, 4),
        lambda x: cubic(cubic(x, 6, 2), 3, 3),
        size=(6, 3),
        mode="bicubic",
    ),
    resampling(
        "area",
        (2, 2, 4, 6),
        lambda x: x.reshape(*x.shape[:2], 2, 2, 3, 2).mean((3, 5)),
        size=(2, 3),
        mode="area",
    ),
]


def attention(q: Any, k: Any, v: Any, seen: Any = True, added: Any = 0.0, scale: Any = None) -> Any:
    logits = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + added
    weights = np.where(seen, np.exp(logits - logits.max(-1, keepdims=True)), 0.0)
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300) @ v


HEADS = ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2))
SEEN = np.random.default_rng(2).random((4, 6)) < 0.6
SEEN[1] = False  # a query without any visible key

ATTENTION = [
    OpRow(
        "scaled_dot_product_attention",
        ops.scaled_dot_product_attention,
        attention,
        normal(*HEADS),
        failures=(
            refused(
                lambda q, k: ops.scaled_dot_product_attention(q, k, k),
                "scaled_dot_product_attention: query and key must be (..., L, E) and (..., S, E)",
                (2, 3),
                (2, 4),
            ),
            refused(
                lambda q, m: ops.scaled_dot_product_attention(q, q, q, m),
                "scaled_dot_product_attention: attn_mask must broadcast to (2, 2), got (4, 2, 2)",
                (2, 3),
                (4, 2, 2),
            ),
            Failure(
                lambda t: ops.scaled_dot_product_attention(
                    *[t(np.zeros((2, 2)))] * 3, t(np.zeros((2, 2), "int64"))
                ),
                DTypeError,
                "scaled_dot_product_attention: attn_mask must be bool or floating, got int64",
            ),
        ),
    ),
    OpRow(
        "scaled_dot_product_attention",
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, SEEN, scale=0.7),
        lambda q, k, v: attention(q, k, v, SEEN, scale=0.7),
        normal(*HEADS),
        "bool mask",
    ),
    OpRow(
        "scaled_dot_product_attention",
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, SEEN, is_causal=True),
        lambda q, k, v: attention(q, k, v, SEEN & np.tri(4, 6, dtype=bool)),
        normal(*HEADS),
        "causal, bool mask",
    ),
    OpRow(
        "scaled_dot_product_attention",
        ops.scaled_dot_product_attention,
        lambda q, k, v, m: attention(q, k, v, added=m),
        normal(*HEADS, (4, 6)),
        "added mask",
        resize=False,
    ),
]

FAR = 9


def sampled(x: Any, grid: Any, mode: str, padding: str, align_corners: bool) -> Any:
    """Return x at the places of a grid, read from an image with FAR pixels more on each side."""
    mirror = "reflect" if align_corners else "symmetric"
    how: Any = {"zeros": "constant", "border": "edge", "reflection": mirror}[padding]
    wide = np.pad(x, [(0, 0), (0, 0), (FAR, FAR), (FAR, FAR)], mode=how)
    out = np.zeros((*x.shape[:2], *grid.shape[1:3]))
    for n, i, j in np.ndindex(*grid.shape[:3]):
        row, column = (
            FAR + ((g + 1) * (size - 1) if align_corners else (g + 1) * size - 1) / 2
            for g, size in zip(grid[n, i, j, ::-1], x.shape[2:])
        )
        for r, c in np.ndindex(*wide.shape[2:]):
            if mode == "nearest":
                weight = float((r, c) == (np.round(row), np.round(column)))
            else:
                weight = max(1 - abs(r - row), 0) * max(1 - abs(c - column), 0)
            out[n, :, i, j] += wide[n, :, r, c] * weight
    return out


def grid_refused(message: str, error: type[Exception], *shapes: Any, **options: Any) -> Failure:
    return refused(
        lambda x, g: ops.grid_sample(x, g, **options),
        f"grid_sample: {message}",
        *(shapes or ((1, 2, 3, 3), (1, 4, 4, 2))),
        error=error,
    )


SAMPLING = [
    OpRow(
        "grid_sample",
        lambda x, g, o=(mode, padding, align): ops.grid_sample(x, g, *o),
        lambda x, g, o=(mode, padding, align): sampled(x, g, *o),
        lambda r: (r.standard_normal((2, 2, 4, 3)), r.uniform(-2.5, 2.5, (2, 3, 4, 2))),
        f"{mode} {padding} {align}",
        failures=(
            grid_refused("mode must be one of", UnknownNameError, mode="bicubic"),
            grid_refused("padding_mode must be one of", UnknownNameError, padding_mode="wrap"),
            grid_refused("x must be (N, C, H, W)", ShapeError, (1, 2, 3, 3), (1, 4, 4, 3)),
            grid_refused("x must be (N, C, H, W)", ShapeError, (1, 2, 3, 3), (2, 4, 4, 2)),
            grid_refused("x must be (N, C, H, W)", ShapeError, (1, 2, 0, 3), (1, 4, 4, 2)),
        ),
    )
    for mode in ("bilinear", "nearest")
    for padding in ("zeros", "border", "reflection")
    for align in (False, True)
]

LAYER_ROWS = [*NORMALIZATION, *CONVOLUTION, *INTERPOLATION, *SAMPLING, *ATTENTION]
