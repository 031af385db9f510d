"""Generator of two lists of names: ``ops/public.py`` and ``tensor_methods.pyi``.

``python -m needle.ops.stubs`` writes both. A test fails when they are out of date. No module
imports this one.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import ops
from .registry import COURSE_CLASSES, METHODS, REGISTRY

PACKAGE = Path(__file__).resolve().parents[1]
for _module in pkgutil.iter_modules(
    ops.__path__
):  # including a family file that public.py does not list yet
    if _module.name != "stubs":
        importlib.import_module(f"{ops.__name__}.{_module.name}")
HEADER = "# Written by `python -m needle.ops.stubs`; do not edit.\n"
PUBLIC_HEADER = '''# fmt: off
"""The public functions of all ops, and the course's op classes, each from its family file."""

'''


def _method(name: str, function: Callable[..., Any] | property) -> str:
    if isinstance(function, property):
        assert function.fget is not None
        return f"    @property\n{_method(name, function.fget)}"
    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    parameters = [first.replace(name="self", annotation=first.empty), *others]
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=parameters)))
    return f"    def {name}{text}: ...".replace("'", '"')


def tensor_methods() -> str:
    """Return the source of a class with all methods that ops attach to Tensor."""
    methods = "\n".join(_method(name, METHODS[name]) for name in sorted(METHODS))
    return (
        f"{HEADER}from collections.abc import Sequence\nfrom typing import Any\n\n"
        "from ..ops.sorting import SortResult\nfrom .tensor import Tensor, TensorTuple\n\n"
        "Axes = int | Sequence[int] | None\nNumber = bool | int | float\n\n"
        f"class TensorMethods:\n{methods}\n"
    )


def public_names() -> str:
    """Return the source of ``ops/public.py``: every public name, imported from its family file."""
    public: list[Any] = [row.function for row in REGISTRY.values()]
    public += [
        cls for row in REGISTRY.values() for cls in row.classes if cls.__name__ in COURSE_CLASSES
    ]
    homes = {each.__name__: each.__module__.rpartition(".")[2] for each in public}
    names = sorted(homes, key=lambda name: (name[0].islower(), name.lower()))
    imports = [
        _import(family, [name for name in names if homes[name] == family])
        for family in sorted(set(homes.values()))
    ]
    return f"{HEADER}{PUBLIC_HEADER}{''.join(imports)}"


def _import(family: str, names: Sequence[str]) -> str:
    line = f"from .{family} import {', '.join(names)}\n"
    if len(line) <= 100:
        return line
    lines = textwrap.fill(", ".join(names), 96, initial_indent="    ", subsequent_indent="    ")
    return f"from .{family} import (\n{lines},\n)\n"


def files() -> dict[Path, str]:
    """Return the path and contents of every generated file."""
    return {
        PACKAGE / "autograd" / "tensor_methods.pyi": tensor_methods(),
        PACKAGE / "ops" / "public.py": public_names(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
