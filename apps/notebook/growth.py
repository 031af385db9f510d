"""Detects variables that keep a growing graph alive because a ``detach`` is missing.

A notebook's variables are examined after each cell, so training itself is not slowed down.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from needle.autograd import Tensor
from needle.autograd.graph import find_topo_sort
from needle.autograd.replay import ReplayedValue

MOST_NODES = 2000
"""Maximum number of nodes in one graph; the deepest model in apps/models has fewer."""
MOST_STEPS = 8
"""Limit of finished backward passes in one graph, and of graphs in one list."""


class GraphGrowthWarning(UserWarning):
    """A warning that a variable, assigned in ``line`` of the cell, keeps many graphs alive."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def growing_graphs(names: Mapping[str, Any], code: str) -> Iterator[GraphGrowthWarning]:
    """Yield a warning for each variable that keeps the graphs of many steps alive.

    names: the variables of the notebook. code: the cell; only variables that it assigns count.
    """
    for name, line in sorted(assigned(code).items(), key=lambda item: item[1]):
        held = _held(names.get(name))
        if held:
            yield GraphGrowthWarning(
                f"{name} keeps {held} in memory, and more with every step, in "
                f"{code.splitlines()[line - 1].strip()!r}; keep a number (.item()) or a constant "
                "(.detach()), or compute it under needle.no_grad()",
                line,
            )


def assigned(code: str) -> dict[str, int]:
    """Return the names that the code assigns, adds to or appends to, with the last such line."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # the cell has magics or is in another language
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
    """Return a description of the graphs that a value keeps alive; "" if they are few."""
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
