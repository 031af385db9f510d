"""Export to ONNX: a forward pass is recorded as a graph, and each op becomes a node.

Values that do not depend on the input (weights in another layout, batch norm's scale and shift) are
computed now and stored. EXPORTS has a row for each op; an op without a row is an error that names
it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..autograd import Tensor, Value
from ..errors import ShapeError
from ..graph import Op, enable_grad, find_topo_sort
from ..nn import Module
from ..ops import (
    arithmetic,
    convolution,
    elementwise,
    indexing,
    linalg,
    loss,
    normalization,
    pooling,
    reduction,
    selection,
    shape,
    tuples,
)
from ..shapes import normalize_axes, normalize_axis
from .package import OPSET, OnnxError, onnx_package

Array = NumpyArray[Any]
IR_VERSION = 8
"""The version of the file format that was released with OPSET."""


def save(model: Module, path: str | os.PathLike[str], example: Any) -> None:
    """Write ``model`` in evaluation mode to an ONNX file.

    ``example`` and errors as in ``export``.
    """
    content = export(model, example).SerializeToString()
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OnnxError(f"onnx.save: could not write {path}: {error.strerror}") from error


def export(model: Module, example: Any) -> Any:
    """Return ``model`` in evaluation mode as an ``onnx.ModelProto`` with one input and one output.

    Their names are "input" and "output". example: an input (N, ...) of the expected shape, as a
    Tensor or array of floats; the exported model accepts any N. OnnxError names an op without ONNX
    operator, or says that the result depends on values in a way that the graph does not show.
    ShapeError if the example has no batch axis or is a shape instead of an array.
    """
    onnx = onnx_package()
    first = np.asarray(example.numpy() if isinstance(example, Tensor) else example)
    is_shape = isinstance(example, tuple) and all(isinstance(size, int) for size in example)
    if is_shape or first.ndim == 0:
        raise ShapeError(
            f"onnx.export: the example must be a Tensor or array (N, ...), got {example!r}; pass "
            "an input such as needle.zeros(1, 3, 32, 32), not its shape"
        )
    longer = (first.shape[0] + 1, *first.shape[1:])
    other = np.random.default_rng(0).standard_normal(longer).astype(first.dtype)
    graph, again = (_record(model, pixels) for pixels in (first, other))
    if graph.facts() != again.facts():
        raise OnnxError(
            f"onnx.export: the forward pass of {type(model).__name__} must be the same for every "
            "input and batch size, but it uses values or sizes outside the graph; use ops instead"
        )
    proto = onnx.helper.make_model(
        graph.proto(type(model).__name__),
        producer_name="needle",
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


@dataclass
class Graph:
    """Nodes and stored values in the order of their discovery; ``batch`` is the example's N."""

    batch: int
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    dtypes: tuple[Any, Any] = (np.float32, np.float32)
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = field(default_factory=list)
    stored: dict[str, Array] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)
    parameters: dict[int, str] = field(default_factory=dict)

    def add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), name, attributes))
        return name

    def store(self, value: Any, name: str = "constant") -> str:
        """Store a value in the file; return its name."""
        array = np.asarray(value)
        unique = name if name not in self.stored else f"{name}_{len(self.stored)}"
        self.stored[unique] = array
        return unique

    def of(self, value: Any) -> str:
        """Return the name of a node's input: the output of an earlier node, or a stored value."""
        if value not in self.names:
            self.names[value] = self.store(value.numpy(), self._origin(value))
        return self.names[value]

    def transposed(self, value: Any, axes: tuple[int, ...]) -> str:
        """The name of a value with its axes in another order: a stored value or a node's output."""
        if self.is_stored(value):
            return self.store(value.numpy().transpose(axes), self._origin(value))
        return self.add("Transpose", [self.of(value)], perm=list(axes))

    def is_stored(self, value: Any) -> bool:
        """Return True if the value does not depend on the model's input."""
        return value not in self.names or self.names[value] in self.stored

    def like(self, value: Any, number: float) -> str:
        """Store a number with the dtype of ``value``; return its name."""
        return self.store(np.asarray(number, value.dtype))

    def facts(self) -> list[Any]:
        """Return everything that must be equal for different inputs."""
        return [self.nodes, [(n, a.dtype, a.shape, a.tobytes()) for n, a in self.stored.items()]]

    def proto(self, name: str) -> Any:
        """Return the graph as an ``onnx.GraphProto``."""
        onnx = onnx_package()
        kinds = [onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in self.dtypes]
        inputs, outputs = (
            onnx.helper.make_tensor_value_info(label, kind, [f"{label}_rows", *sizes[1:]])
            for label, kind, sizes in zip(("input", "output"), kinds, self.shapes, strict=True)
        )
        nodes = [
            onnx.helper.make_node(kind, inputs, [output], name=output, **attributes)
            for kind, inputs, output, attributes in self.nodes
        ]
        stored = [onnx.numpy_helper.from_array(a.copy(), n) for n, a in self.stored.items()]
        return onnx.helper.make_graph(nodes, name, [inputs], [outputs], stored)

    def _origin(self, value: Value) -> str:
        """Return the name of the parameter or buffer behind a stored value, else "constant"."""
        for node in find_topo_sort([value]):
            if id(node) in self.parameters:
                return self.parameters[id(node)]
        return "constant"


