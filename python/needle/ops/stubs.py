"""Generator of the type stubs: the names and methods that exist only after ops register.

``python -m needle.ops.stubs`` writes ``needle/tensor_methods.pyi``, ``needle/ops/__init__.pyi`` and
``needle/__init__.pyi``. A test fails when they are out of date. Not imported by anything.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
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
    return f"    def {name}{text}: ...".replace("'", '"')


def tensor_methods() -> str:
    """Return the text of a class with all methods that ops attach to Tensor."""
    methods = "\n".join(_method(name, METHODS[name]) for name in sorted(METHODS))
    return (
        f"{HEADER}from collections.abc import Sequence\nfrom typing import Any\n\n"
        "from .autograd import Tensor\nfrom .ops.sorting import SortResult\n\n"
        "Axes = int | Sequence[int] | None\nNumber = bool | int | float\n\n"
        f"class TensorMethods:\n{methods}\n"
    )


def _home(name: str) -> str:
    module: str = PUBLIC[name].__module__
    return module.rpartition(".")[2]


def _imports(pairs: Iterable[tuple[str, str]]) -> str:
    """Return re-exports of (module, name) in the linter's order."""

    def place(pair: tuple[str, str]) -> tuple[str, int, str]:
        module, name = pair
        return module, 0 if name.isupper() else 1 if name[0].isupper() else 2, name.lower()

    lines = [f"from .{m} import {n} as {n}\n" for m, n in sorted(set(pairs), key=place)]
    return "".join(lines)


def ops_names() -> str:
    """Return the stub of ``needle.ops``: all its flat names."""
    names = [(_home(name), name) for name in PUBLIC]
    names += [("registry", "REGISTRY"), ("registry", "op")]
    return f"{HEADER}from typing import Any\n\n{_imports(names)}\nPUBLIC: dict[str, Any]\n"


def needle_names() -> str:
    """Return the stub of ``needle``: the imports of its ``__init__``, and the ops."""
    names = [
        (node.module or "", alias.asname or alias.name)
        for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    ]
    names += [("ops", name) for name in PUBLIC]
    return f"{HEADER}{_imports(names)}\n__version__: str\n"


def files() -> dict[Path, str]:
    """Return every generated file with its text."""
    return {
        PACKAGE / "tensor_methods.pyi": tensor_methods(),
        PACKAGE / "ops" / "__init__.pyi": ops_names(),
        PACKAGE / "__init__.pyi": needle_names(),
    }


if __name__ == "__main__":
    assert REGISTRY, "the ops register when needle.ops is imported"
    for path, text in files().items():
        path.write_text(text)
