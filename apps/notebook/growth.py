"""Finds variables that hold on to a graph which grows from step to step: a forgotten detach.

Looks at a notebook's variables after a cell, so training itself costs nothing more; what happens
within one cell is seen at its end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from needle.autograd import Tensor
from needle.graph import find_topo_sort
from needle.replay import ReplayedValue

MOST_NODES = 2000
"""More than the forward pass of the deepest of our models has."""
MOST_STEPS = 8
"""More finished backward passes in one graph, or graphs in one list, are no accident."""


class GraphGrowthWarning(UserWarning):
    """A variable holds on to the graphs of many steps; it takes one in ``line`` of the cell."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def growing_graphs(names: Mapping[str, Any], code: str) -> Iterator[GraphGrowthWarning]:
    """A warning for each variable among ``names`` that the cell ``code`` assigns and that holds on
    to the graphs of many steps, with the line where it does."""
    for name, line in sorted(assigned(code).items(), key=lambda item: item[1]):
        held = _held(names.get(name))
        if held:
            yield GraphGrowthWarning(
                f"{name} holds on to {held}, and memory grows with every step, in "
                f"{code.splitlines()[line - 1].strip()!r}; keep a number (.item()) or a constant "
                "(.detach()), or compute it under needle.no_grad()",
                line,
            )


def assigned(code: str) -> dict[str, int]:
    """The names that the code assigns, adds to or appends to, and the last line that does."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # magics, or a cell of another language
        return {}
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value] if node.func.attr == "append" else []
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = max(node.lineno, found.get(target.id, 0))  # type: ignore[attr-defined]
    return found


def _held(value: Any) -> str:
    """What a value holds on to, in words; nothing for what is harmless."""
    if isinstance(value, (list, tuple)):
        recorded = sum(isinstance(each, Tensor) and each.op is not None for each in value)
        return f"the graphs of {recorded} tensors" if recorded > MOST_STEPS else ""
    if not isinstance(value, Tensor) or value.op is None:
        return ""
    nodes = find_topo_sort([value])
    steps = sum(isinstance(node.op, ReplayedValue) for node in nodes)
    if steps > MOST_STEPS:
        return f"the graphs of {steps} steps"
    return f"a graph of {len(nodes)} nodes" if len(nodes) > MOST_NODES else ""
