"""Every op, flat: ``needle.ops.exp`` and ``needle.ops.Exp``.

An op is one section of a family file in this package (``registry`` says how); importing the file
registers it, so nothing is listed here. ``__init__.pyi`` lists the names for type checkers and is
written by ``python -m needle.ops.stubs``.
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
"""Public name -> function or class."""

globals().update(PUBLIC)
__all__ = ["PUBLIC", "REGISTRY", "op", *PUBLIC]
