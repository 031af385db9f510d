"""Export rules for sums, extremes, sorting, softmax and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import cumulative, linalg, loss, reduction, sorting
from ...shapes import normalize_axes
from ..exported_graph import EXPORTS, Graph, Rule, formula, plain, rule


def _along(kind: str) -> Rule:
    """Return the rule of an op along one axis, which may be negative."""
    return formula(lambda op, x: (kind, x, {"axis": op.axis}))


def _reduce(kind: str) -> Rule:
    def expression(op: Any, x: Any) -> Any:
        axes = list(normalize_axes(kind, op.axes, len(x.shape)))
        keep = {"keepdims": int(op.keepdims)}
        if not axes:
            return x
        if kind == "ReduceSum":  # in opset 17, only ReduceSum takes its axes as an input
            return (kind, x, axes, keep)
        return (kind, x, {"axes": axes, **keep})

    return formula(expression)


@rule(sorting.ArgMax, sorting.ArgMin)
def _place_of_extreme(graph: Graph, node: Any) -> Any:
    kind = "ArgMax" if isinstance(node.op, sorting.ArgMax) else "ArgMin"
    x, axis, keep = graph.of(node.inputs[0]), node.op.axis, int(node.op.keepdims)
    if axis is not None:
        return (kind, x, {"axis": axis, "keepdims": keep})
    place = (kind, ("Reshape", x, [-1]), {"axis": 0, "keepdims": 0})
    return ("Reshape", place, [1] * len(node.shape)) if keep else place


@rule(sorting.ArgSort)
def _order(graph: Graph, node: Any) -> Any:
    count = node.shape[node.op.axis]
    how = {"axis": node.op.axis, "largest": int(node.op.descending), "nth": 1}
    return ("TopK", graph.of(node.inputs[0]), [count], how)


EXPORTS.update(
    {
        cumulative.CumSum: formula(
            lambda op, x: ("CumSum", x, np.array(op.axis), {"reverse": int(op.reverse)})
        ),
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
