"""Rows of the op table for what layers compose: group norm and its like."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from tests.op_row import OpRow, normal
from tests.op_table_nn import refused


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
                    "group_norm: weight and bias must have shape (3,), one value a channel, got",
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

LAYER_ROWS = [*NORMALIZATION]
