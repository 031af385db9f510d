"""Writes what type checkers cannot see: the names and methods that registering an op makes.

``python -m needle.ops.stubs`` writes ``needle/tensor_methods.pyi``, ``needle/ops/__init__.pyi`` and
``needle/__init__.pyi``; a test says when they are out of date. Not imported by anything.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import PUBLIC, REGISTRY
from .registry import METHODS

PACKAGE = Path(__file__).resolve().parents[1]
HEADER = "# Written by `python -m needle.ops.stubs`; do not edit.\n"


def _method(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    parameters = [first.replace(name="self", annotation=first.empty), *others]
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=parameters)))
    return f"    def {name}{text}: ..."


def tensor_methods() -> str:
    """A class with the methods that ops attach to Tensor."""
    methods = "\n".join(_method(name, METHODS[name]) for name in sorted(METHODS))
    return (
        f"{HEADER}from collections.abc import Sequence\nfrom typing import Any\n\n"
        "from .autograd import Tensor\n\n"
        "Axes = int | Sequence[int] | None\nNumber = bool | int | float\n\n"
        f"class TensorMethods:\n{methods}\n"
    )


def _home(name: str) -> str:
    module: str = PUBLIC[name].__module__
    return module.rpartition(".")[2]


def ops_names() -> str:
    """The flat names of ``needle.ops``."""
    lines = [f"from .{_home(name)} import {name} as {name}" for name in sorted(PUBLIC)]
    fixed = ["from .registry import REGISTRY as REGISTRY", "from .registry import op as op"]
    return "\n".join([HEADER.rstrip(), "from typing import Any", "", *lines, *fixed, ""]) + (
        "\nPUBLIC: dict[str, Any]\n"
    )


def needle_names() -> str:
    """The flat names of ``needle``: what its ``__init__`` imports, and the ops."""
    lines = [HEADER.rstrip()]
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                lines.append(f"from .{node.module or ''} import {alias.name} as {name}")
    taken = {line.rpartition(" ")[2] for line in lines}
    lines += [f"from .ops import {name} as {name}" for name in sorted(PUBLIC) if name not in taken]
    return "\n".join([*lines, "", "__version__: str", ""])


def files() -> dict[Path, str]:
    """Every file that is written here, with its text."""
    return {
        PACKAGE / "tensor_methods.pyi": tensor_methods(),
        PACKAGE / "ops" / "__init__.pyi": ops_names(),
        PACKAGE / "__init__.pyi": needle_names(),
    }


if __name__ == "__main__":
    assert REGISTRY, "the ops register when needle.ops is imported"
    for path, text in files().items():
        path.write_text(text)
