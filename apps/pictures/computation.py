"""The computational graph as a picture: leaves on the left, results on the right.

``needle.draw_graph`` provides the graph; this file only computes positions and draws.
"""

from __future__ import annotations

from needle.autograd.draw import Graph, Node, draw_graph

from .canvas import Picture, picture

COLOURS = {"leaf": "#cfe5ff", "constant": "#eeeeee", "op": "#fff1cc"}
STEP, GAP = 1.7, 0.8  # inches between ranks, and between boxes of one rank


def draw_computation(result: object) -> Picture:
    """Draw the graph that computed a Tensor (or a ``Graph``), with an arrow for each use."""
    graph = result if isinstance(result, Graph) else draw_graph(result)  # type: ignore[arg-type]
    places = layout(graph)
    width, height = (max(place[i] for place in places.values()) + 1 for i in (0, 1))
    figure, axes = picture(STEP * width + 0.4, GAP * height + 0.4)
    for source, target in graph.edges:
        arrow = {"arrowstyle": "->", "color": "#777777", "shrinkA": 24, "shrinkB": 24}
        axes.annotate("", places[target], places[source], arrowprops=arrow)
    for node in graph.nodes:
        kind = "constant" if node.title == "constant" else "leaf" if node.leaf else "op"
        style = "round,pad=0.5" if node.leaf else "square,pad=0.5"
        box = {"boxstyle": style, "facecolor": COLOURS[kind], "edgecolor": "#777777"}
        text = f"{node.title}\n{node.shape}"
        axes.text(*places[node], text, ha="center", va="center", fontsize=8, bbox=box)
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)
    axes.set_axis_off()
    return figure


def layout(graph: Graph) -> dict[Node, tuple[float, float]]:
    """Return (rank, row) of each box: arrows lead to higher ranks, and no two boxes coincide.

    The rank of an op is its longest way from a leaf; a leaf stands just before its first user.
    """
    ranks = _ranks(graph)
    columns: dict[int, list[Node]] = {}
    for node in graph.nodes:
        columns.setdefault(ranks[node], []).append(node)
    tallest = max(len(boxes) for boxes in columns.values())
    rows: dict[Node, float] = {}
    for rank in sorted(columns):
        boxes = sorted(columns[rank], key=lambda box: _mean_row(box, graph, rows))
        start = (tallest - len(boxes)) / 2
        rows.update({box: start + i for i, box in enumerate(boxes)})
    return {box: (rank, rows[box]) for box, rank in ranks.items()}


def _ranks(graph: Graph) -> dict[Node, int]:
    ranks = dict.fromkeys(graph.nodes, 0)
    targets: dict[Node, list[Node]] = {}
    for source, target in graph.edges:
        targets.setdefault(source, []).append(target)
    leaves = {node for node in graph.nodes if node.leaf}
    for node in graph.nodes:  # inputs come before users
        for target in targets.get(node, ()):
            ranks[target] = max(ranks[target], ranks[node] + 1)
    for leaf in leaves & set(targets):
        ranks[leaf] = min(ranks[target] for target in targets[leaf]) - 1
    return ranks


def _mean_row(box: Node, graph: Graph, rows: dict[Node, float]) -> float:
    """Return the mean row of the inputs of a box; a box without inputs keeps its row."""
    known = [rows[source] for source, target in graph.edges if target is box and source in rows]
    return sum(known) / len(known) if known else float("inf")
