"""Import ONNX files as modules; floats stored in a file become Parameters.

A file is untrusted data: reading.py and the onnx package check it, and none of it is executed.
Nodes run in the order of the file. Those whose inputs are all constant, such as shape computations,
run once, when the model is created.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ..array_namespace import Device
from ..autograd import Tensor
from ..autograd.graph import no_grad
from ..nn import Module, Parameter
from .call import constant
from .nodes import Node, array_of, dtype_of
from .package import OnnxError, blamed, onnx_package
from .reading import check, read


class OnnxModel(Module):
    """A module that runs an ONNX graph and returns one output or a tuple of outputs.

    It takes the inputs in the order of the file. ``inputs`` and ``outputs`` are names; ``weights``
    holds the stored floats by name, as Parameters. ``place``, which names the file, begins every
    error message.
    """

    def __init__(
        self,
        proto: Any,
        device: Device | str | None = None,
        place: str = "onnx",
    ) -> None:
        """Build the module from an ``onnx.ModelProto``; raise OnnxError for an unsupported node."""
        super().__init__()
        self.device, self.place = device, place
        self.weights: dict[str, Parameter] = {}
        self.constants: dict[str, Tensor] = {}
        onnx = onnx_package()
        with blamed(place):
            opset = check(onnx, proto)
            self._store(onnx, proto.graph)
            self._connect(onnx, proto.graph, opset)

    def forward(self, *inputs: Any) -> Any:
        """Run the nodes; raise OnnxError for a node that cannot be computed."""
        with blamed(self.place):
            if len(inputs) != len(self.inputs):
                raise OnnxError(
                    f"the model takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), got "
                    f"{len(inputs)}; pass all of them"
                )
            values = self.run(inputs)
        found = tuple(values[name] for name in self.outputs)
        return found[0] if len(found) == 1 else found

    def run(self, inputs: Collection[Any]) -> dict[str, Any]:
        """Return all values by name."""
        values: dict[str, Any] = {"": None, **self.weights, **self.constants}
        values.update(
            (name, x if isinstance(x, Tensor) else constant(np.asarray(x), self.device))
            for name, x in zip(self.inputs, inputs, strict=True)
        )
        for node in self.nodes:
            values.update(node.run(values, self.device))
        return values

    def _store(self, onnx: Any, graph: Any) -> None:
        for each in graph.initializer:
            with blamed(f"the stored value {each.name!r}"):
                array = array_of(onnx, each)
                tensor = constant(array, self.device)
            if array.dtype.kind == "f":
                self.weights[each.name] = Parameter(tensor)
            else:
                self.constants[each.name] = tensor

    def _connect(self, onnx: Any, graph: Any, opset: int) -> None:
        """Make the nodes, and run those whose inputs are all constant."""
        stored = {*self.weights, *self.constants}
        given = [value for value in graph.input if value.name not in stored]
        self.inputs = [value.name for value in given]
        for value in given:
            with blamed(f"the input {value.name!r}"):
                dtype_of(onnx, value.type.tensor_type.elem_type)
        self.outputs = [value.name for value in graph.output]
        read = {*self.outputs, *(name for node in graph.node for name in node.input)}
        self.nodes: list[Node] = []
        for i, each in enumerate(graph.node):
            node = Node(onnx, each, i, opset, read)
            if all(name in self.constants or not name for name in node.inputs):
                with no_grad():
                    self.constants.update(node.run({"": None, **self.constants}, self.device))
            else:
                self.nodes.append(node)


def load(path: str | os.PathLike[str], device: Device | str | None = None) -> OnnxModel:
    """Return the model of an ONNX file.

    Opset 11 and later are supported. Stored values may be in other files in the model's folder, as
    some exporters write them. Raises OnnxError, which names the file and the node if there is one,
    if the file cannot be read, is corrupt, or has an unsupported operator.
    """
    onnx = onnx_package()
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"onnx.load: the path must be a str or Path, got {type(path).__name__}; call convert "
            "with an onnx.ModelProto, such as onnx.load_from_string(content)"
        )
    with blamed(f"onnx.load: {path}"):
        proto = read(onnx, Path(path))
    return OnnxModel(proto, device, place=f"onnx.load: {path}")


def convert(proto: Any, device: Device | str | None = None) -> OnnxModel:
    """Return the model of an ``onnx.ModelProto``. Raises the errors of ``load``."""
    return OnnxModel(proto, device)
