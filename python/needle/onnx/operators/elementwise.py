"""Elementwise operators: arithmetic, functions, activations, casts, comparisons and logic."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import OPERATORS, Call, operator


def _one(name: str, function: Callable[..., Tensor], **attributes: float) -> None:
    """Register ``function``, which takes the first input and ``attributes`` (with defaults)."""
    OPERATORS[name] = lambda call: function(
        call.x, *(call.get(*each) for each in attributes.items())
    )


def _many(name: str, function: Callable[[Any, Any], Tensor]) -> None:
    """Register an operator that left-folds its inputs, which broadcast, with ``function``."""

    def run(call: Call) -> Any:
        values = [call.tensor(i) for i in range(len(call.inputs))]
        call.broadcast(*values)
        return reduce(function, values)

    OPERATORS[name] = run


for _name in (
    "Abs Ceil Cos Erf Exp Floor HardSwish IsNaN Log Relu Round Sigmoid Sign Sin Softplus Sqrt Tanh"
).split():  # ops of the same name in lower case
    _one(_name, getattr(ops, _name.lower()))
for _name in ("Add", "Equal", "Greater", "Less"):
    _many(_name, getattr(ops, _name.lower()))
_one("Celu", lambda x, alpha: ops.elu(x / alpha) * alpha, alpha=1.0)
_one("Elu", ops.elu, alpha=1.0)
_one("HardSigmoid", lambda x, a, b: ops.clip(x * a + b, 0.0, 1.0), alpha=0.2, beta=0.5)
_one("Identity", lambda x: x)
_one("LeakyRelu", ops.leaky_relu, alpha=0.01)
_one("Mish", lambda x: x * ops.tanh(ops.softplus(x)))
_one("Neg", lambda x: -x)
_one("Not", ops.logical_not)
_one("Reciprocal", lambda x: 1 / x)
_one(
    "Selu",
    lambda x, a, g: ops.elu(x, a) * g,
    alpha=1.67326319217681884765625,
    gamma=1.05070102214813232421875,
)
_one("Softsign", lambda x: x / (ops.abs(x) + 1))
_one("Swish", lambda x, alpha: x * ops.sigmoid(x * alpha), alpha=1.0)
_one("ThresholdedRelu", lambda x, a: ops.where(ops.greater(x, a), x, x * 0), alpha=1.0)
_many("And", ops.logical_and)
_many("GreaterOrEqual", ops.greater_equal)
_many("LessOrEqual", ops.less_equal)
_many("Max", ops.maximum)
_many("Min", ops.minimum)
_many("Mul", ops.multiply)
_many("Or", ops.logical_or)
_many("Pow", lambda a, b: ops.astype(ops.power(a, b), a.dtype))
_many("Sub", lambda a, b: a - b)
_many("Sum", ops.add)
_many("Xor", ops.not_equal)


@operator("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor")
def _bitwise(call: Call) -> Tensor:
    call.broadcast(*(call.tensor(i) for i in range(len(call.inputs))))
    return call.on_host(getattr(np, call.kind.replace("Bitwise", "bitwise_").lower()))


@operator("Mean")
def _mean(call: Call) -> Any:
    return OPERATORS["Sum"](call) / len(call.inputs)


@operator("Div")
def _divide(call: Call) -> Tensor:
    """Divide; integers are rounded towards 0."""
    call.broadcast(call.x, call.tensor(1))
    if np.dtype(call.x.dtype).kind == "f":
        return call.x / call.tensor(1)
    if not call.array(1).all():
        raise call.refuse("an integer must not be divided by 0")
    return call.on_host(_truncated)


def _truncated(a: Any, b: Any) -> Any:
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0)))


@operator("Mod")
def _mod(call: Call) -> Tensor:
    """Return the remainder, with the sign of the divisor or, if ``fmod``, of the dividend."""
    call.broadcast(call.x, call.tensor(1))
    if np.dtype(call.x.dtype).kind != "f" and not call.array(1).all():
        raise call.refuse("an integer must not be divided by 0")
    return call.on_host(np.fmod if call.flag("fmod") else np.mod)


@operator("Clip")
def _clip(call: Call) -> Tensor:
    return ops.clip(call.x, call.scalar(1, name="min"), call.scalar(2, name="max"))


@operator("Cast")
def _cast(call: Call) -> Tensor:
    return ops.astype(call.x, call.get("to"))


@operator("CastLike")
def _cast_like(call: Call) -> Tensor:
    return ops.astype(call.x, call.tensor(1).dtype)


@operator("Dropout")
def _dropout(call: Call) -> Any:
    """Return the input and a mask of ones, with random elements zeroed in ``training_mode``.

    With a ``seed``, the elements are those of ONNX's reference, which uses NumPy's RandomState.
    """
    training, ratio = call.numbers(2), call.scalar(1, 0.5)
    if training is None or not training.any() or ratio == 0:
        return (call.x, np.ones(call.x.shape, bool)) if call.outputs > 1 else call.x
    if not 0 < ratio < 1:
        raise call.refuse(f"the ratio must be in [0, 1), got {ratio}")
    kept = np.random.RandomState(call.get("seed")).uniform(0, 1, call.x.shape) >= ratio
    return call.x * call.constant(kept, call.x.dtype) / (1 - ratio), kept


@operator("PRelu")
def _prelu(call: Call) -> Tensor:
    x, slope = call.x, call.tensor(1)
    call.stretched(slope, x.shape, "the slope")
    return ops.where(ops.less(x, 0), x * slope, x)


@operator("Gelu")
def _gelu(call: Call) -> Tensor:
    return ops.gelu(call.x, call.choice("approximate", "none", "tanh"))


@operator("IsInf")
def _is_inf(call: Call) -> Any:
    x = call.array(0)
    above = (x == np.inf) & call.flag("detect_positive", True)
    return above | ((x == -np.inf) & call.flag("detect_negative", True))


@operator("Where")
def _where(call: Call) -> Tensor:
    condition, a, b = (call.tensor(i) for i in (0, 1, 2))
    call.broadcast(condition, a, b)
    return ops.where(condition, a, b)
