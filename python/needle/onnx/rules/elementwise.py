"""Rules of elementwise ops: arithmetic, functions, selection and comparisons."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...ops import arithmetic, elementwise, rounding, selection
from ..exported_graph import EXPORTS, Graph, Rule, plain, rule
from ..package import onnx_package

EXPORTS.update(
    {
        arithmetic.EWiseAdd: plain("Add"),
        arithmetic.EWiseMul: plain("Mul"),
        arithmetic.EWiseDiv: plain("Div"),
        arithmetic.EWisePow: plain("Pow"),
        arithmetic.Negate: plain("Neg"),
        elementwise.Abs: plain("Abs"),
        elementwise.Cos: plain("Cos"),
        elementwise.Erf: plain("Erf"),
        elementwise.Exp: plain("Exp"),
        elementwise.Hardswish: plain("HardSwish"),
        elementwise.Log: plain("Log"),
        elementwise.ReLU: plain("Relu"),
        elementwise.Sigmoid: plain("Sigmoid"),
        elementwise.Sin: plain("Sin"),
        elementwise.Softplus: plain("Softplus"),
        elementwise.Sqrt: plain("Sqrt"),
        elementwise.Tanh: plain("Tanh"),
        rounding.Ceil: plain("Ceil"),
        rounding.Floor: plain("Floor"),
        rounding.Round: plain("Round"),
        rounding.Sign: plain("Sign"),
        selection.Maximum: plain("Max"),
        selection.Minimum: plain("Min"),
    }
)


def _scalar(kind: str, reverse: bool = False) -> Rule:
    """Return the rule of an op with a scalar, which becomes an operator of two inputs."""

    def run(graph: Graph, node: Any) -> str:
        (source,) = node.inputs
        names = [graph.of(source), graph.like(source, node.op.scalar)]
        return graph.add(kind, names[::-1] if reverse else names)

    return run


EXPORTS.update(
    {
        arithmetic.AddScalar: _scalar("Add"),
        arithmetic.MulScalar: _scalar("Mul"),
        arithmetic.DivScalar: _scalar("Div"),
        arithmetic.PowerScalar: _scalar("Pow"),
        arithmetic.ScalarPower: _scalar("Pow", reverse=True),
    }
)


@rule(elementwise.BiasReLU)
def _bias_relu(graph: Graph, node: Any) -> str:
    return graph.add("Relu", [graph.add("Add", [graph.of(source) for source in node.inputs])])


@rule(elementwise.LeakyReLU)
def _leaky_relu(graph: Graph, node: Any) -> str:
    return graph.add("LeakyRelu", [graph.of(node.inputs[0])], alpha=node.op.negative_slope)


@rule(elementwise.GELU)
def _gelu(graph: Graph, node: Any) -> str:
    """Export x/2 (1 + erf(x/sqrt 2)), because opset 17 has no operator Gelu."""
    (source,) = node.inputs
    x = graph.of(source)
    erf = graph.add("Erf", [graph.add("Div", [x, graph.like(source, 2.0**0.5)])])
    half = graph.add("Mul", [x, graph.like(source, 0.5)])
    return graph.add("Mul", [half, graph.add("Add", [erf, graph.like(source, 1.0)])])


def _gated(graph: Graph, node: Any, u: str) -> str:
    """Export x sigmoid(u), where x is the operand of ``node``."""
    return graph.add("Mul", [graph.of(node.inputs[0]), graph.add("Sigmoid", [u])])


@rule(elementwise.SiLU)
def _silu(graph: Graph, node: Any) -> str:
    return _gated(graph, node, graph.of(node.inputs[0]))


@rule(elementwise.GELUTanh)
def _gelu_tanh(graph: Graph, node: Any) -> str:
    """Export x sigmoid(2 sqrt(2/pi) (x + 0.044715 x**3))."""
    (source,) = node.inputs
    x = graph.of(source)
    cubic = graph.add("Mul", [graph.add("Mul", [x, x]), graph.like(source, 0.044715)])
    factor = graph.add("Add", [cubic, graph.like(source, 1.0)])
    slope = graph.like(source, 2 * (2 / math.pi) ** 0.5)
    return _gated(graph, node, graph.add("Mul", [graph.add("Mul", [x, factor]), slope]))


@rule(elementwise.ELU)
def _elu(graph: Graph, node: Any) -> str:
    return graph.add("Elu", [graph.of(node.inputs[0])], alpha=float(node.op.alpha))


@rule(elementwise.LogSigmoid)
def _log_sigmoid(graph: Graph, node: Any) -> str:
    negative = graph.add("Neg", [graph.of(node.inputs[0])])
    return graph.add("Neg", [graph.add("Softplus", [negative])])


@rule(elementwise.AsType)
def _cast(graph: Graph, node: Any) -> str:
    kind = onnx_package().helper.np_dtype_to_tensor_dtype(np.dtype(node.op.dtype))
    return graph.add("Cast", [graph.of(node.inputs[0])], to=kind)


@rule(selection.Clip)
def _clip(graph: Graph, node: Any) -> str:
    (source,) = node.inputs
    limits = ["" if v is None else graph.like(source, v) for v in (node.op.low, node.op.high)]
    return graph.add("Clip", [graph.of(source), *limits])


@rule(selection.Where)
def _where(graph: Graph, node: Any) -> str:
    condition, *choices = node.inputs
    return graph.add("Where", [_truth(graph, condition), *map(graph.of, choices)])


COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "not_equal": "Equal",
}


@rule(selection.Compare)
def _compare(graph: Graph, node: Any) -> str:
    result = plain(COMPARISONS[node.op.name])(graph, node)
    return graph.add("Not", [result]) if node.op.name == "not_equal" else result


@rule(selection.Logical)
def _logical(graph: Graph, node: Any) -> str:
    """Export a logical function of bools; other dtypes are cast."""
    kind = node.op.name.removeprefix("logical_").capitalize()
    return graph.add(kind, [_truth(graph, source) for source in node.inputs])


@rule(selection.Check)
def _check(graph: Graph, node: Any) -> str:
    kinds = {"isnan": "IsNaN", "isinf": "IsInf"}
    if node.op.name in kinds:
        return plain(kinds[node.op.name])(graph, node)
    finite = [graph.add(kind, [graph.of(node.inputs[0])]) for kind in ("IsNaN", "IsInf")]
    return graph.add("Not", [graph.add("Or", finite)])


def _truth(graph: Graph, value: Any) -> str:
    """Return the name of a value cast to bool."""
    name = graph.of(value)
    is_bool = value.dtype == "bool"
    return name if is_bool else graph.add("Cast", [name], to=onnx_package().TensorProto.BOOL)
