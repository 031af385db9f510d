"""ONNX's operators, a function each: Tensors and the node's attributes in, Tensors out.

The operators are those of opset 13 to 17, floats of 32 and 64 bits, as far as needle has ops for
them. Absent optional inputs are None. Where an operator takes sizes or axes as an input, they must
be known before the model runs: ``Call.numbers`` says so otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from .. import ops
from ..autograd import Tensor
from .package import OnnxError

Pair = tuple[int, int]


@dataclass(frozen=True)
class Call:
    """One node as it runs: its operator, its name, its inputs and its attributes."""

    kind: str
    name: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.tensor(0)

    def tensor(self, index: int) -> Tensor:
        """An input that has to be there."""
        if index >= len(self.inputs) or self.inputs[index] is None:
            raise self.refuse(f"input {index} must be given")
        found: Tensor = self.inputs[index]
        return found

    def optional(self, index: int) -> Tensor | None:
        """An input that need not be there."""
        return self.inputs[index] if index < len(self.inputs) else None

    def numbers(self, index: int) -> NumpyArray[Any] | None:
        """The values of an optional input that says how to compute, on the host."""
        given = self.optional(index)
        return None if given is None else given.numpy()

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def refuse(self, why: str) -> OnnxError:
        """The error that names this node."""
        return OnnxError(f"onnx: {self.kind} (node {self.name!r}): {why}")

    def only(self, **values: Any) -> None:
        """Refuses an attribute that has another value than the one that is computed."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise self.refuse(f"{name} must be {value!r}, got {self.get(name)!r}")


Operator = Callable[[Call], Any]
OPERATORS: dict[str, Operator] = {}


def operator(name: str) -> Callable[[Operator], Operator]:
    """Registers the function of an operator."""

    def register(function: Operator) -> Operator:
        OPERATORS[name] = function
        return function

    return register


def _one(name: str, function: Callable[[Tensor], Tensor]) -> None:
    OPERATORS[name] = lambda call: function(call.x)


def _many(name: str, function: Callable[[Any, Any], Tensor]) -> None:
    """Two inputs that broadcast, or any number where ONNX allows it, in pairs from the left."""

    def run(call: Call) -> Any:
        return reduce(function, (call.tensor(i) for i in range(len(call.inputs))))

    OPERATORS[name] = run


_one("Abs", ops.abs)
_one("Cos", ops.cos)
_one("Erf", ops.erf)
_one("Exp", ops.exp)
_one("Identity", lambda x: x)
_one("Log", ops.log)
_one("Neg", lambda x: -x)
_one("Reciprocal", lambda x: x**-1)
_one("Relu", ops.relu)
_one("Sigmoid", ops.sigmoid)
_one("Sin", ops.sin)
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
        raise call.refuse(f"must be of floats, got {call.x.dtype}; cast them first")
    return call.x / call.tensor(1)


@operator("Clip")
def _clip(call: Call) -> Tensor:
    low, high = (None if v is None else v.item() for v in (call.numbers(1), call.numbers(2)))
    return ops.clip(call.x, low, high)


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


# ---- windows -------------------------------------------------------------------------------------


@operator("Conv")
def _conv(call: Call) -> Tensor:
    x, weight, bias = call.x, call.tensor(1), call.optional(2)
    sizes = tuple(weight.shape[2:])
    if len(sizes) != 2:
        raise call.refuse(f"must be over images (N, C, H, W), got a weight of shape {weight.shape}")
    dilation = _pair(call, "dilations", 1)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, sizes, strict=True)]
    x, padding = _padded(call, x, reach, 0.0, limited=False)
    stride, groups = _pair(call, "strides", 1), call.get("group", 1)
    return ops.conv2d(x, weight, bias, stride, padding, dilation, groups)


@operator("MaxPool")
def _max_pool(call: Call) -> Tensor:
    call.only(ceil_mode=0, storage_order=0, dilations=[1, 1])
    kernel = _pair(call, "kernel_shape", 1)
    x, padding = _padded(call, call.x, kernel, -math.inf)
    return ops.max_pool2d(x, kernel, _pair(call, "strides", 1), padding)


