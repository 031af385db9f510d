"""The sources of the package, and the imports in them, for the tests of the architecture.

Nothing here runs the code that it reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "needle"


@dataclass(frozen=True)
class Import:
    source: str
    target: str
    line: int
    in_function: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def resolve(source: str, node: ast.ImportFrom) -> str:
    """Return the absolute module that a (possibly relative) from-import names."""
    if node.level == 0:
        return node.module or ""
    package = source.split(".")
    is_package = MODULES[source].name == "__init__.py"
    base = package[: len(package) - node.level + (1 if is_package else 0)]
    return ".".join(base + ([node.module] if node.module else []))


def targets(source: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = resolve(source, node)
        for alias in node.names:
            submodule = f"{base}.{alias.name}"
            yield submodule if submodule in MODULES else base


def imports_of(source: str) -> Iterator[Import]:
    """Yield every import of needle's own modules in one file."""

    def walk(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            for target in targets(source, child):
                if target.split(".")[0] == "needle":
                    yield Import(source, target, child.lineno, in_function)  # type: ignore[attr-defined]
            inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from walk(child, inside)

    yield from walk(ast.parse(MODULES[source].read_text()), False)


IMPORTS = [found for source in MODULES for found in imports_of(source)]
