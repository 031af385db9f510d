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
from tests.op_row import OpRow, alike, apart, bad_axis, called, normal, refused, wrong


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


def conv_nhwc(a: Any, b: Any, stride: int = 1, padding: int = 1) -> Any:
    y = conv2d(a.transpose(0, 3, 1, 2), b.transpose(3, 2, 0, 1), stride=stride, padding=padding)
    return y.transpose(0, 2, 3, 1)


CONVOLUTION = [
    alike("conv2d", conv2d, normal((3, 2, 5, 4), (3, 2, 3, 3))),
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
    ),
    OpRow(
        "conv2d_weight_grad",
        lambda g, x: ops.conv2d_weight_grad(g, x, W, **UNEVEN),
        lambda g, x: adjoint(lambda w: conv2d(x, w, **UNEVEN), W, g),
        normal(Y, X),
        resize=False,
    ),
    *[
        called(
            "conv",
            lambda a, b, s=stride, p=padding: conv_nhwc(a, b, s, p),
            normal((2, 7, 6, 3), (kernel, kernel, 3, 4)),
            options={"stride": stride, "padding": padding},
            case=f"{kernel}x{kernel} stride {stride} padding {padding}",
            resize=False,
        )
        for kernel, stride, padding in [(1, 1, 0), (3, 1, 1), (3, 2, 1), (5, 2, 2), (3, 4, 0)]
    ],
    called("conv", conv_nhwc, normal((2, 4, 4, 2), (3, 3, 2, 2)), resize=False),
]


