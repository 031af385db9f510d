"""Rows of the op table for composite ops: norms, 1-D convolutions, resampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, ShapeError, UnknownNameError
from tests.nn_oracles import adjoint, conv2d
from tests.op_row import OpRow, alike, called, normal, refused, wrong


def standardised(x: Any, axes: Any, eps: float) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def grouped(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    y = standardised(x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups), -1, eps)
    along = (-1, *[1] * (x.ndim - 2))
    return y.reshape(x.shape) * weight.reshape(along) + bias.reshape(along)


def root_mean_square(x: Any, weight: Any, eps: float) -> Any:
    axes = tuple(range(-weight.ndim, 0))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + eps) * weight


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return standardised(x, tuple(range(-weight.ndim, 0)), eps) * weight + bias


EPS = {"eps": 1e-2}
NORMALIZATION = [
    called(
        "layer_norm",
        lambda x, w, b: layer_norm(x, w, b, 1e-2),
        normal((3, 2, 4), (2, 4), (2, 4)),
        options=EPS,
        case="two axes",
        resize=False,
    ),
    called(
        "layer_norm",
        lambda x: layer_norm(x, np.ones(4), 0.0, 1e-5),
        normal((3, 4)),
        options={"normalized_shape": 4},
        case="without weight",
    ),
    OpRow(
        "layer_norm",
        lambda x, b: ops.layer_norm(x, bias=b),
        lambda x, b: layer_norm(x, np.ones(4), b, 1e-5),
        normal((4,), (4,)),
        "of a vector",
        resize=False,
    ),
    *[
        OpRow(
            "group_norm",
            lambda x, w, b, g=groups: ops.group_norm(x, g, w, b, eps=1e-2),
            lambda x, w, b, g=groups: grouped(x, g, w, b, 1e-2),
            normal(shape, shape[1:2], shape[1:2]),
            f"{groups} groups",
            resize=False,
        )
        for shape, groups in (((3, 4, 2, 3), 2), ((2, 6), 3), ((0, 4, 5), 2))
    ],
    called(
        "instance_norm",
        lambda x, w, b: grouped(x, 4, w, b, 1e-2),
        normal((3, 4, 2, 3), (4,), (4,)),
        options=EPS,
        resize=False,
    ),
    *[
        called(
            "rms_norm",
            lambda x, w: root_mean_square(x, w, 1e-2),
            normal(shape, width),
            options=EPS,
            case=f"{len(width)} axes of {len(shape)}",
            resize=False,
        )
        for shape, width in (((4, 5), (5,)), ((3, 2, 4), (2, 4)), ((0, 3), (3,)))
    ],
    called(
        "rms_norm",
        lambda x: root_mean_square(x, np.ones(4), np.finfo("float64").eps),
        normal((3, 4)),
        case="without weight",
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
    called(
        "conv_transpose2d",
        lambda x, w, b: transposed(x, w, b, (1, 0), **UNEVEN),
        normal((2, 4, 2, 3), (4, 1, 3, 2), (2,)),
        options={"output_padding": (1, 0), **UNEVEN},
        resize=False,
    ),
    called(
        "conv_transpose1d",
        lambda x, w, b: transposed(x[:, :, None], w[:, :, None], b, (0, 1), **ACROSS)[:, :, 0],
        normal((2, 3, 4), (3, 2, 2), (2,)),
        *(2, 1, 1),
        options={"dilation": 2},
        resize=False,
    ),
    called(
        "conv1d",
        lambda x, w, b: conv2d(x[:, :, None], w[:, :, None], b, groups=2, **ACROSS)[:, :, 0],
        normal((2, 4, 6), (2, 2, 3), (2,)),
        *(2, 1, 2, 2),
        resize=False,
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


def resampling(case: str, shape: Any, oracle: Any, **options: Any) -> OpRow:
    return called("interpolate", oracle, normal(shape), options=options, case=case)


INTERPOLATION = [
    resampling("nearest", (2, 3, 2, 4), lambda x: x.repeat(3, 2).repeat(2, 3), scale_factor=(3, 2)),
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
    *[
        called(
            "scaled_dot_product_attention",
            lambda *a, o=oracle_options: attention(*a, **o),
            normal(*HEADS),
            options=options,
            case=case,
        )
        for case, options, oracle_options in (
            ("", {}, {}),
            ("bool mask", {"attn_mask": SEEN, "scale": 0.7}, {"seen": SEEN, "scale": 0.7}),
            (
                "causal, bool mask",
                {"attn_mask": SEEN, "is_causal": True},
                {"seen": SEEN & np.tri(4, 6, dtype=bool)},
            ),
        )
    ],
    called(
        "scaled_dot_product_attention",
        lambda q, k, v, m: attention(q, k, v, added=m),
        normal(*HEADS, (4, 6)),
        case="added mask",
        resize=False,
    ),
]

FAR = 9


def sampled(x: Any, grid: Any, mode: str, padding: str, align_corners: bool) -> Any:
    """Return x sampled at the positions of a grid, from an image extended by FAR on each side."""
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


SAMPLING = [
    alike(
        "grid_sample",
        sampled,
        lambda r: (r.standard_normal((2, 2, 4, 3)), r.uniform(-2.5, 2.5, (2, 3, 4, 2))),
        *(mode, padding, align),
        case=f"{mode} {padding} {align}",
    )
    for mode in ("bilinear", "nearest")
    for padding in ("zeros", "border", "reflection")
    for align in (False, True)
]

LAYER_ROWS = [*NORMALIZATION, *CONVOLUTION, *INTERPOLATION, *SAMPLING, *ATTENTION]

IMAGE, GRID = (1, 2, 3, 3), (1, 4, 4, 2)
PIXELS, KERNEL = (1, 1, 4, 4), (1, 1, 2, 2)
LAYER_FAILURES = [
    wrong("layer_norm", "normalized_shape, weight and bias", on=((),)),
    wrong(
        "group_norm",
        "input must be (N, C, ...) and the number of groups must divide C, got shape (2, 3) and 2 "
        "groups",
        2,
        on=((2, 3),),
    ),
    refused(
        lambda x, w: ops.group_norm(x, 1, w),
        "group_norm: weight and bias must have shape (3,), one value per channel, got",
        (2, 3),
        (2,),
    ),
    wrong("instance_norm", "input must be (N, C, ...)", on=((3,),)),
    wrong("rms_norm", "normalized_shape, weight and", on=((2, 3), (2,))),
    wrong("conv_transpose2d", "the input must be", on=((3, 4), (4, 3))),
    wrong(
        "conv_transpose2d",
        "the weight's first axis must be the input's channels, and groups must divide it, got 2 "
        "for 3 channels with groups=1",
        on=((1, 3, 4, 4), (2, 3, 2, 2)),
    ),
    wrong(
        "conv_transpose2d",
        "output_padding must be at least 0 and less than stride or dil",
        on=(PIXELS, KERNEL),
        output_padding=1,
    ),
    wrong(
        "conv_transpose2d",
        "the output must have at least one element per axis, got size (-1, -1)",
        on=(PIXELS, KERNEL),
        padding=3,
    ),
    wrong(
        "conv_transpose2d",
        "bias must have shape (3,), one value per output channel, got",
        on=(PIXELS, (1, 3, 2, 2), (2,)),
    ),
    *[
        wrong(name, "the input (N, C, L) must have 3 axes", on=((3, 4), (4, 3)))
        for name in ("conv_transpose1d", "conv1d")
    ],
    wrong(
        "conv1d",
        "stride must be an int or a sequence of one int, got (1, 2)",
        on=((1, 1, 3), (1, 1, 3)),
        stride=(1, 2),
    ),
    *[
        wrong("interpolate", message, on=(IMAGE,), error=error, **options)
        for message, error, options in (
            ("mode must be 'nearest', ", UnknownNameError, {"mode": "lanczos"}),
            ("mode 'linear' takes (N, C, L)", ShapeError, {"mode": "linear"}),
            ("exactly one of size and scale_factor must be given", ValueError, {}),
            ("exactly one of", ValueError, {"size": 3, "scale_factor": 2}),
            (
                "align_corners applies only to linear and cubic modes",
                ValueError,
                {"size": 3, "align_corners": True},
            ),
            ("size or scale_factor must be one", ShapeError, {"size": (3, 3, 3)}),
            ("size or scale_factor must be one", ShapeError, {"scale_factor": 0}),
            ("the output must not be empty, got sizes (0, 0)", ShapeError, {"scale_factor": 0.1}),
        )
    ],
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
    refused(
        lambda q: ops.scaled_dot_product_attention(q, q, q, q.astype("int64")),
        "scaled_dot_product_attention: attn_mask must be bool or floating, got int64",
        (2, 2),
        error=DTypeError,
    ),
    wrong(
        "grid_sample",
        "mode must be 'bilinear' or 'nearest'",
        on=(IMAGE, GRID),
        mode="bicubic",
        error=UnknownNameError,
    ),
    wrong(
        "grid_sample",
        "padding_mode must",
        on=(IMAGE, GRID),
        padding_mode="wrap",
        error=UnknownNameError,
    ),
    *[
        wrong("grid_sample", "x must be (N, C, H, W)", on=(image, grid))
        for image, grid in (
            (IMAGE, (1, 4, 4, 3)),
            (IMAGE, (2, 4, 4, 2)),
            ((1, 2, 0, 3), GRID),
        )
    ],
]
