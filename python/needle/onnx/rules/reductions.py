"""Rules of sums, extremes, softmax and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import cumulative, linalg, loss, reduction, sorting
from ...shapes import normalize_axes
from ..exported_graph import EXPORTS, Graph, Rule, plain, rule
from ..package import OnnxError


def _along(kind: str) -> Rule:
    """Return the rule of an op along one axis, which may be negative."""
    return lambda graph, node: graph.add(kind, [graph.of(node.inputs[0])], axis=node.op.axis)


def _reduce(kind: str) -> Rule:
    def run(graph: Graph, node: Any) -> str:
        source, ndim = node.inputs[0], len(node.inputs[0].shape)
        axes = list(normalize_axes(kind, node.op.axes, ndim))
        keep = int(node.op.keepdims)
        if kind == "ReduceSum":  # in opset 17, only ReduceSum takes its axes as an input
            return graph.add(kind, [graph.of(source), graph.integers(*axes)], keepdims=keep)
        return graph.add(kind, [graph.of(source)], axes=axes, keepdims=keep)

    return run


@rule(cumulative.CumSum)
def _running_sum(graph: Graph, node: Any) -> str:
    names = [graph.of(node.inputs[0]), graph.store(np.array(node.op.axis, np.int64))]
    return graph.add("CumSum", names, reverse=int(node.op.reverse))


@rule(sorting.ArgMax, sorting.ArgMin)
def _place_of_extreme(graph: Graph, node: Any) -> str:
    kind = "ArgMax" if isinstance(node.op, sorting.ArgMax) else "ArgMin"
    (source,), axis = node.inputs, node.op.axis
    if axis is None:
        raise OnnxError(f"onnx.export: {kind} needs an axis; reshape to (N, -1) and pass axis=1")
    return graph.add(kind, [graph.of(source)], axis=axis, keepdims=int(node.op.keepdims))


EXPORTS.update(
    {
        cumulative.Prod: _reduce("ReduceProd"),
        linalg.MatMul: plain("MatMul"),
        loss.LogSoftmax: _along("LogSoftmax"),
        loss.LogSumExp: _reduce("ReduceLogSumExp"),
        loss.Softmax: _along("Softmax"),
        reduction.Max: _reduce("ReduceMax"),
        reduction.Min: _reduce("ReduceMin"),
        reduction.Summation: _reduce("ReduceSum"),
    }
)
