"""The repr of a module: a tree as in PyTorch, with the number of parameters of each part.

Called by ``Module.__repr__`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Describable(Protocol):
    """The interface of a module that ``describe`` uses."""

    def parameters(self) -> Sequence[Any]:
        """Return all parameters; each has a shape."""

    def named_children(self) -> Iterable[tuple[str, Any]]:
        """Yield (name, module) of the direct sub-modules."""

    def extra_repr(self) -> str:
        """Return the module's own options as a string."""


def describe(module: Describable) -> str:
    """Return the repr, e.g. ``Linear(in_features=2, ...)  # 9 parameters``, or a tree of them."""
    count = sum(math.prod(p.shape) for p in module.parameters())
    note = f"  # {count:,} parameters" if count else ""
    head, children = f"{type(module).__name__}(", list(module.named_children())
    if not children:
        return f"{head}{module.extra_repr()}){note}"
    lines = [head + module.extra_repr()]
    for name, child in children:
        lines.append(_indented(f"({name}): {describe(child)}"))
    return "\n".join([*lines, f"){note}"])


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))
