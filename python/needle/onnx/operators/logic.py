"""Comparisons, logical operators and Where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import OPERATORS, Call, operator


def _compared(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def run(call: Call) -> Tensor:
        call.broadcast(call.x, call.tensor(1))
        return function(call.x, call.tensor(1))

    OPERATORS[name] = run


def _by_numpy(name: str, function: Callable[..., Any]) -> None:
    def run(call: Call) -> Tensor:
        call.broadcast(*(call.tensor(i) for i in range(len(call.inputs))))
        return call.on_host(function)

    OPERATORS[name] = run


_compared("Equal", ops.equal)
_compared("Greater", ops.greater)
_compared("GreaterOrEqual", ops.greater_equal)
_compared("Less", ops.less)
_compared("LessOrEqual", ops.less_equal)
_by_numpy("And", np.logical_and)
_by_numpy("Or", np.logical_or)
_by_numpy("Xor", np.logical_xor)
_by_numpy("Not", np.logical_not)
_by_numpy("BitwiseAnd", np.bitwise_and)
_by_numpy("BitwiseOr", np.bitwise_or)
_by_numpy("BitwiseXor", np.bitwise_xor)
_by_numpy("BitwiseNot", np.bitwise_not)


@operator("IsNaN")
def _is_nan(call: Call) -> Tensor:
    return ops.not_equal(call.x, call.x)


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