def _record(model: Module, pixels: Array) -> Graph:
    """Run the model and convert the recorded graph."""
    was_training = model.training
    device = next((p.device for p in model.parameters()), None)
    x = Tensor(pixels, device=device, dtype=pixels.dtype, requires_grad=True)
    model.eval()
    try:
        with enable_grad():
            y = model(x)
    finally:
        model.train(was_training)
    graph = Graph(pixels.shape[0], (pixels.shape, tuple(y.shape)), (pixels.dtype, y.dtype))
    graph.parameters = {id(p): name for name, p in model.named_parameters()}
    graph.names[x] = "input"
    moving = {x}
    for node in find_topo_sort([y]):
        if node.op is not None and any(source in moving for source in node.inputs):
            moving.add(node)
            graph.names[node] = _export(graph, node)
    if y not in moving:
        raise OnnxError(f"onnx.export: the output of {type(model).__name__} ignores its input")
    graph.nodes.append(("Identity", [graph.names[y]], "output", {}))
    return graph


def _export(graph: Graph, node: Any) -> str:
    rule = EXPORTS.get(type(node.op))
    if rule is None:
        shapes = ", ".join(str(getattr(source, "shape", "a tuple")) for source in node.inputs)
        known = ", ".join(sorted(kind.__name__ for kind in EXPORTS))
        raise OnnxError(
            f"onnx.export: there is no ONNX operator for the op {type(node.op).__name__} (with "
            f"inputs {shapes}); supported: {known}. Replace it in the model, or add a row to "
            "needle.onnx.exporting.EXPORTS"
        )
    return rule(graph, node)


# ---- export rules, one row per op ----------------------------------------------------------------

Rule = Callable[[Graph, Any], str]


def _plain(kind: str) -> Rule:
    """Return the rule of an operator with the same inputs and without attributes."""
    return lambda graph, node: graph.add(kind, [graph.of(source) for source in node.inputs])


def _scalar(kind: str, reverse: bool = False) -> Rule:
    """Return the rule of an op with a number, which becomes an operator of two inputs."""

    def rule(graph: Graph, node: Any) -> str:
        (source,) = node.inputs
        names = [graph.of(source), graph.like(source, node.op.scalar)]
        return graph.add(kind, names[::-1] if reverse else names)

    return rule


def _conv(graph: Graph, node: Any) -> str:
    """ONNX has the weight as (O, C/groups, KH, KW)."""
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


def _bias_relu(graph: Graph, node: Any) -> str:
    return graph.add("Relu", [graph.add("Add", [graph.of(source) for source in node.inputs])])