@operator("AveragePool")
def _average_pool(call: Call) -> Tensor:
    call.only(ceil_mode=0, dilations=[1, 1])
    kernel, stride = _pair(call, "kernel_shape", 1), _pair(call, "strides", 1)
    x, padding = _padded(call, call.x, kernel, 0.0)
    means = ops.avg_pool2d(x, kernel, stride, padding)
    inside = _pads(call, call.x, kernel)
    if call.get("count_include_pad", 0) or not any(inside):
        return means
    ones = Tensor(np.ones((1, 1, *call.x.shape[2:])), device=x.device, dtype=x.dtype)
    counted, padding = _padded(call, ones, kernel, 0.0)  # the share of each window inside the image
    return means / ops.avg_pool2d(counted, kernel, stride, padding)


@operator("GlobalAveragePool")
def _global_average_pool(call: Call) -> Tensor:
    return ops.mean(call.x, axes=tuple(range(2, len(call.x.shape))), keepdims=True)


def _pair(call: Call, name: str, default: int) -> Pair:
    values = call.get(name, [default, default])
    if len(values) != 2:
        raise call.refuse(f"{name} must have two sizes (images), got {values}")
    return int(values[0]), int(values[1])


def _pads(call: Call, x: Tensor, reach: Sequence[int]) -> list[int]:
    """[top, left, bottom, right], from ``pads`` or ``auto_pad``."""
    mode = call.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return [int(pad) for pad in call.get("pads", [0, 0, 0, 0])]
    if mode == "VALID":
        return [0, 0, 0, 0]
    begin, end = [], []
    for size, span, step in zip(x.shape[2:], reach, _pair(call, "strides", 1), strict=True):
        total = max((-(-size // step) - 1) * step + span - size, 0)
        less, more = total // 2, total - total // 2
        begin.append(less if mode == "SAME_UPPER" else more)
        end.append(more if mode == "SAME_UPPER" else less)
    return [*begin, *end]


def _padded(
    call: Call, x: Tensor, reach: Sequence[int], value: float, limited: bool = True
) -> tuple[Tensor, Pair]:
    """x and the padding that the op itself is to do: both sides alike, and where it is ``limited``
    at most half a window; else the padding is done here."""
    top, left, bottom, right = _pads(call, x, reach)
    fits = not limited or (2 * top <= reach[0] and 2 * left <= reach[1])
    if (top, left) == (bottom, right) and fits and min(top, left) >= 0:
        return x, (top, left)
    return pad(call, x, [0, 0, top, left, 0, 0, bottom, right], value), (0, 0)


def pad(call: Call, x: Tensor, widths: Sequence[int], value: float) -> Tensor:
    """x with constant borders: the widths before each axis, then those behind each."""
    count = len(x.shape)
    if min(widths) < 0:
        raise call.refuse(f"pads must not be negative, got {list(widths)}")
    for axis in range(count):
        for width, before in ((widths[axis], True), (widths[count + axis], False)):
            if not width:
                continue
            shape = [*x.shape]
            shape[axis] = width
            border = Tensor(np.full(shape, value), device=x.device, dtype=x.dtype)
            border.requires_grad = False
            x = ops.concatenate((border, x) if before else (x, border), axis=axis)
    return x


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
    """Over the axes from ``axis`` on; also the mean and 1/s, s = sqrt(var + epsilon)."""
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


@operator("Pad")
def _pad(call: Call) -> Tensor:
    call.only(mode="constant")
    widths, value = call.numbers(1), call.numbers(2)
    if widths is None or call.optional(3) is not None:
        raise call.refuse("pads must be given for every axis, and axes not")
    return pad(call, call.x, [int(w) for w in widths], 0.0 if value is None else value.item())


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
        raise call.refuse(f"must be numbers, got {', '.join(call.attributes)}")
    kind = None if name == "value" else np.float32 if "float" in name else np.int64
    return np.asarray(call.get(name), kind)
