"""ONNX files as modules: stored floats become Parameters, nodes run in their order.

What each operator does is in operators.py and windows.py. A file is data from outside: the onnx
package checks it, nothing of it is executed, and stored values in other files are not followed.
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
from . import operators, windows  # noqa: F401  their functions are in the table from here on
from .call import OPERATORS, Call
from .package import OLDEST, OPSET, OnnxError, onnx_package


class OnnxModel(Module):
    """A graph of ONNX operators. Called with its inputs in order; one output, or a tuple of them.

    ``inputs`` and ``outputs`` are names, ``weights`` the stored floats by name, as Parameters.
    """

    def __init__(self, proto: Any, device: Device | str | None = None, check: bool = True) -> None:
        """From an ``onnx.ModelProto``; OnnxError names the node that has no counterpart here.

        ``check``: first whether it keeps ONNX's own rules.
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
        """Runs the nodes. OnnxError names the one that cannot be computed."""
        if len(inputs) != len(self.inputs):
            raise OnnxError(
                f"onnx: the model takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), got "
                f"{len(inputs)}; pass each"
            )
        values: dict[str, Any] = {"": None, **self.weights, **self.constants}
        values.update(zip(self.inputs, inputs, strict=True))
        for node in self.nodes:
            results = node.run(values, self.device)
            values.update(zip(node.outputs, results, strict=False))
        found = tuple(values[name] for name in self.outputs)
        return found[0] if len(found) == 1 else found


class _Node:
    """A node with its attributes read once."""

    def __init__(self, onnx: Any, proto: Any, index: int) -> None:
        self.kind, self.name = proto.op_type, proto.name or f"number {index}"
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.attributes = {each.name: _attribute(onnx, each) for each in proto.attribute}
        if self.kind == "Cast":
            self.attributes["to"] = onnx.helper.tensor_dtype_to_np_dtype(self.attributes["to"])
        if proto.op_type not in OPERATORS or proto.domain not in ("", "ai.onnx"):
            raise OnnxError(
                f"onnx: the operator {proto.domain and proto.domain + '.'}{self.kind} of node "
                f"{self.name!r} (inputs {', '.join(self.inputs)}) is not known; known: "
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
                f"onnx: {self.kind} (node {self.name!r}): its further outputs "
                f"{', '.join(missing)} are not computed here; rewrite the model"
            )
        return tuple(r if isinstance(r, Tensor) else _tensor(r, device) for r in results)


def load(path: str | os.PathLike[str], device: Device | str | None = None) -> OnnxModel:
    """The model of an ONNX file; OnnxError if it is none or has an operator without counterpart."""
    onnx = onnx_package()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = f"cannot read {path}: {error.strerror}; check the path"
        raise OnnxError(f"onnx.load: {why}") from error
    try:
        proto = onnx.load_model_from_string(content)
    except Exception as error:  # what protobuf raises for damage has no public class
        raise OnnxError(f"onnx.load: {path} is no ONNX file, or damaged ({error})") from error
    return convert(proto, device)


def convert(proto: Any, device: Device | str | None = None) -> OnnxModel:
    """The model of an ``onnx.ModelProto``, as ``load``."""
    return OnnxModel(proto, device)


def _check(onnx: Any, proto: Any) -> None:
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise OnnxError(f"onnx: the model breaks ONNX's own rules: {error}") from error
    for each in _all_stored(proto.graph):
        if each.data_location == onnx.TensorProto.EXTERNAL:
            raise OnnxError(
                f"onnx: the stored value {each.name!r} lies in another file, which is not read; "
                "save the model into one file"
            )
    versions = [each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")]
    if any(version < OLDEST for version in versions):
        raise OnnxError(
            f"onnx: operators of opset {OLDEST} and later are read (written is {OPSET}), got "
            f"{versions[0]}; convert it with onnx.version_converter"
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
        raise OnnxError(f"onnx: values must be numbers or bools, got dtype {array.dtype}")
    tensor = Tensor(array.copy(), device=device, dtype=array.dtype)
    tensor.requires_grad = False
    return tensor
