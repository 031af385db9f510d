"""Rows of the op table for convolution, pooling, normalisation, softmax and losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, ShapeError
from needle.shapes import Geometry
from tests.nn_oracles import (
    adaptive,
    adjoint,
    avg_pool,
    batch_statistics,
    conv2d,
    cross_entropy,
    logsumexp,
    max_pool,
    normalised,
    pair,
)
from tests.op_row import Failure, OpRow, apart, bad_axis, normal, refused


def convolution(case: str, x: Any, weight: Any, resize: bool = False, **options: Any) -> OpRow:
    return OpRow(
        "conv2d",
        lambda x, w, b: ops.conv2d(x, w, b, **options),
        lambda x, w, b: conv2d(x, w, b, **options),
        normal(x, weight, weight[:1]),
        case,
        resize=resize,
    )


UNEVEN = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
X, W, Y = (2, 4, 5, 6), (6, 2, 3, 2), (2, 6, 3, 8)


def away_from_the_kink(before: Any, *shapes: Any) -> Any:
    """Return inputs for which no element of ``before``, the argument of relu, is near 0.

    Differences are inaccurate near the kink.
    """

    def make(random: np.random.Generator) -> tuple[Any, ...]:
        for _ in range(1000):
            inputs = tuple(random.standard_normal(shape) for shape in shapes)
            if np.abs(before(*inputs)).min() > 0.02:
                return inputs
        raise AssertionError("no such inputs were drawn")

    return make


def convolution_then_relu(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    """Return relu(conv2d(...)) as the layer computes it: one op, with the weight in its layout."""
    given = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **options}
    geometry = Geometry.of("conv2d", **given)
    return ops.convolution.Conv2d(geometry, relu=True)(x, ops.permute(weight, (2, 3, 1, 0)), bias)


CONVOLUTION = [
    OpRow(
        "conv2d",
        ops.conv2d,
        conv2d,
        normal((3, 2, 5, 4), (3, 2, 3, 3)),
        failures=(
            refused(ops.conv2d, "conv2d: input and weight", (3, 4), (4, 3)),
            refused(ops.conv2d, "conv2d: input channels must be", (1, 3, 5, 5), (2, 2, 3, 3)),
            refused(ops.conv2d, "conv2d: the window must fit", (1, 2, 2, 5), (2, 2, 3, 3)),
            refused(
                ops.conv2d,
                "conv2d: bias must have shape (2,), one value per output channel, got",
                (1, 1, 3, 3),
                (2, 1, 3, 3),
                (3,),
            ),
            refused(
                lambda x, w: ops.conv2d(x, w, stride=0),
                "conv2d: kernel, stride and dilation must",
                (1, 1, 3, 3),
                (1, 1, 3, 3),
            ),
            refused(
                lambda x, w: ops.conv2d(x, w, stride=(1, 2, 3)),
                "stride must be an int or two",
                (1, 1, 3, 3),
                (1, 1, 3, 3),
            ),
        ),
    ),
    *[
        OpRow(
            "conv2d",
            lambda x, w, b, o=options: convolution_then_relu(x, w, b, **o),
            lambda x, w, b, o=options: np.maximum(conv2d(x, w, b, **o), 0),
            away_from_the_kink(
                lambda x, w, b, o=options: conv2d(x, w, b, **o), shape, weight, weight[:1]
            ),
            f"then relu{case}",
            resize=False,
        )
        for case, shape, weight, options in (
            ("", (2, 2, 4, 3), (3, 2, 2, 2), {"padding": 1}),
            (", depthwise", (2, 3, 4, 5), (3, 1, 2, 2), {"groups": 3, "stride": 2}),
        )
    ],
    convolution("bias", (3, 2, 5, 4), (3, 2, 3, 3), resize=True, stride=2, padding=1),
    convolution("pointwise", (2, 3, 4, 3), (4, 3, 1, 1)),
    convolution("uneven", X, W, **UNEVEN),
    convolution("depthwise", (2, 3, 4, 5), (3, 1, 2, 2), groups=3, padding=1),
    convolution("remainder", (1, 2, 8, 9), (2, 2, 3, 2), stride=4),
    convolution("no images", (0, 2, 4, 4), (3, 2, 3, 3), padding=1),
    convolution("no channels", (2, 0, 4, 4), (3, 0, 3, 3), padding=1),
    OpRow(
        "conv2d_input_grad",
        lambda g, w: ops.conv2d_input_grad(g, w, X, **UNEVEN),
        lambda g, w: adjoint(lambda x: conv2d(x, w, **UNEVEN), X, g),
        normal(Y, W),
        resize=False,
        failures=(
            refused(
                lambda g, w: ops.conv2d_input_grad(g, w, (1, 1, 4, 4)),
                "conv2d_input_grad: grad must have the output's shape (1, 1, 2, 2), got (1, 1",
                (1, 1, 3, 3),
                (1, 1, 3, 3),
            ),
        ),
    ),
    OpRow(
        "conv2d_weight_grad",
        lambda g, x: ops.conv2d_weight_grad(g, x, W, **UNEVEN),
        lambda g, x: adjoint(lambda w: conv2d(x, w, **UNEVEN), W, g),
        normal(Y, X),
        resize=False,
        failures=(
            refused(
                lambda g, x: ops.conv2d_weight_grad(g, x, (1, 1, 3, 3)),
                "conv2d_weight_grad: grad must have the output's shape (1, 1, 2, 2), got",
                (2, 1, 2, 2),
                (1, 1, 4, 4),
            ),
        ),
    ),
    *[
        OpRow(
            "conv",
            lambda a, b, s=stride, p=padding: ops.conv(a, b, stride=s, padding=p),
            lambda a, b, s=stride, p=padding: conv2d(
                a.transpose(0, 3, 1, 2), b.transpose(3, 2, 0, 1), stride=s, padding=p
            ).transpose(0, 2, 3, 1),
            normal((2, 7, 6, 3), (kernel, kernel, 3, 4)),
            f"{kernel}x{kernel} stride {stride} padding {padding}",
            resize=False,
        )
        for kernel, stride, padding in [(1, 1, 0), (3, 1, 1), (3, 2, 1), (5, 2, 2), (3, 4, 0)]
    ],
    OpRow(
        "conv",
        ops.conv,
        lambda a, b: conv2d(a.transpose(0, 3, 1, 2), b.transpose(3, 2, 0, 1), padding=1).transpose(
            0, 2, 3, 1
        ),
        normal((2, 4, 4, 2), (3, 3, 2, 2)),
        resize=False,
        failures=(
            refused(ops.conv, "conv: input channels must be", (1, 5, 5, 3), (3, 3, 2, 2)),
            refused(
                ops.conv,
                "conv: input and weight (KH, KW, C, O)",
                (5, 3),
                (3, 3),
            ),
        ),
    ),
]


def pooling(name: str, oracle: Any, inputs: Any) -> list[OpRow]:
    call = getattr(ops, name)
    cases = [
        ("2", (2, 2, 0), (2, 3, 4, 6)),
        ("overlap", (3, 1, 1), (2, 2, 4, 5)),
        ("uneven", ((3, 2), (2, 3), (1, 0)), (2, 3, 6, 7)),
        ("gaps", (1, 3, 0), (2, 2, 7, 5)),
    ]
    failures = (
        refused(lambda x: call(x, 2), f"{name}: the input must be (N, C, H, W)", (4, 4)),
        refused(lambda x: call(x, 3), f"{name}: the window must fit", (1, 1, 2, 4)),
        refused(
            lambda x: call(x, 2, padding=2),
            f"{name}: padding must be at most half the kernel",
            (1, 1, 4, 4),
        ),
        refused(lambda x: call(x, 0), f"{name}: kernel, stride and dil", (1, 1, 4, 4)),
    )
    return [
        OpRow(
            name,
            lambda x, w=windows: call(x, *w),
            lambda x, w=windows: oracle(x, *w),
            inputs(shape),
            case,
            failures=failures if case == "2" else (),
        )
        for case, windows, shape in cases
    ]


POOLING = [
    *pooling("max_pool2d", max_pool, apart),
    *pooling("avg_pool2d", avg_pool, normal),
    *[
        OpRow(
            "adaptive_avg_pool2d",
            lambda x, s=size: ops.adaptive_avg_pool2d(x, s),
            lambda x, s=size: adaptive(x, *pair(s)),
            normal((2, 3, 6, 4)),
            str(size),
            failures=(
                refused(
                    lambda x: ops.adaptive_avg_pool2d(x, 0),
                    "adaptive_avg_pool2d: sizes must be at least 1, got output_size (0, 0)",
                    (1, 1, 4, 4),
                ),
                refused(
                    lambda x: ops.adaptive_avg_pool2d(x, 1),
                    "adaptive_avg_pool2d: the input must be (N, C, H, W)",
                    (4, 4),
                ),
            ),
        )
        for size in (1, (3, 2), (4, 3), (7, 4))
    ],
]


def batch_norm_added(x: Any, weight: Any, bias: Any, added: Any = 0.0) -> Any:
    axes, along = (0, *range(2, x.ndim)), (1, -1) + (1,) * (x.ndim - 2)
    return normalised(x, weight, bias, axes, along, 1e-2) + added


NORMALIZATION = [
    *[
        OpRow(
            "batch_norm",
            lambda x, w, b: ops.batch_norm(x, w, b, eps=1e-2)[0],
            lambda x, w, b: normalised(
                x, w, b, (0, *range(2, x.ndim)), (1, -1) + (1,) * (x.ndim - 2), 1e-2
            ),
            normal(shape, shape[1:2], shape[1:2]),
            f"{len(shape)}-d",
            resize=False,
            failures=(
                refused(
                    ops.batch_norm,
                    "batch_norm: input must have at least 2 axes, and weight and bias the "
                    "size of its second axis, got input (2, 3), weight (2,)",
                    (2, 3),
                    (2,),
                    (2,),
                ),
                refused(
                    ops.batch_norm,
                    "batch_norm: there must be at least one element per channel, got input",
                    (0, 3),
                    (3,),
                    (3,),
                ),
            ),
        )
        for shape in ((5, 3), (3, 2, 4), (3, 2, 2, 3))
    ],
    *[
        OpRow(
            "batch_norm",
            lambda *inputs: ops.normalization.BatchNorm(1e-2, relu=True)(*inputs)[0],
            lambda *inputs: np.maximum(batch_norm_added(*inputs), 0),
            away_from_the_kink(
                batch_norm_added, shape, shape[1:2], shape[1:2], *([shape] if adds else [])
            ),
            f"{len(shape)}-d then relu" + (" of a sum" if adds else ""),
            resize=False,
            failures=(
                refused(
                    lambda *inputs: ops.normalization.BatchNorm(relu=True)(*inputs),
                    "batch_norm: the residual must have the input's shape (2, 3), got (2, 1)",
                    (2, 3),
                    (3,),
                    (3,),
                    (2, 1),
                ),
            ),
        )
        for shape in ((5, 3), (3, 2, 4), (3, 2, 2, 3))
        for adds in (False, True)
    ],
    OpRow(
        "batch_norm",
        lambda x, w, b: ops.batch_norm(x, w, b)[1:],
        batch_statistics,
        normal((3, 2, 2, 3), (2,), (2,)),
        "statistics",
        order=0,
        resize=False,
    ),
    *[
        OpRow(
            "layer_norm",
            lambda x, w, b: ops.layer_norm(x, w, b, eps=1e-2),
            lambda x, w, b: normalised(x, w, b, -1, (-1,), 1e-2),
            normal(shape, shape[-1:], shape[-1:]),
            f"{len(shape)}-d",
            resize=False,
            failures=(
                refused(
                    ops.layer_norm,
                    "layer_norm: normalized_shape, weight and bias must have the sizes of the "
                    "input's last axes, got input (2, 3), normalized_shape (2,)",
                    (2, 3),
                    (2,),
                    (2,),
                ),
            ),
        )
        for shape in ((4, 5), (2, 3, 4), (0, 3))
    ],
]


SOFTMAX = [
    *[
        OpRow(
            "softmax",
            lambda a, i=axis: ops.softmax(a, axis=i),
            lambda a, i=axis: np.exp(a - logsumexp(a, i, True)),
            normal((3, 4, 2)),
            f"axis {axis}",
            resize=axis != 0,
            failures=(bad_axis("softmax", lambda a: ops.softmax(a, axis=2)),),
        )
        for axis in (0, 1, -1)
    ],
    *[
        OpRow(
            "logsoftmax",
            lambda a, i=axis: ops.logsoftmax(a, axis=i),
            lambda a, i=axis: a - logsumexp(a, i, True),
            normal((3, 4)),
            f"axis {axis}",
            resize=axis != 0,
            failures=(bad_axis("logsoftmax", lambda a: ops.logsoftmax(a, axis=2)),),
        )
        for axis in (0, 1)
    ],
    *[
        OpRow(
            "logsumexp",
            lambda a, i=axes, k=keepdims: ops.logsumexp(a, axes=i, keepdims=k),
            lambda a, i=axes, k=keepdims: logsumexp(a, i, k),
            normal((3, 4, 2)),
            f"axes {axes} keepdims {keepdims}",
            resize=axes in ((1,), -1),
            failures=(
                bad_axis("logsumexp", lambda a: ops.logsumexp(a, axes=2)),
                refused(ops.logsumexp, "logsumexp: there must be at least one", (0, 2)),
            ),
        )
        for axes, keepdims in [(None, False), ((1,), False), (-1, True), ((0, 2), False)]
    ],
]


def with_labels(random: np.random.Generator) -> tuple[Any, ...]:
    return random.standard_normal((4, 5)) * 3, random.integers(0, 5, 4)


def wrong_labels(labels: Any, error: type[Exception], message: str) -> Failure:
    return Failure(
        lambda t: ops.cross_entropy(t(np.zeros((2, 3))), t(np.asarray(labels))),
        error,
        f"cross_entropy: {message}",
    )


LOSS = [
    *[
        OpRow(
            "cross_entropy",
            lambda z, labels, s=smoothing: ops.cross_entropy(z, labels, s, "none"),
            lambda z, labels, s=smoothing: cross_entropy(z, labels, s),
            with_labels,
            f"smoothing {smoothing}",
            failures=(
                wrong_labels([0, 3], ShapeError, "labels must be in [0, 3), got 3"),
                wrong_labels([-1, 0], ShapeError, "labels must be in [0, 3), got -1"),
                wrong_labels([0.0, 1.0], DTypeError, "labels must be integers, got float64"),
                wrong_labels(
                    [[0], [1]], ShapeError, "labels must be one class number per row, shape (2,)"
                ),
            ),
        )
        for smoothing in (0.0, 0.3, 1.0)
    ],
    *[
        OpRow(
            "cross_entropy",
            lambda z, labels, r=reduction: ops.cross_entropy(z, labels, 0.1, r),
            lambda z, labels, r=reduction: getattr(np, r)(cross_entropy(z, labels, 0.1)),
            with_labels,
            reduction,
            empty=reduction == "sum",
            failures=(
                Failure(
                    lambda t: ops.cross_entropy(t(np.zeros((0, 3))), t(np.zeros(0, int))),
                    ShapeError,
                    "cross_entropy: an empty batch has no mean",
                ),
            ),
        )
        for reduction in ("mean", "sum")
    ],
]

NN_ROWS = [*CONVOLUTION, *POOLING, *NORMALIZATION, *SOFTMAX, *LOSS]
