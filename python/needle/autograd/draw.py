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


@dataclass(frozen=True)
class Node:
    """One box: a leaf or the result of an op."""

    name: str
    title: str
    shape: str
    leaf: bool


@dataclass(frozen=True)
class Graph:
    """The boxes and arrows of a graph, inputs before users."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]

    @property
    def mermaid(self) -> str:
        """The graph as Mermaid text; rounded boxes are leaves."""
        lines = ["graph TD"]
        for node in self.nodes:
            label = f'"{node.title}<br/>{node.shape}"'
            lines.append(f"    {node.name}({label})" if node.leaf else f"    {node.name}[{label}]")
        lines += [f"    {source} --> {target}" for source, target in self.edges]
        return "\n".join(lines) + "\n"

    @property
    def dot(self) -> str:
        """The graph as DOT text for Graphviz; ellipses are leaves."""
        lines = ["digraph needle {"]
        for node in self.nodes:
            shape = "ellipse" if node.leaf else "box"
            lines.append(f'    {node.name} [shape={shape}, label="{node.title}\\n{node.shape}"];')
        lines += [f"    {source} -> {target};" for source, target in self.edges]
        return "\n".join([*lines, "}"]) + "\n"

    def __str__(self) -> str:
        return self.mermaid

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return Mermaid for notebooks that draw it, else the text as Markdown, HTML and text."""
        return {
            "text/vnd.mermaid": self.mermaid,
            "text/markdown": f"```mermaid\n{self.mermaid}```",
            "text/html": f'<pre class="mermaid">{html.escape(self.mermaid)}</pre>',
            "text/plain": self.mermaid,
        }


class _Drawing:
    """The boxes and arrows collected while the graph is traversed."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[tuple[str, str]] = []
        self.names: dict[Value, str] = {}
        self.tapes: dict[int, list[str]] = {}

    def box(self, title: str, shape: Any, leaf: bool = False) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(Node(name, title, str(shape), leaf))
        return name

    def arrows(self, sources: list[str], target: str) -> None:
        self.edges.extend((source, target) for source in sources)

    def add(self, node: Value) -> None:
        sources = [self.names[source] for source in node.inputs]
        op = node.op
        if op is None:
            title = type(node).__name__ if node.requires_grad else "constant"
            self.names[node] = self.box(title, node.shape, leaf=True)
        elif isinstance(op, (ReplayedValue, ReplayedGradient)):
            positions = self.tape(op.tape, sources)
            name = positions[op.position]
            if isinstance(op, ReplayedGradient):
                name = self.box("Gradient", node.shape)
                self.arrows([positions[-1], positions[op.position]], name)
            self.names[node] = name
        else:
            self.names[node] = self.box(type(op).__name__, node.shape)
            self.arrows(sources, self.names[node])

    def tape(self, tape: Tape, leaves: list[str]) -> list[str]:
        """Draw a tape once; return the name of the box at each of its positions."""
        if id(tape) not in self.tapes:
            names = list(leaves)
            for op, sources, _, shape in tape.rows:
                name = self.box(type(op).__name__, shape)
                self.arrows([names[i] for i in sources], name)
                names.append(name)
            self.tapes[id(tape)] = names
        return self.tapes[id(tape)]


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
    drawing = _Drawing()
    for node in find_topo_sort([tensor]):
        drawing.add(node)
    reached = _reached(drawing.names[tensor], drawing.edges)
    return Graph(
        tuple(node for node in drawing.nodes if node.name in reached),
        tuple(edge for edge in drawing.edges if edge[1] in reached),
    )


def _reached(last: str, edges: list[tuple[str, str]]) -> set[str]:
    """Return the boxes that ``last`` depends on; a tape also contains the initial gradient."""
    before: dict[str, list[str]] = {}
    for source, target in edges:
        before.setdefault(target, []).append(source)
    found, waiting = {last}, [last]
    while waiting:
        for name in before.get(waiting.pop(), []):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
