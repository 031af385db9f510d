"""Export rules for elementwise ops: arithmetic, functions, selection and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...autograd.graph import Op
from ...autograd.tensor import Detach
from ...dtypes import default_float, is_floating, promote
from ...ops import arithmetic, elementwise, rounding, selection
from ..exported_graph import EXPORTS, Graph, formula, plain, rule
from ..package import OnnxError

OPERATORS = {
    arithmetic.EWiseAdd: "Add",
    arithmetic.EWiseMul: "Mul",
    arithmetic.EWiseDiv: "Div",
    arithmetic.EWisePow: "Pow",
    arithmetic.Negate: "Neg",
    elementwise.Abs: "Abs",
    elementwise.Cos: "Cos",
    elementwise.Erf: "Erf",
    elementwise.Exp: "Exp",
    elementwise.Hardswish: "HardSwish",
    elementwise.Log: "Log",
    elementwise.ReLU: "Relu",
    elementwise.Sigmoid: "Sigmoid",
    elementwise.Sin: "Sin",
    elementwise.Softplus: "Softplus",
    elementwise.Sqrt: "Sqrt",
    elementwise.Tanh: "Tanh",
    rounding.Ceil: "Ceil",
    rounding.Floor: "Floor",
    rounding.Round: "Round",
    rounding.Sign: "Sign",
    selection.Maximum: "Max",
    selection.Minimum: "Min",
}
EXPORTS.update({kind: plain(name) for kind, name in OPERATORS.items()})


def _normal(x: Any) -> Any:
    """Return 1 + erf(x / sqrt 2), which is twice the normal distribution function."""
    return ("Add", ("Erf", ("Div", x, 2.0**0.5)), 1.0)


def _gelu_slope(x: Any) -> Any:
    """Return 2 sqrt(2/pi) (x + 0.044715 x**3)."""
    factor = ("Add", ("Mul", ("Mul", x, x), 0.044715), 1.0)
    return ("Mul", ("Mul", x, factor), 2 * (2 / math.pi) ** 0.5)


FORMULAS: dict[type[Op], Callable[..., Any]] = {
    Detach: lambda op, x: x,
    arithmetic.AddScalar: lambda op, x: ("Add", x, op.scalar),
    arithmetic.MulScalar: lambda op, x: ("Mul", x, op.scalar),
    arithmetic.DivScalar: lambda op, x: ("Div", x, op.scalar),
    arithmetic.PowerScalar: lambda op, x: ("Pow", x, op.scalar),
    arithmetic.ScalarPower: lambda op, x: ("Pow", op.scalar, x),
    elementwise.AsType: lambda op, x: x,
    elementwise.BiasReLU: lambda op, x, bias: ("Relu", ("Add", x, bias)),
    elementwise.ELU: lambda op, x: ("Elu", x, {"alpha": float(op.alpha)}),
    # opset 17 has no operator Gelu
    elementwise.GELU: lambda op, x: ("Mul", ("Mul", x, 0.5), _normal(x)),
    elementwise.GELUTanh: lambda op, x: ("Mul", x, ("Sigmoid", _gelu_slope(x))),
    elementwise.LeakyReLU: lambda op, x: ("LeakyRelu", x, {"alpha": op.negative_slope}),
    elementwise.LogSigmoid: lambda op, x: ("Neg", ("Softplus", ("Neg", x))),
    elementwise.NormalCDF: lambda op, x: ("Mul", _normal(x), 0.5),
    elementwise.SiLU: lambda op, x: ("Mul", x, ("Sigmoid", x)),
    rounding.Trunc: lambda op, x: ("Mul", ("Sign", x), ("Floor", ("Abs", x))),
    elementwise.ToDevice: lambda op, x: x,
    selection.Clip: lambda op, x: ("Clip", x, op.low, op.high),
}
EXPORTS.update({kind: formula(expression) for kind, expression in FORMULAS.items()})


@rule(arithmetic.RoundedDiv)
def _rounded_division(graph: Graph, node: Any) -> Any:
    if node.op.mode == "floor":
        raise OnnxError(
            "onnx.export: divide with rounding_mode='floor' has no ONNX operator; write "
            "floor(a / b)"
        )
    quotient = graph.add(("Div", *(graph.add(each, node.dtype) for each in node.inputs)))
    if not is_floating(node.dtype):
        return quotient
    return ("Mul", ("Sign", quotient), ("Floor", ("Abs", quotient)))


@rule(selection.Where)
def _where(graph: Graph, node: Any) -> Any:
    condition, *choices = node.inputs
    return ("Where", graph.add(condition, "bool"), *choices)


COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "not_equal": "Equal",
}


@rule(selection.Compare)
def _compare(graph: Graph, node: Any) -> Any:
    common = promote(*(source.dtype for source in node.inputs))
    found = (COMPARISONS[node.op.name], *(graph.add(each, common) for each in node.inputs))
    return ("Not", found) if node.op.name == "not_equal" else found


@rule(selection.Logical)
def _logical(graph: Graph, node: Any) -> Any:
    return (node.op.name.removeprefix("logical_").capitalize(), *node.inputs)


@rule(selection.Check)
def _check(graph: Graph, node: Any) -> Any:
    (source,) = node.inputs
    x = graph.add(source, source.dtype if is_floating(source.dtype) else default_float)
    kinds = {"isnan": "IsNaN", "isinf": "IsInf"}
    if node.op.name in kinds:
        return (kinds[node.op.name], x)
    return ("Not", ("Or", ("IsNaN", x), ("IsInf", x)))
