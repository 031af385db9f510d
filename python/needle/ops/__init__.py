"""All ops in one flat namespace: ``needle.ops.exp`` and ``needle.ops.Exp``.

An op is one section of a family file in this package (see ``registry``). Importing the file
registers the op, so no op is listed here. ``__init__.pyi`` lists the names for type checkers;
``python -m needle.ops.stubs`` writes it.
"""

import importlib
import pkgutil

from .registry import REGISTRY, op

for _module in pkgutil.iter_modules(__path__):
    if _module.name != "stubs":
        importlib.import_module(f"{__name__}.{_module.name}")

PUBLIC = {row.name: row.function for row in REGISTRY.values()} | {
    cls.__name__: cls for row in REGISTRY.values() for cls in row.classes
}
"""Public names -> functions and classes."""

globals().update(PUBLIC)
__all__ = ["PUBLIC", "REGISTRY", "op", *PUBLIC]
