"""ONNX's operators, one function each: from Tensors and a node's attributes to Tensors.

Opsets 13 to 17 are supported, with 32- and 64-bit floats, as far as needle has the ops. Window
operators and padding are in windows.py. Absent optional inputs are None. Sizes or axes that are
inputs are read when the operator runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from .. import ops
from ..autograd import Tensor
from .call import OPERATORS, Call, operator


def _one(name: str, function: Callable[[Tensor], Tensor]) -> None:
    OPERATORS[name] = lambda call: function(call.x)


def _many(name: str, function: Callable[[Any, Any], Tensor]) -> None:
    """Register an operator of two or more broadcasting inputs, applied in pairs from the left."""

    def run(call: Call) -> Any:
        return reduce(function, (call.tensor(i) for i in range(len(call.inputs))))

    OPERATORS[name] = run


_one("Abs", ops.abs)
_one("Cos", ops.cos)
_one("Erf", ops.erf)
_one("Exp", ops.exp)
_one("HardSwish", ops.hardswish)
_one("Identity", lambda x: x)
_one("Log", ops.log)
_one("Neg", lambda x: -x)
_one("Reciprocal", lambda x: x**-1)
_one("Relu", ops.relu)
_one("Sigmoid", ops.sigmoid)
_one("Sin", ops.sin)
_one("Softplus", ops.softplus)
_one("Sqrt", ops.sqrt)
_one("Tanh", ops.tanh)
_many("Add", lambda a, b: a + b)
_many("Sub", lambda a, b: a - b)
_many("Mul", lambda a, b: a * b)
_many("Pow", lambda a, b: ops.astype(ops.power(a, b), a.dtype))
_many("Max", ops.maximum)
_many("Min", ops.minimum)
_many("Sum", lambda a, b: a + b)
_many("MatMul", ops.matmul)


@operator("Div")
def _divide(call: Call) -> Tensor:
    if np.dtype(call.x.dtype).kind != "f":
        raise call.refuse(f"inputs must be floats, got {call.x.dtype}; cast them first")
    return call.x / call.tensor(1)


@operator("Clip")
def _clip(call: Call) -> Tensor:
    low, high = (None if v is None else v.item() for v in (call.numbers(1), call.numbers(2)))
    return ops.clip(call.x, low, high)


@operator("Elu")
def _elu(call: Call) -> Tensor:
    return ops.elu(call.x, call.get("alpha", 1.0))


@operator("LeakyRelu")
def _leaky_relu(call: Call) -> Tensor:
    return ops.leaky_relu(call.x, call.get("alpha", 0.01))


@operator("Cast")
def _cast(call: Call) -> Tensor:
    return ops.astype(call.x, call.get("to"))


@operator("Dropout")
def _dropout(call: Call) -> Tensor:
    mode = call.numbers(2)
    if mode is not None and mode.any():
        raise call.refuse("training_mode must be false; import models for evaluation")
    return call.x


# ---- normalisation, sums, products ---------------------------------------------------------------


@operator("BatchNormalization")
def _batch_norm(call: Call) -> Tensor:
    call.only(training_mode=0)
    x, (scale, bias, mean, var) = call.x, (call.tensor(i) for i in (1, 2, 3, 4))
    factor = scale / ops.sqrt(var + call.get("epsilon", 1e-5))
    shape = (1, factor.shape[0]) + (1,) * (len(x.shape) - 2)
    return x * ops.reshape(factor, shape) + ops.reshape(bias - mean * factor, shape)


@operator("LayerNormalization")
def _layer_norm(call: Call) -> tuple[Tensor, ...]:
    """Return the input normalised over the axes from ``axis`` on, mean, and 1/sqrt(var + eps)."""
    x, scale, bias = call.x, call.tensor(1), call.optional(2)
    count = len(x.shape)
    axes = tuple(range(call.get("axis", -1) % count, count))
    mean = ops.mean(x, axes=axes, keepdims=True)
    centred = x - mean
    var = ops.mean(centred * centred, axes=axes, keepdims=True)
    inverse = (var + call.get("epsilon", 1e-5)) ** -0.5
    y = centred * inverse * scale
    return y if bias is None else y + bias, mean, inverse


@operator("Gemm")
def _gemm(call: Call) -> Tensor:
    a, b, c = call.x, call.tensor(1), call.optional(2)
    a = ops.transpose(a) if call.get("transA", 0) else a
    b = ops.transpose(b) if call.get("transB", 0) else b
    y = ops.matmul(a, b)
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    y = y if alpha == 1.0 else y * alpha
    return y if c is None else y + (c if beta == 1.0 else c * beta)


@operator("Softmax")
def _softmax(call: Call) -> Tensor:
    return ops.softmax(call.x, axis=call.get("axis", -1))


@operator("LogSoftmax")
def _log_softmax(call: Call) -> Tensor:
    return ops.logsoftmax(call.x, axis=call.get("axis", -1))


def _reduction(name: str, function: Callable[..., Tensor]) -> None:
    def run(call: Call) -> Tensor:
        given = call.numbers(1)
        listed = call.get("axes") if given is None else [int(axis) for axis in given]
        if not listed and call.get("noop_with_empty_axes", 0):
            return call.x
        keep = bool(call.get("keepdims", 1))
        return function(call.x, axes=tuple(listed) if listed else None, keepdims=keep)

    OPERATORS[name] = run


_reduction("ReduceLogSumExp", ops.logsumexp)
_reduction("ReduceMax", ops.max)
_reduction("ReduceMean", ops.mean)
_reduction("ReduceMin", ops.min)
_reduction("ReduceSum", ops.summation)


# ---- shapes --------------------------------------------------------------------------------------


@operator("Reshape")
def _reshape(call: Call) -> Tensor:
    x, wanted = call.x, call.numbers(1)
    if wanted is None:
        raise call.refuse("input 1, the shape, must be given")
    sizes = [int(size) for size in wanted]
    if not call.get("allowzero", 0):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return ops.reshape(x, tuple(sizes))


@operator("Flatten")
def _flatten(call: Call) -> Tensor:
    x, axis = call.x, call.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose")
def _transpose(call: Call) -> Tensor:
    order = call.get("perm", list(range(len(call.x.shape)))[::-1])
    return ops.permute(call.x, tuple(order))


@operator("Expand")
def _expand(call: Call) -> Tensor:
    wanted = call.numbers(1)
    sizes = () if wanted is None else tuple(int(size) for size in wanted)
    return ops.broadcast_to(call.x, np.broadcast_shapes(tuple(call.x.shape), sizes))


@operator("Concat")
def _concat(call: Call) -> Tensor:
    return ops.concatenate(call.inputs, axis=call.get("axis"))


@operator("Squeeze")
def _squeeze(call: Call) -> Tensor:
    x, axes = call.x, call.numbers(1)
    ndim = len(x.shape)
    gone = {i for i, size in enumerate(x.shape) if size == 1}
    if axes is not None:
        gone = {int(axis) % ndim for axis in axes}
    return ops.reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in gone))


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> Tensor:
    x, axes = call.x, call.numbers(1)
    wanted = [] if axes is None else [int(axis) for axis in axes]
    ndim = len(x.shape) + len(wanted)
    new, own = {axis % ndim for axis in wanted}, iter(x.shape)
    return ops.reshape(x, tuple(1 if i in new else next(own) for i in range(ndim)))


@operator("Shape")
def _shape(call: Call) -> Tensor:
    sizes = np.array(call.x.shape, np.int64)[call.get("start", 0) : call.get("end")]
    return Tensor(sizes, device=call.x.device, dtype="int64", requires_grad=False)


@operator("Gather")
def _gather(call: Call) -> Tensor:
    axis, index = call.get("axis", 0), call.numbers(1)
    if index is None:
        raise call.refuse("input 1, the indices, must be given")
    before: tuple[Any, ...] = (slice(None),) * (axis % len(call.x.shape))
    return call.x[(*before, index.astype(np.int64))]


@operator("Constant")
def _constant(call: Call) -> Any:
    forms = ("value", "value_float", "value_int", "value_floats", "value_ints")
    name = next((form for form in forms if form in call.attributes), None)
    if name is None:
        raise call.refuse(f"the value must be numbers, got {', '.join(call.attributes)}")
    kind = None if name == "value" else np.float32 if "float" in name else np.int64
    return np.asarray(call.get(name), kind)
