"""``draw_graph``: the computational graph as Mermaid and DOT text, displayed by notebooks.

The part of a graph that a default ``backward()`` has released is drawn from its tape.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from ..errors import DTypeError
from .graph import find_topo_sort
from .replay import ReplayedGradient, ReplayedValue, Tape
from .tensor import Tensor, TensorTuple
from .value import Value


@dataclass(frozen=True, eq=False)
class Node:
    """One box: a leaf or the result of an op."""

    title: str
    shape: str
    inputs: tuple[Node, ...] = ()
    """The boxes from which an arrow leads to this one."""

    @property
    def leaf(self) -> bool:
        """True if no op produced this node."""
        return not self.inputs


@dataclass(frozen=True)
class Graph:
    """The boxes of a graph, inputs before users."""

    nodes: tuple[Node, ...]

    @property
    def edges(self) -> list[tuple[Node, Node]]:
        """The arrows, from input to user."""
        return [(source, node) for node in self.nodes for source in node.inputs]

    @property
    def mermaid(self) -> str:
        """The graph as Mermaid text; rounded boxes are leaves."""
        names, lines = self._names(), ["graph TD"]
        for node, name in names.items():
            label = f'"{node.title}<br/>{node.shape}"'
            lines.append(f"    {name}({label})" if node.leaf else f"    {name}[{label}]")
        lines += [f"    {names[source]} --> {names[target]}" for source, target in self.edges]
        return "\n".join(lines) + "\n"

    @property
    def dot(self) -> str:
        """The graph as DOT text for Graphviz; ellipses are leaves."""
        names, lines = self._names(), ["digraph needle {"]
        for node, name in names.items():
            shape = "ellipse" if node.leaf else "box"
            lines.append(f'    {name} [shape={shape}, label="{node.title}\\n{node.shape}"];')
        lines += [f"    {names[source]} -> {names[target]};" for source, target in self.edges]
        return "\n".join([*lines, "}"]) + "\n"

    def _names(self) -> dict[Node, str]:
        return {node: f"n{i}" for i, node in enumerate(self.nodes)}

    def __str__(self) -> str:
        return self.mermaid

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return Mermaid for notebooks that can draw it, and Markdown, HTML and text for others."""
        return {
            "text/vnd.mermaid": self.mermaid,
            "text/markdown": f"```mermaid\n{self.mermaid}```",
            "text/html": f'<pre class="mermaid">{html.escape(self.mermaid)}</pre>',
            "text/plain": self.mermaid,
        }


def draw_graph(tensor: Tensor | TensorTuple) -> Graph:
    """Return the graph that computed ``tensor``, with shapes in its boxes.

    ``.mermaid`` and ``.dot`` are strings. As the last line of a notebook cell the graph displays
    itself. DTypeError if ``tensor`` is not a Tensor.
    """
    if not isinstance(tensor, Value):
        raise DTypeError(
            f"draw_graph: the argument must be a Tensor, got {type(tensor).__name__}; pass the "
            "result of a computation"
        )
    boxes: dict[Value, Node] = {}
    tapes: dict[int, list[Node]] = {}
    for node in find_topo_sort([tensor]):
        boxes[node] = _box(node, boxes, tapes)
    # a tape also has boxes from which ``tensor`` was not computed
    return Graph(tuple(find_topo_sort([boxes[tensor]])))


def _box(node: Value, boxes: dict[Value, Node], tapes: dict[int, list[Node]]) -> Node:
    """Return the box of a node, given the boxes of its inputs; each tape is drawn once."""
    op, inputs, shape = node.op, [boxes[source] for source in node.inputs], str(node.shape)
    if op is None:
        return Node(type(node).__name__ if node.requires_grad else "constant", shape)
    if not isinstance(op, (ReplayedValue, ReplayedGradient)):
        return Node(type(op).__name__, shape, tuple(inputs))
    places = tapes.get(id(op.tape)) or tapes.setdefault(id(op.tape), _tape_boxes(op.tape, inputs))
    if isinstance(op, ReplayedValue):
        return places[op.position]
    return Node("Gradient", shape, (places[-1], places[op.position]))


def _tape_boxes(tape: Tape, leaves: list[Node]) -> list[Node]:
    """Return the box at each position of a tape."""
    boxes = list(leaves)
    for op, sources, _, shape in tape.rows:
        boxes.append(Node(type(op).__name__, str(shape), tuple(boxes[i] for i in sources)))
    return boxes