def _pool(kind: str, **more: Any) -> Rule:
    def rule(graph: Graph, node: Any) -> str:
        kernel, stride, padding = node.op.windows
        sizes = {"kernel_shape": list(kernel), "strides": list(stride)}
        pads = [*padding, *padding]
        return graph.add(kind, [graph.of(node.inputs[0])], **sizes, pads=pads, **more)

    return rule


def _along(kind: str) -> Rule:
    """Return the rule of an op along one axis, which may be negative."""
    return lambda graph, node: graph.add(kind, [graph.of(node.inputs[0])], axis=node.op.axis)


def _reduce(kind: str) -> Rule:
    def rule(graph: Graph, node: Any) -> str:
        source, ndim = node.inputs[0], len(node.inputs[0].shape)
        axes = list(normalize_axes(kind, node.op.axes, ndim))
        keep = int(node.op.keepdims)
        if kind == "ReduceSum":  # the only reduction of opset 17 whose axes are an input
            stored = graph.store(np.array(axes, np.int64))
            return graph.add(kind, [graph.of(source), stored], keepdims=keep)
        return graph.add(kind, [graph.of(source)], axes=axes, keepdims=keep)

    return rule


def _reshape(graph: Graph, node: Any) -> str:
    """Export a reshape for any batch size: 0 copies the input's first size."""
    source, sizes = node.inputs[0], list(node.shape)
    if sizes and sizes[0] == graph.batch == source.shape[0]:
        sizes[0] = 0
    elif sizes and 0 not in sizes and source.shape and source.shape[0] == graph.batch:
        sizes[0] = -1
    stored = graph.store(np.array(sizes, np.int64))
    return graph.add("Reshape", [graph.of(source), stored])


def _expand(graph: Graph, node: Any) -> str:
    """Export a broadcast; sizes that the input already has are left to it."""
    source, sizes = node.inputs[0], list(node.shape)
    own = [1] * (len(sizes) - len(source.shape)) + list(source.shape)
    wanted = [1 if mine == size else size for mine, size in zip(own, sizes, strict=True)]
    return graph.add("Expand", [graph.of(source), graph.store(np.array(wanted, np.int64))])


def _transpose(graph: Graph, node: Any) -> str:
    (source,) = node.inputs
    order = list(range(len(source.shape)))
    if isinstance(node.op, shape.Permute):
        order = [order[axis] for axis in node.op.axes]
    else:
        a, b = node.op.axes or (-2, -1)
        order[a], order[b] = order[b], order[a]
    return graph.add("Transpose", [graph.of(source)], perm=order)


def _concatenate(graph: Graph, node: Any) -> str:
    """Export a concatenation; zeros after an input become padding, which suits any batch size."""
    axis = normalize_axis("concatenate", node.op.axis, len(node.shape))
    first, *others = node.inputs
    zeros = all(graph.is_stored(s) and not s.numpy().any() for s in others)
    if others and zeros and not graph.is_stored(first) and axis:
        pads = np.zeros(2 * len(node.shape), np.int64)
        pads[len(node.shape) + axis] = sum(source.shape[axis] for source in others)
        return graph.add("Pad", [graph.of(first), graph.store(pads)])
    return graph.add("Concat", [graph.of(source) for source in node.inputs], axis=axis)


def _clip(graph: Graph, node: Any) -> str:
    (source,) = node.inputs
    limits = ["" if v is None else graph.like(source, v) for v in (node.op.low, node.op.high)]
    return graph.add("Clip", [graph.of(source), *limits])


def _cast(graph: Graph, node: Any) -> str:
    kind = onnx_package().helper.np_dtype_to_tensor_dtype(np.dtype(node.op.dtype))
    return graph.add("Cast", [graph.of(node.inputs[0])], to=kind)


def _layer_norm(graph: Graph, node: Any) -> str:
    names = [graph.of(source) for source in node.inputs]
    return graph.add("LayerNormalization", names, axis=-1, epsilon=node.op.eps)


def _item(graph: Graph, node: Any) -> str:
    """Export the first result of a layer norm, the only one that is a node's output."""
    (source,) = node.inputs
    if not isinstance(source.op, normalization.LayerNorm) or node.op.index != 0:
        raise OnnxError(
            f"onnx.export: result {node.op.index} of the op {type(source.op).__name__} has no ONNX "
            "operator; use the model in evaluation mode, or replace the op"
        )
    return graph.names[source]


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