WINDOWS = [
    ("2", (2, 2, 0), (2, 3, 4, 6)),
    ("overlap", (3, 1, 1), (2, 2, 4, 5)),
    ("uneven", ((3, 2), (2, 3), (1, 0)), (2, 3, 6, 7)),
    ("gaps", (1, 3, 0), (2, 2, 7, 5)),
]
POOLING = [
    *[
        alike(name, oracle, inputs(shape), *windows, case=case)
        for name, oracle, inputs in (
            ("max_pool2d", max_pool, apart),
            ("avg_pool2d", avg_pool, normal),
        )
        for case, windows, shape in WINDOWS
    ],
    *[
        called(
            "adaptive_avg_pool2d",
            lambda x, s=size: adaptive(x, *pair(s)),
            normal((2, 3, 6, 4)),
            size,
            case=str(size),
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
            batch_norm_added,
            normal(shape, shape[1:2], shape[1:2]),
            f"{len(shape)}-d",
            resize=False,
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
        called(
            "layer_norm",
            lambda x, w, b: normalised(x, w, b, -1, (-1,), 1e-2),
            normal(shape, shape[-1:], shape[-1:]),
            options={"eps": 1e-2},
            case=f"{len(shape)}-d",
            resize=False,
        )
        for shape in ((4, 5), (2, 3, 4), (0, 3))
    ],
]


def softmax(a: Any, axis: Any) -> Any:
    return np.exp(logsoftmax(a, axis))


def logsoftmax(a: Any, axis: Any) -> Any:
    return a - logsumexp(a, axis, True)


SOFTMAX = [
    *[
        called(
            name,
            lambda a, f=oracle, i=axis: f(a, i),
            normal(shape),
            options={"axis": axis},
            case=f"axis {axis}",
            resize=axis != 0,
        )
        for name, oracle, shape, axes in (
            ("softmax", softmax, (3, 4, 2), (0, 1, -1)),
            ("logsoftmax", logsoftmax, (3, 4), (0, 1)),
        )
        for axis in axes
    ],
    *[
        called(
            "logsumexp",
            lambda a, i=axes, k=keepdims: logsumexp(a, i, k),
            normal((3, 4, 2)),
            axes,
            options={"keepdims": keepdims},
            case=f"axes {axes} keepdims {keepdims}",
            resize=axes in ((1,), -1),
        )
        for axes, keepdims in [(None, False), ((1,), False), (-1, True), ((0, 2), False)]
    ],
]


def with_labels(random: np.random.Generator) -> tuple[Any, ...]:
    return random.standard_normal((4, 5)) * 3, random.integers(0, 5, 4)


LOSS = [
    *[
        called(
            "cross_entropy",
            lambda z, labels, s=smoothing: cross_entropy(z, labels, s),
            with_labels,
            smoothing,
            "none",
            case=f"smoothing {smoothing}",
        )
        for smoothing in (0.0, 0.3, 1.0)
    ],
    *[
        called(
            "cross_entropy",
            lambda z, labels, r=reduction: getattr(np, r)(cross_entropy(z, labels, 0.1)),
            with_labels,
            0.1,
            reduction,
            case=reduction,
            empty=reduction == "sum",
        )
        for reduction in ("mean", "sum")
    ],
]

NN_ROWS = [*CONVOLUTION, *POOLING, *NORMALIZATION, *SOFTMAX, *LOSS]

ONE, SMALL = (1, 1, 3, 3), (1, 1, 4, 4)
NN_FAILURES = [
    wrong("conv2d", "input and weight", on=((3, 4), (4, 3))),
    wrong("conv2d", "input channels must be", on=((1, 3, 5, 5), (2, 2, 3, 3))),
    wrong("conv2d", "the window must fit", on=((1, 2, 2, 5), (2, 2, 3, 3))),
    wrong(
        "conv2d",
        "bias must have shape (2,), one value per output channel, got",
        on=(ONE, (2, 1, 3, 3), (3,)),
    ),
    wrong("conv2d", "kernel, stride and dilation must", on=(ONE, ONE), stride=0),
    wrong("conv2d", "stride must be an int or two", on=(ONE, ONE), stride=(1, 2, 3)),
    wrong("conv2d", "stride must be an int or a", on=(ONE, ONE), stride="ab", error=DTypeError),
    wrong(
        "conv2d_input_grad",
        "grad must have the output's shape (1, 1, 2, 2), got (1, 1",
        SMALL,
        on=(ONE, ONE),
    ),
    wrong(
        "conv2d_weight_grad",
        "grad must have the output's shape (1, 1, 2, 2), got",
        ONE,
        on=((2, 1, 2, 2), SMALL),
    ),
    wrong("conv", "input channels must be", on=((1, 5, 5, 3), (3, 3, 2, 2))),
    wrong("conv", "input and weight (KH, KW, C, O)", on=((5, 3), (3, 3))),
    *[
        wrong(name, message, *windows, on=(shape,))
        for name in ("max_pool2d", "avg_pool2d")
        for message, windows, shape in (
            ("the input must be (N, C, H, W)", (2,), (4, 4)),
            ("the window must fit", (3,), (1, 1, 2, 4)),
            ("padding must be at most half the kernel", (2, None, 2), SMALL),
            ("kernel, stride and dil", (0,), SMALL),
        )
    ],
    wrong(
        "adaptive_avg_pool2d", "sizes must be at least 1, got output_size (0, 0)", 0, on=(SMALL,)
    ),
    wrong("adaptive_avg_pool2d", "the input must be (N, C, H, W)", 1, on=((4, 4),)),
    wrong(
        "batch_norm",
        "input must have at least 2 axes, and weight and bias the size of its second axis, got "
        "input (2, 3), weight (2,)",
        on=((2, 3), (2,), (2,)),
    ),
    wrong(
        "batch_norm",
        "there must be at least one element per channel, got input",
        on=((0, 3), (3,), (3,)),
    ),
    refused(
        lambda *inputs: ops.normalization.BatchNorm(relu=True)(*inputs),
        "batch_norm: the residual must have the input's shape (2, 3), got (2, 1)",
        (2, 3),
        (3,),
        (3,),
        (2, 1),
    ),
    wrong(
        "layer_norm",
        "normalized_shape, weight and bias must have the sizes of the input's last axes, got "
        "input (2, 3), normalized_shape (2,)",
        on=((2, 3), (2,), (2,)),
    ),
    *[bad_axis(name, axis=2) for name in ("softmax", "logsoftmax")],
    bad_axis("logsumexp", 2),
    wrong("logsumexp", "there must be at least one", on=((0, 2),)),
    *[
        wrong("cross_entropy", message, np.asarray(labels), on=((2, 3),), error=error)
        for message, labels, error in (
            ("labels must be in [0, 3), got 3", [0, 3], ShapeError),
            ("labels must be in [0, 3), got -1", [-1, 0], ShapeError),
            ("labels must be integers, got float64", [0.0, 1.0], DTypeError),
            ("labels must be one class number per row, shape (2,)", [[0], [1]], ShapeError),
        )
    ],
    wrong("cross_entropy", "an empty batch has no mean", np.zeros(0, int), on=((0, 3),)),
]
