"""The text of a module's repr: a tree like PyTorch's, with the number of parameters of each part.

Called by ``Module.__repr__`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Describable(Protocol):
    """What is asked of a module here."""

    def parameters(self) -> Sequence[Any]:
        """All parameters; each has a shape."""

    def named_children(self) -> Iterable[tuple[str, Any]]:
        """(name, module) of the modules directly below."""

    def extra_repr(self) -> str:
        """The module's own options."""


def describe(module: Describable) -> str:
    """``Linear(in_features=2, out_features=3, bias=True)  # 9 parameters``, or a tree of such."""
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
