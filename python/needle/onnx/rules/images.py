"""Export rules for convolution, pooling and norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import convolution, grid_sampling, normalization, pool_windows, pooling
from ..exported_graph import EXPORTS, Graph, formula, rule
from ..package import OnnxError


@rule(convolution.Conv2d)
def _conv(graph: Graph, node: Any) -> Any:
    """Export a convolution; ONNX stores the weight as (O, C/groups, KH, KW)."""
    x, weight, *bias = node.inputs
    kernel = graph.transposed(weight, (3, 2, 0, 1))
    result = ("Conv", x, kernel, *bias, _geometry(node.op.geometry))
    return ("Relu", result) if node.op.relu else result


def _geometry(geometry: Any) -> dict[str, Any]:
    stride, padding, dilation, groups = geometry
    pads = [*padding, *padding]
    return {"strides": stride, "pads": pads, "dilations": dilation, "group": groups}


@rule(convolution.Conv2dInputGrad)
def _conv_transpose(graph: Graph, node: Any) -> Any:
    """Export the adjoint of a convolution; the weight becomes (O, C/groups, KH, KW)."""
    stride, padding, dilation, _ = node.op.geometry
    grad, weight = node.inputs
    sizes = zip(node.shape[2:], grad.shape[2:], weight.shape[:2], strict=True)
    extra = [
        size - (s * (n - 1) + d * (k - 1) + 1 - 2 * p)
        for (size, n, k), s, p, d in zip(sizes, stride, padding, dilation, strict=True)
    ]
    attributes = {**_geometry(node.op.geometry), "output_padding": extra}
    return ("ConvTranspose", grad, graph.transposed(weight, (3, 2, 0, 1)), attributes)


def _windows(kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    return {"kernel_shape": kernel, "strides": stride, "pads": [*padding, *padding]}


@rule(pool_windows.WindowMax)
def _window_max(graph: Graph, node: Any) -> Any:
    windows, (x,) = node.op.windows, node.inputs
    if windows is None:
        raise OnnxError(
            "onnx.export: adaptive_max_pool2d has no ONNX operator unless the output size divides "
            "the image size; choose one that does"
        )
    _, kernel, stride, padding, dilation, _ = windows
    ends = [p + more for p, more in zip(padding, windows.beyond, strict=True)]
    attributes = {**_windows(kernel, stride, padding), "pads": [*padding, *ends]}
    return ("MaxPool", x, {**attributes, "dilations": dilation})


@rule(grid_sampling.GridSample)
def _grid_sample(graph: Graph, node: Any) -> Any:
    """Export pixel coordinates scaled to [-1, 1]; the op's input is already padded."""
    x, pixels = node.inputs
    sizes = np.array(x.shape[:1:-1], x.dtype)
    places = ("Sub", ("Div", ("Add", ("Mul", pixels, 2.0), 1.0), sizes), 1.0)
    return ("GridSample", x, places, {"mode": "nearest" if node.op.nearest else "bilinear"})


@rule(normalization.BatchNorm)
def _batch_norm(graph: Graph, node: Any) -> Any:
    """Export batch norm in training mode, which uses the statistics of the batch."""
    x, weight, bias, *residual = node.inputs
    over = {"axes": [0, *range(2, len(x.shape))], "keepdims": 1}
    channel = [1, -1, *(1 for _ in x.shape[2:])]
    centred = graph.add(("Sub", x, ("ReduceMean", x, over)), x.dtype)
    var = ("ReduceMean", ("Mul", centred, centred), over)
    normal = ("Div", centred, ("Sqrt", ("Add", var, node.op.eps)))
    result: Any = ("Mul", normal, ("Reshape", weight, channel))
    for added in (("Reshape", bias, channel), *residual):
        result = ("Add", result, added)
    return graph.add(("Relu", result) if node.op.relu else result, x.dtype)


EXPORTS.update(
    {
        normalization.LayerNorm: formula(
            lambda op, *inputs: ("LayerNormalization", *inputs, {"axis": -1, "epsilon": op.eps})
        ),
        pooling.AvgPool2d: formula(
            lambda op, x: ("AveragePool", x, {**_windows(*op.windows), "count_include_pad": 1})
        ),
        pooling.MaxPool2d: formula(lambda op, x: ("MaxPool", x, _windows(*op.windows))),
    }
)
