"""Export to ONNX, which records a forward pass as a graph and converts each op to nodes.

Values that do not depend on the input (weights in another layout, batch norm's scale and shift) are
computed at export and stored. The rules are in rules/, one for each op; an op without a rule raises
an error that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..autograd import Tensor
from ..autograd.graph import Op, enable_grad, find_topo_sort
from ..contexts import context
from ..errors import ShapeError, warn_caller
from ..nn import Module
from . import rules  # noqa: F401  importing registers the rules
from .exported_graph import EXPORTS, POSITIONS, Graph
from .package import OPSET, OnnxError, blamed, onnx_package

Array = NumpyArray[Any]
IR_VERSION = 8
"""Version of the file format released with OPSET."""
BATCHES = (13, 17)
"""Batch sizes for a second attempt, unlikely to equal other sizes in a model."""


def save(model: Module, path: str | os.PathLike[str], example: Any, batch_axis: int = 0) -> None:
    """Write ``model`` in evaluation mode to an ONNX file.

    ``example``, ``batch_axis`` and errors are those of ``export``. Raises TypeError if model and
    path are swapped.
    """
    if not isinstance(model, Module) or not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            "onnx.save: the arguments must be a Module, a path and an example, got "
            f"{type(model).__name__} and {type(path).__name__}; call save(model, path, example)"
        )
    content = export(model, example, batch_axis).SerializeToString()
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OnnxError(f"onnx.save: could not write {path}: {error.strerror}") from error


def export(model: Module, example: Any, batch_axis: int = 0) -> Any:
    """Return ``model`` in evaluation mode as an ``onnx.ModelProto``.

    The input is named "input". The outputs are "output", then "output_1" and so on if the model
    returns several tensors; outputs that do not depend on the input are left out, with a warning.

    example: an input of the expected shape, such as images (N, C, H, W), as a Tensor or array of
    floats or integers. The exported model accepts any size along ``batch_axis``, 1 for sequences
    (T, N, ...). Raises OnnxError for an op without an ONNX operator, or if the result depends on
    values in a way that the graph does not show. Raises ShapeError if the example has no batch axis
    or is a shape instead of an array.
    """
    onnx = onnx_package()
    first = np.asarray(example.numpy() if isinstance(example, Tensor) else example)
    is_shape = isinstance(example, tuple) and all(isinstance(size, int) for size in example)
    if is_shape or not 0 <= batch_axis < first.ndim:
        raise ShapeError(
            f"onnx.export: the example must be a Tensor or array (N, ...), got {example!r}; pass "
            "an input such as needle.zeros(1, 3, 32, 32), not its shape"
        )
    graph = _graph(
        model, [first, _longer(first, batch_axis, first.shape[batch_axis] + 1)], batch_axis
    )
    if graph is None:
        graph = _graph(model, [_longer(first, batch_axis, n) for n in BATCHES], batch_axis)
    if graph is None:
        raise OnnxError(
            f"onnx.export: the forward pass of {type(model).__name__} must be the same for every "
            "input and batch size, but it uses values or sizes outside the graph; use ops instead, "
            "and batch_axis=1 for sequences (T, N, ...)"
        )
    with blamed("onnx.export"):
        proto = onnx.helper.make_model(
            graph,
            producer_name="needle",
            opset_imports=[onnx.helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(proto, full_check=True)
    return proto


def _longer(first: Array, axis: int, size: int) -> Array:
    """Return an input with different values and batch size; ids stay in the example's range."""
    shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    rng = np.random.default_rng(size)
    if first.dtype.kind == "f":
        return rng.standard_normal(shape).astype(first.dtype)
    return rng.integers(0, max(first.max(initial=0) + 1, 2), shape).astype(first.dtype)


def _graph(model: Module, inputs: list[Array], batch_axis: int) -> Any:
    """Return the graph as an ``onnx.GraphProto``; None if it differs between two inputs."""
    runs = [_record(model, pixels) for pixels in inputs]
    orders = [find_topo_sort(results) for _, results in runs]
    kinds = [[type(node.op) for node in order] for order in orders]
    if kinds[0] != kinds[1]:
        return None
    graphs = []
    for i, (x, results) in enumerate(runs):
        twins = dict(zip(orders[i], orders[1 - i], strict=True))
        graph = Graph(x, batch_axis, {**twins, x: runs[1 - i][0]})
        graph.parameters = {id(p): name for name, p in model.named_parameters()}
        results = _fill(graph, orders[i], results)
        if not results:
            raise OnnxError(
                f"onnx.export: the output of {type(model).__name__} does not depend on its input"
            )
        proto = graph.proto(type(model).__name__, results)
        graphs.append((graph.facts(), proto))
    (facts, proto), (again, _) = graphs
    if facts != again:
        return None
    if left_out := len(runs[0][1]) - len(proto.output):
        warn_caller(
            f"onnx.export: {left_out} of {len(runs[0][1])} outputs of {type(model).__name__} do "
            "not depend on the input, as far as a gradient could tell, and are left out",
            UserWarning,
        )
    return proto


def _record(model: Module, pixels: Array) -> tuple[Tensor, list[Any]]:
    """Run the model; return its input and its results, with the graph of ops."""
    device = next((p.device for p in model.parameters()), None)
    x = Tensor(pixels, device=device, dtype=pixels.dtype, requires_grad=True)
    with enable_grad(), _every_op_recorded(model):
        y = model(x)
    return x, list(_leaves(y))


def _leaves(results: Any) -> Iterator[Any]:
    if isinstance(results, Tensor):
        yield results
    elif results is not None:
        for each in results:
            yield from _leaves(each)


@context
def _every_op_recorded(model: Module) -> Iterator[None]:
    """Set evaluation mode, and record even ops without a gradient, such as comparisons."""
    was_training = model.training
    hidden = [kind for kind in _kinds(Op) if not kind.differentiable]
    for kind in hidden:
        kind.differentiable = True
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
        for kind in hidden:
            kind.differentiable = False


def _kinds(kind: type[Op]) -> Iterator[type[Op]]:
    """Yield the classes of all ops, including the program's own."""
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


def _fill(graph: Graph, order: list[Any], results: list[Any]) -> list[Any]:
    """Add nodes for ops that depend on the input; return the results that depend on it."""
    graph.names[graph.x] = "input"
    moving = {graph.x}
    for node in order:
        if node.op is None:
            continue
        positions = POSITIONS.get(type(node.op), lambda op: [])(node.op)
        if any(source in moving for source in node.inputs) or any(
            graph.holds_input(each) for each in positions
        ):
            moving.add(node)
            graph.names[node] = _export(graph, node)
    return [each for each in results if each in moving]


def _export(graph: Graph, node: Any) -> str:
    rule = EXPORTS.get(type(node.op))
    if rule is None:
        shapes = ", ".join(str(getattr(source, "shape", "a tuple")) for source in node.inputs)
        known = ", ".join(sorted(kind.__name__ for kind in EXPORTS))
        raise OnnxError(
            f"onnx.export: there is no ONNX operator for the op {type(node.op).__name__} (with "
            f"inputs {shapes}); supported: {known}. Replace it in the model, or add a rule to "
            "needle.onnx.rules"
        )
    return graph.add(rule(graph, node), getattr(node, "dtype", None))  # a tuple has no dtype
