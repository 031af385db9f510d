"""ONNX files as modules: stored floats become Parameters, nodes run in their order.

The operators are in operators.py and windows.py. A file is untrusted data: the onnx package checks
it, none of it is executed, and values stored in other files are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray as NumpyArray

from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import NeedleError
from ..nn import Module, Parameter
from . import operators, windows  # noqa: F401  importing registers their functions
from .call import OPERATORS, Call
from .package import OLDEST, OPSET, OnnxError, onnx_package


class OnnxModel(Module):
    """A graph of ONNX operators; called with its inputs in order, returns one output or a tuple.

    ``inputs`` and ``outputs`` are names; ``weights`` are the stored floats by name, as Parameters.
    """

    def __init__(self, proto: Any, device: Device | str | None = None, check: bool = True) -> None:
        """Build the module from an ``onnx.ModelProto``; OnnxError names an unsupported node.

        ``check``: validate the model with onnx first.
        """
        super().__init__()
        onnx = onnx_package()
        if check:
            _check(onnx, proto)
        graph = proto.graph
        stored = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        self.inputs = [value.name for value in graph.input if value.name not in stored]
        self.outputs = [value.name for value in graph.output]
        self.nodes = [_Node(onnx, node, i) for i, node in enumerate(graph.node)]
        self.device = device
        self.weights: dict[str, Parameter] = {}
        self.constants: dict[str, Tensor] = {}
        for name, array in stored.items():
            if array.dtype.kind == "f":
                tensor = _tensor(array, device)
                self.weights[name] = Parameter(tensor)
            else:
                self.constants[name] = _tensor(array, device)

    def forward(self, *inputs: Any) -> Any:
        """Run the nodes; OnnxError names a node that cannot be computed."""
        if len(inputs) != len(self.inputs):
            raise OnnxError(
                f"onnx: the model takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), got "
                f"{len(inputs)}; pass all of them"
            )
        values: dict[str, Any] = {"": None, **self.weights, **self.constants}
        values.update(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            results = node.run(values, self.device)
            values.update(zip(node.outputs, results, strict=False))
        found = tuple(values[name] for name in self.outputs)
        return found[0] if len(found) == 1 else found


class _Node:
    """A node whose attributes have been decoded."""

    def __init__(self, onnx: Any, proto: Any, index: int) -> None:
        self.kind, self.name = proto.op_type, proto.name or f"number {index}"
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.attributes = {each.name: _attribute(onnx, each) for each in proto.attribute}
        if self.kind == "Cast":
            self.attributes["to"] = onnx.helper.tensor_dtype_to_np_dtype(self.attributes["to"])
        if proto.op_type not in OPERATORS or proto.domain not in ("", "ai.onnx"):
            raise OnnxError(
                f"onnx: the operator {proto.domain and proto.domain + '.'}{self.kind} of node "
                f"{self.name!r} (inputs {', '.join(self.inputs)}) is not known; supported: "
                f"{', '.join(sorted(OPERATORS))}. Rewrite the model, or register a function in "
                "needle.onnx.call.OPERATORS"
            )

    def run(self, values: dict[str, Any], device: Any) -> tuple[Any, ...]:
        inputs = tuple(values[name] for name in self.inputs)
        try:
            result = OPERATORS[self.kind](Call(self.kind, self.name, inputs, self.attributes))
        except OnnxError:
            raise
        except (NeedleError, ValueError, TypeError, LookupError) as error:
            raise OnnxError(f"onnx: {self.kind} (node {self.name!r}): {error}") from error
        results = result if isinstance(result, tuple) else (result,)
        missing = [name for name in self.outputs[len(results) :] if name]
        if missing:
            raise OnnxError(
                f"onnx: {self.kind} (node {self.name!r}): its optional outputs "
                f"{', '.join(missing)} are not supported; rewrite the model"
            )
        return tuple(r if isinstance(r, Tensor) else _tensor(r, device) for r in results)


def load(path: str | os.PathLike[str], device: Device | str | None = None) -> OnnxModel:
    """Return the model of an ONNX file.

    OnnxError if the file cannot be read, is damaged, or has an unsupported operator.
    """
    onnx = onnx_package()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = f"cannot read {path}: {error.strerror}; check the path"
        raise OnnxError(f"onnx.load: {why}") from error
    try:
        proto = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf has no public class for this error
        raise OnnxError(
            f"onnx.load: {path} is no ONNX file, or damaged ({error}); use another copy"
        ) from error
    return convert(proto, device)


def convert(proto: Any, device: Device | str | None = None) -> OnnxModel:
    """Return the model of an ``onnx.ModelProto``; errors as in ``load``."""
    return OnnxModel(proto, device)


def _check(onnx: Any, proto: Any) -> None:
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise OnnxError(f"onnx: the model violates ONNX's rules: {error}") from error
    for each in _all_stored(proto.graph):
        if each.data_location == onnx.TensorProto.EXTERNAL:
            raise OnnxError(
                f"onnx: the stored value {each.name!r} is in another file, which is not read; "
                "save the model as one file"
            )
    versions = [each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")]
    if any(version < OLDEST for version in versions):
        raise OnnxError(
            f"onnx: the opset must be {OLDEST} or later (exports use {OPSET}), got {versions[0]}; "
            "convert the model with onnx.version_converter"
        )


def _all_stored(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        yield from (each.t for each in node.attribute if each.HasField("t"))


def _attribute(onnx: Any, proto: Any) -> Any:
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return list(value) if isinstance(value, (list, tuple)) or hasattr(value, "append") else value


def _tensor(array: NumpyArray[Any], device: Any) -> Tensor:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise OnnxError(
            f"onnx: values must be numbers or bools, got dtype {array.dtype}; convert them"
        )
    tensor = Tensor(array.copy(), device=device, dtype=array.dtype)
    tensor.requires_grad = False
    return tensor
