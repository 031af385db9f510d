"""The sources of the package and of apps/, and their imports, for the tests of the architecture.

Nothing here runs the code that it reads.
"""

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


def modules(package: Path) -> dict[str, Path]:
    """Return a package's files, keyed by module name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES, APPS = modules(PACKAGE), modules(ROOT / "apps")
FILES = MODULES | APPS


def resolve(source: str, node: ast.ImportFrom) -> str:
    """Return the absolute module that a (possibly relative) from-import names."""
    if node.level == 0:
        return node.module or ""
    package = source.split(".")
    is_package = FILES[source].name == "__init__.py"
    base = package[: len(package) - node.level + (1 if is_package else 0)]
    return ".".join(base + ([node.module] if node.module else []))


def targets(source: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = resolve(source, node)
        for alias in node.names:
            submodule = f"{base}.{alias.name}"
            yield submodule if submodule in FILES else base
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        names = [each.value for each in node.args if isinstance(each, ast.Constant)]
        yield from (name for name in names if name in FILES)


def imports_of(source: str) -> Iterator[Import]:
    """Yield every import of the package's own modules in one file."""

    def walk(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            for target in targets(source, child):
                if target.split(".")[0] == source.split(".")[0]:
                    yield Import(source, target, child.lineno, in_function)  # type: ignore[attr-defined]
            inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from walk(child, inside)

    yield from walk(ast.parse(FILES[source].read_text()), False)


IMPORTS = [found for source in MODULES for found in imports_of(source)]
