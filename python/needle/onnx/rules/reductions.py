"""Rules of sums, extremes, softmax and matrix products."""

from __future__ import annotations

from typing import Any

from ...ops import linalg, loss, reduction
from ...shapes import normalize_axes
from ..exported_graph import EXPORTS, Graph, Rule, plain


def _along(kind: str) -> Rule:
    """Return the rule of an op along one axis, which may be negative."""
    return lambda graph, node: graph.add(kind, [graph.of(node.inputs[0])], axis=node.op.axis)


def _reduce(kind: str) -> Rule:
    def run(graph: Graph, node: Any) -> str:
        source, ndim = node.inputs[0], len(node.inputs[0].shape)
        axes = list(normalize_axes(kind, node.op.axes, ndim))
        keep = int(node.op.keepdims)
        if kind == "ReduceSum":  # the only reduction of opset 17 whose axes are an input
            return graph.add(kind, [graph.of(source), graph.integers(*axes)], keepdims=keep)
        return graph.add(kind, [graph.of(source)], axes=axes, keepdims=keep)

    return run


EXPORTS.update(
    {
        linalg.MatMul: plain("MatMul"),
        loss.LogSoftmax: _along("LogSoftmax"),
        loss.LogSumExp: _reduce("ReduceLogSumExp"),
        loss.Softmax: _along("Softmax"),
        reduction.Max: _reduce("ReduceMax"),
        reduction.Min: _reduce("ReduceMin"),
        reduction.Summation: _reduce("ReduceSum"),
    }
)