def _gelu_tanh(graph: Graph, node: Any) -> str:
    """Export x sigmoid(2 sqrt(2/pi) (x + 0.044715 x**3))."""
    (source,) = node.inputs
    x = graph.of(source)
    cubic = graph.add("Mul", [graph.add("Mul", [x, x]), graph.like(source, 0.044715)])
    factor = graph.add("Add", [cubic, graph.like(source, 1.0)])
    slope = graph.like(source, 2 * (2 / math.pi) ** 0.5)
    return _gated(graph, node, graph.add("Mul", [graph.add("Mul", [x, factor]), slope]))


def _log_sigmoid(graph: Graph, node: Any) -> str:
    negative = graph.add("Neg", [graph.of(node.inputs[0])])
    return graph.add("Neg", [graph.add("Softplus", [negative])])


EXPORTS: dict[type[Op], Rule] = {
    arithmetic.EWiseAdd: _plain("Add"),
    arithmetic.AddScalar: _scalar("Add"),
    arithmetic.EWiseMul: _plain("Mul"),
    arithmetic.MulScalar: _scalar("Mul"),
    arithmetic.Negate: _plain("Neg"),
    arithmetic.EWiseDiv: _plain("Div"),
    arithmetic.DivScalar: _scalar("Div"),
    arithmetic.EWisePow: _plain("Pow"),
    arithmetic.PowerScalar: _scalar("Pow"),
    arithmetic.ScalarPower: _scalar("Pow", reverse=True),
    convolution.Conv2d: _conv,
    elementwise.Abs: _plain("Abs"),
    elementwise.AsType: _cast,
    elementwise.BiasReLU: _bias_relu,
    elementwise.Cos: _plain("Cos"),
    elementwise.Erf: _plain("Erf"),
    elementwise.Exp: _plain("Exp"),
    elementwise.ELU: lambda graph, node: graph.add(
        "Elu", [graph.of(node.inputs[0])], alpha=float(node.op.alpha)
    ),
    elementwise.GELU: _gelu,
    elementwise.GELUTanh: _gelu_tanh,
    elementwise.Hardswish: _plain("HardSwish"),
    elementwise.LeakyReLU: lambda graph, node: graph.add(
        "LeakyRelu", [graph.of(node.inputs[0])], alpha=node.op.negative_slope
    ),
    elementwise.Log: _plain("Log"),
    elementwise.LogSigmoid: _log_sigmoid,
    elementwise.ReLU: _plain("Relu"),
    elementwise.SiLU: lambda graph, node: _gated(graph, node, graph.of(node.inputs[0])),
    elementwise.Sigmoid: _plain("Sigmoid"),
    elementwise.Sin: _plain("Sin"),
    elementwise.Softplus: _plain("Softplus"),
    elementwise.Sqrt: _plain("Sqrt"),
    elementwise.Tanh: _plain("Tanh"),
    indexing.Concatenate: _concatenate,
    linalg.MatMul: _plain("MatMul"),
    loss.LogSoftmax: _along("LogSoftmax"),
    loss.LogSumExp: _reduce("ReduceLogSumExp"),
    loss.Softmax: _along("Softmax"),
    normalization.LayerNorm: _layer_norm,
    pooling.AvgPool2d: _pool("AveragePool", count_include_pad=1),
    pooling.MaxPool2d: _pool("MaxPool"),
    reduction.Max: _reduce("ReduceMax"),
    reduction.Min: _reduce("ReduceMin"),
    reduction.Summation: _reduce("ReduceSum"),
    selection.Clip: _clip,
    selection.Maximum: _plain("Max"),
    selection.Minimum: _plain("Min"),
    shape.BroadcastTo: _expand,
    shape.Permute: _transpose,
    shape.Reshape: _reshape,
    shape.Transpose: _transpose,
    tuples.TupleGetItem: _item,
}
