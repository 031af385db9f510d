"""Rules of convolution, pooling and layer norm."""

from __future__ import annotations

from typing import Any

from ...ops import convolution, normalization, pooling
from ..exported_graph import EXPORTS, Graph, Rule, rule


@rule(convolution.Conv2d)
def _conv(graph: Graph, node: Any) -> str:
    """Export a convolution; ONNX stores the weight as (O, C/groups, KH, KW)."""
    stride, padding, dilation, groups = node.op.geometry
    x, weight, *bias = node.inputs
    result = graph.add(
        "Conv",
        [graph.of(x), graph.transposed(weight, (3, 2, 0, 1)), *map(graph.of, bias)],
        strides=list(stride),
        pads=[*padding, *padding],
        dilations=list(dilation),
        group=groups,
    )
    return graph.add("Relu", [result]) if node.op.relu else result


@rule(convolution.Conv2dInputGrad)
def _conv_transpose(graph: Graph, node: Any) -> str:
    """Export the adjoint of a convolution; the weight becomes (O, C/groups, KH, KW)."""
    stride, padding, dilation, groups = node.op.geometry
    grad, weight = node.inputs
    sizes = zip(node.shape[2:], grad.shape[2:], weight.shape[:2], strict=True)
    extra = [
        size - (s * (n - 1) + d * (k - 1) + 1 - 2 * p)
        for (size, n, k), s, p, d in zip(sizes, stride, padding, dilation, strict=True)
    ]
    return graph.add(
        "ConvTranspose",
        [graph.of(grad), graph.transposed(weight, (3, 2, 0, 1))],
        strides=list(stride),
        pads=[*padding, *padding],
        output_padding=extra,
        dilations=list(dilation),
        group=groups,
    )


def _pool(kind: str, **more: Any) -> Rule:
    def run(graph: Graph, node: Any) -> str:
        kernel, stride, padding = node.op.windows
        sizes = {"kernel_shape": list(kernel), "strides": list(stride)}
        pads = [*padding, *padding]
        return graph.add(kind, [graph.of(node.inputs[0])], **sizes, pads=pads, **more)

    return run


EXPORTS[pooling.AvgPool2d] = _pool("AveragePool", count_include_pad=1)
EXPORTS[pooling.MaxPool2d] = _pool("MaxPool")


@rule(normalization.LayerNorm)
def _layer_norm(graph: Graph, node: Any) -> str:
    names = [graph.of(source) for source in node.inputs]
    return graph.add("LayerNormalization", names, axis=-1, epsilon=node.op.eps)
