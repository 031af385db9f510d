"""The graph of an exported file, and the table of rules that convert ops to nodes.

A model is recorded twice, with different batch sizes and values. Comparing a value with its twin,
the same value in the other recording, shows which sizes depend on the batch size. The rules are in
rules/, and exporting.py fills the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..array_namespace import is_array, to_numpy
from ..autograd import Value
from ..autograd.graph import Op, find_topo_sort
from .package import OnnxError, onnx_package

Array = NumpyArray[Any]
Sizes = list["int | None"]


@dataclass
class Graph:
    """A graph's nodes and stored values, in the order of discovery."""

    x: Any
    """The model's input."""
    batch_axis: int
    twins: dict[Any, Any]
    """A map from each recorded value to its twin in the other recording."""
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = field(default_factory=list)
    stored: dict[str, Array] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)
    parameters: dict[int, str] = field(default_factory=dict)

    def add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), [name], attributes))
        return name

    def store(self, value: Any, name: str = "constant") -> str:
        """Store a value in the file; return its name."""
        array = np.asarray(value)
        unique = name if name not in self.stored else f"{name}_{len(self.stored)}"
        self.stored[unique] = array
        return unique

    def integers(self, *numbers: int) -> str:
        """Store a vector of integers, such as axes; return its name."""
        return self.store(np.array(numbers, np.int64))

    def of(self, value: Any) -> str:
        """Return the name of a node's input: the output of an earlier node, or a stored value."""
        if value not in self.names:
            array, sizes = value.numpy(), self.sizes(value)
            one = array[tuple(slice(1 if size is None else None) for size in sizes)]
            if None not in sizes or not one.size or (array != one).any():
                self.names[value] = self.store(array, self._origin(value))
            else:  # one value shared by all samples, such as an initial state
                self.names[value] = self.add("Expand", [self.store(one), self.shape(value)])
        return self.names[value]

    def transposed(self, value: Any, axes: tuple[int, ...]) -> str:
        """Return the name of a value with permuted axes."""
        if self.is_stored(value):
            return self.store(value.numpy().transpose(axes), self._origin(value))
        return self.add("Transpose", [self.of(value)], perm=list(axes))

    def is_stored(self, value: Any) -> bool:
        """Return True if the value does not depend on the model's input."""
        return value not in self.names or self.names[value] in self.stored

    def like(self, value: Any, number: float) -> str:
        """Store a number with the dtype of ``value``; return its name."""
        return self.store(np.asarray(number, value.dtype))

    def sizes(self, value: Any) -> Sizes:
        """Return the shape of a value, with None for sizes that depend on the batch size."""
        other = self.twins.get(value, value).shape
        return [a if a == b else None for a, b in zip(value.shape, other, strict=True)]

    def shape(self, value: Any) -> str:
        """Return the name of a value's shape, where batch sizes are read from the input."""
        sizes = self.sizes(value)
        if None not in sizes:
            return self.integers(*value.shape)
        batch = self.x.shape[self.batch_axis]
        if any(size is None and own != batch for size, own in zip(sizes, value.shape, strict=True)):
            raise OnnxError(
                f"onnx.export: a size of {tuple(value.shape)} is computed from the batch size "
                f"{batch}; use ops of the input instead"
            )
        rows = self.add("Shape", ["input"])
        rows = self.add("Gather", [rows, self.integers(self.batch_axis)])
        parts = [rows if size is None else self.integers(size) for size in sizes]
        return self.add("Concat", parts, axis=0)

    def positions(self, array: Any) -> str:
        """Return the name of an index array, which is the model's input or a stored value."""
        if not self.holds_input(array):
            return self.store(on_host(array).astype(np.int64))
        given, wanted = self.x.numpy(), on_host(array)
        name = "input"
        if given.dtype.kind not in "iu":
            name = self.add("Cast", [name], to=_code(np.int64))
        if given.shape != wanted.shape:
            sizes = [-1 if size == given.size else size for size in wanted.shape]
            name = self.add("Reshape", [name, self.integers(*sizes)])
        return name

    def holds_input(self, array: Any) -> bool:
        """Return True if an index array equals the model's input."""
        given, found = self.x.numpy(), on_host(array)
        return bool(
            given.size == found.size
            and (given.shape == found.shape or found.ndim == 1)
            and np.array_equal(given.reshape(-1), found.reshape(-1))
        )

    def facts(self) -> list[Any]:
        """Return the facts that must be equal for different inputs."""
        return [self.nodes, [(n, a.dtype, a.shape, a.tobytes()) for n, a in self.stored.items()]]

    def proto(self, name: str, results: Sequence[Any]) -> Any:
        """Return the graph as an ``onnx.GraphProto`` whose outputs are ``results``."""
        onnx = onnx_package()
        labels = ["output", *(f"output_{i}" for i in range(1, len(results)))]

        def described(label: str, value: Any) -> Any:
            sizes = [f"{label}_rows" if size is None else size for size in self.sizes(value)]
            return onnx.helper.make_tensor_value_info(label, _code(value.dtype), sizes)

        nodes = [
            onnx.helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes)
            for kind, inputs, outputs, attributes in self.nodes
        ]
        for label, value in zip(labels, results, strict=True):
            nodes.append(onnx.helper.make_node("Identity", [self.of(value)], [label], name=label))
        stored = [onnx.numpy_helper.from_array(a.copy(), n) for n, a in self.stored.items()]
        ends = [described(*each) for each in zip(labels, results, strict=True)]
        return onnx.helper.make_graph(nodes, name, [described("input", self.x)], ends, stored)

    def _origin(self, value: Value) -> str:
        """Return the name of a stored value's parameter or buffer, or "constant"."""
        for node in find_topo_sort([value]):
            if id(node) in self.parameters:
                return self.parameters[id(node)]
        return "constant"


def on_host(array: Any) -> Array:
    """Return an index array of needle or NumPy as a NumPy array."""
    return np.asarray(to_numpy(array) if is_array(array) else array)


def _code(dtype: Any) -> int:
    return int(onnx_package().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# ---- the table of rules --------------------------------------------------------------------------

Rule = Callable[[Graph, Any], str]
EXPORTS: dict[type[Op], Rule] = {}
POSITIONS: dict[type[Op], Callable[[Any], list[Any]]] = {}
"""Functions that return the index arrays held by an op, which may be the model's input."""


def rule(*kinds: type[Op]) -> Callable[[Rule], Rule]:
    """Register the rule of one or more ops, which adds nodes and returns the result's name."""

    def register(function: Rule) -> Rule:
        EXPORTS.update(dict.fromkeys(kinds, function))
        return function

    return register


def plain(name: str) -> Rule:
    """Return the rule of an op that maps to an operator with the same inputs and no attributes."""
    return lambda graph, node: graph.add(name, [graph.of(source) for source in node.inputs])
