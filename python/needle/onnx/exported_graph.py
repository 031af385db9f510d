"""The graph of an exported file, and the table of rules that convert ops to nodes.

A model is recorded twice, with different batch sizes and values. Comparing each value with its
twin, which is the same value in the other recording, shows which sizes depend on the batch size.
The rules are in rules/, and exporting.py fills the graph.
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
    """The nodes and stored values of a graph, in the order in which they are added."""

    x: Any
    """The model's input."""
    batch_axis: int
    twins: dict[Any, Any]
    """A map from each recorded value to its twin in the other recording."""
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = field(default_factory=list)
    stored: dict[str, Array] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)
    parameters: dict[int, str] = field(default_factory=dict)

    def add(self, part: Any, dtype: Any = None) -> str:
        """Add an expression, with its values cast to ``dtype``; return the name of its result.

        An expression is a value, None for an omitted input, a name, a number (stored in the dtype),
        an array, a list of integers, or a node: (operator, expression, ..., {attribute: value}).
        The attribute ``nth`` selects one of the node's outputs by position.
        """
        match part:
            case None | str():
                return part or ""
            case tuple():
                return self._node(part, dtype)
            case Value():
                same = dtype is None or getattr(part, "dtype", dtype) == dtype
                name = self.of(part)
                return name if same else self.add(("Cast", name, {"to": code(dtype)}))
            case list():
                return self.store(np.array(part, np.int64))
            case _:
                return self.store(part if isinstance(part, np.ndarray) else np.asarray(part, dtype))

    def _node(self, parts: tuple[Any, ...], dtype: Any) -> str:
        kind, *inputs = parts
        attributes = dict(inputs.pop()) if isinstance(inputs[-1], dict) else {}
        unused = [""] * attributes.pop("nth", 0)
        names = [self.add(each, dtype) for each in inputs]
        name = f"{kind.lower()}_{len(self.nodes)}"
        outputs = [f"{name}_{i}" for i, _ in enumerate(unused)]
        self.nodes.append((kind, names, [*outputs, name], attributes))
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
            array, sizes = value.numpy(), self.sizes(value)
            one = array[tuple(slice(1 if size is None else None) for size in sizes)]
            if None not in sizes or not one.size or (array != one).any():
                self.names[value] = self.store(array, self._origin(value))
            else:  # one value for all samples, such as an initial state
                self.names[value] = self.add(("Expand", one, self.shape(value)))
        return self.names[value]

    def transposed(self, value: Any, axes: tuple[int, ...]) -> str:
        """Return the name of a value with permuted axes."""
        if self.is_stored(value):
            return self.store(value.numpy().transpose(axes), self._origin(value))
        return self.add(("Transpose", value, {"perm": axes}))

    def is_stored(self, value: Any) -> bool:
        """Return True if the value does not depend on the model's input."""
        return value not in self.names or self.names[value] in self.stored

    def sizes(self, value: Any) -> Sizes:
        """Return the shape of a value, with None for sizes that depend on the batch size."""
        other = self.twins.get(value, value).shape
        return [a if a == b else None for a, b in zip(value.shape, other, strict=True)]

    def shape(self, value: Any) -> str:
        """Return the name of a value's shape, in which batch sizes are read from the input."""
        sizes = self.sizes(value)
        if None not in sizes:
            return self.add(list(value.shape))
        batch = self.x.shape[self.batch_axis]
        if any(size is None and own != batch for size, own in zip(sizes, value.shape, strict=True)):
            raise OnnxError(
                f"onnx.export: a size of {tuple(value.shape)} is computed from the batch size "
                f"{batch}; use ops of the input instead"
            )
        rows = self.add(("Gather", ("Shape", "input"), [self.batch_axis]))
        parts = [rows if size is None else [size] for size in sizes]
        return self.add(("Concat", *parts, {"axis": 0}))

    def positions(self, array: Any) -> Any:
        """Return the expression for an index array: the model's input or a stored value."""
        given, wanted = self.x.numpy(), on_host(array)
        if not self.holds_input(array):
            return wanted.astype(np.int64)
        name: Any = "input"
        if given.dtype.kind not in "iu":
            name = ("Cast", name, {"to": code(np.int64)})
        sizes = [-1 if size == given.size else size for size in wanted.shape]
        return name if given.shape == wanted.shape else ("Reshape", name, sizes)

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
        """Return the graph as an ``onnx.GraphProto`` with the outputs ``results``."""
        onnx = onnx_package()
        labels = ["output", *(f"output_{i}" for i in range(1, len(results)))]

        def described(label: str, value: Any) -> Any:
            sizes = [f"{label}_rows" if size is None else size for size in self.sizes(value)]
            return onnx.helper.make_tensor_value_info(label, code(value.dtype), sizes)

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


def code(dtype: Any) -> int:
    """Return ONNX's number of a dtype."""
    return int(onnx_package().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# ---- the table of rules --------------------------------------------------------------------------

Rule = Callable[[Graph, Any], Any]
"""Returns the expression of a node of the autograd graph (see ``Graph.add``)."""
EXPORTS: dict[type[Op], Rule] = {}
POSITIONS: dict[type[Op], Callable[[Any], list[Any]]] = {}
"""Functions that return the index arrays held by an op, which may be the model's input."""


def rule(*kinds: type[Op]) -> Callable[[Rule], Rule]:
    """Register the rule of one or more ops."""

    def register(function: Rule) -> Rule:
        EXPORTS.update(dict.fromkeys(kinds, function))
        return function

    return register


def formula(expression: Callable[..., Any]) -> Rule:
    """Return the rule of an op, given its expression as a function of the op and its inputs."""
    return lambda graph, node: expression(node.op, *node.inputs)


def plain(name: str) -> Rule:
    """Return the rule of an op that maps to an operator with the same inputs and no attributes."""
    return lambda graph, node: (name, *node.inputs)
