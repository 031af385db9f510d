"""Reload edited modules while classes and functions keep their identity.

After ``importlib.reload`` old objects are not instances of the new classes, and other modules keep
the old functions. Here a class stays the same object and gets the new attributes, and a function
gets the new code. Constants that other modules have imported keep their old values.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

from needle.autograd import Tensor
from needle.ops.registry import METHODS, REGISTRY, Row

KEPT = ("__dict__", "__weakref__", "__module__", "__qualname__")


class Reloader:
    """Reloads the imported modules of ``packages`` when their files have changed."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(packages)
        self.seen: dict[str, int] = {}
        self.note()

    def note(self) -> None:
        """Record the file times of newly imported modules; call it before they are edited."""
        for name, (_, stamp) in self._stamps().items():
            self.seen.setdefault(name, stamp)

    def changed(self) -> list[ModuleType]:
        """Return the modules whose files have changed since they were recorded."""
        found = []
        for name, (module, stamp) in self._stamps().items():
            if self.seen.setdefault(name, stamp) != stamp:
                self.seen[name] = stamp
                found.append(module)
        return found

    def _stamps(self) -> dict[str, tuple[ModuleType, int]]:
        """Return the watched modules and the times of their files; skip missing files."""
        found = {}
        for name, module in list(sys.modules.items()):
            file = str(getattr(module, "__file__", None))
            if name.split(".")[0] in self.packages and file.endswith(".py"):
                with suppress(OSError):  # the file was removed, or an editor is saving it
                    found[name] = (module, Path(file).stat().st_mtime_ns)
        return found

    def refresh(self) -> list[str]:
        """Reload edited modules; return their names.

        Warn about one that fails and keep the old one.
        """
        done = []
        for module in self.changed():
            try:
                rerun(module)
            except Exception as error:
                warnings.warn(
                    f"{module.__name__} was edited but cannot be reloaded: "
                    f"{type(error).__name__}: {error}; the old version stays in use",
                    stacklevel=2,
                )
            else:
                done.append(module.__name__)
        return done


def rerun(module: ModuleType) -> None:
    """Run a module's file in the module; if it raises, restore the module."""
    path = Path(str(module.__file__))
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    names, before = vars(module), dict(vars(module))
    rows, methods = dict(REGISTRY), dict(METHODS)
    _forget_ops_of(module.__name__)
    try:
        exec(code, names)
    except BaseException:
        names.clear()
        names.update(before)
        _put_back_ops(rows, methods)
        raise
    own = {
        name: (before[name], new)
        for name, new in list(names.items())
        if name in before and before[name] is not new and _is_own(new, module)
    }
    replaced = {new: old for old, new in own.values() if isinstance(new, type)}
    for name, (old, new) in own.items():
        if isinstance(new, type) and isinstance(old, type):
            _take_over_class(old, new, replaced)
        elif not _take_over(old, new):
            continue
        names[name] = old
    for new in names.values():
        if isinstance(new, type) and new.__module__ == module.__name__ and new not in replaced:
            _rebase(new, replaced)
    _settle_ops(rows, {id(new): names[name] for name, (_, new) in own.items()})


def _is_own(thing: Any, module: ModuleType) -> bool:
    return getattr(thing, "__module__", None) == module.__name__ or hasattr(thing, "__wrapped__")


def _take_over(old: Any, new: Any) -> bool:
    """Give ``old`` the behaviour of ``new`` if both are functions or objects that wrap one."""
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        if len(old.__code__.co_freevars) or len(new.__code__.co_freevars):
            return False  # closures keep their cells
        for name in ("__code__", "__defaults__", "__kwdefaults__", "__annotations__", "__doc__"):
            setattr(old, name, getattr(new, name))
        old.__dict__.update(new.__dict__)
        return True
    if type(old) is type(new) and hasattr(new, "__wrapped__") and hasattr(new, "__dict__"):
        old.__dict__.update(new.__dict__)
        return True
    return False


def _take_over_class(old: type, new: type, replaced: dict[Any, Any]) -> None:
    """Give the class ``old`` the attributes of ``new``, with methods that refer to ``old``."""
    for name in set(vars(old)) - set(vars(new)):
        own = f"{old.__qualname__}.{name}"  # keeps attributes that other modules added, such as ops
        if getattr(vars(old)[name], "__qualname__", None) == own:
            delattr(old, name)
    for name, value in vars(new).items():
        if name not in KEPT and name != "__slots__" and not _is_slot(value):
            _aim(value, replaced)
            setattr(old, name, value)
    _rebase(old, replaced, new.__bases__)


def _rebase(cls: type, replaced: dict[Any, Any], bases: tuple[type, ...] | None = None) -> None:
    wanted = tuple(replaced.get(base, base) for base in bases or cls.__bases__)
    if wanted != cls.__bases__:
        cls.__bases__ = wanted


def _is_slot(value: Any) -> bool:
    return type(value).__name__ in ("member_descriptor", "getset_descriptor")


def _aim(value: Any, replaced: dict[Any, Any]) -> None:
    """Make ``super()`` and ``__class__`` in a method refer to the kept class."""
    for cell in _cells(value):
        try:
            content = cell.cell_contents
        except ValueError:
            continue  # empty
        if isinstance(content, type) and content in replaced:
            cell.cell_contents = replaced[content]


def _cells(value: Any) -> Iterator[CellType]:
    parts = (value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel")))
    for part in parts:
        if isinstance(part, FunctionType):
            yield from part.__closure__ or ()


def _forget_ops_of(name: str) -> None:
    """Unregister the ops of a module, because running it registers them again."""
    for op, row in list(REGISTRY.items()):
        if row.function.__module__ == name:
            del REGISTRY[op]
            for method in row.methods:
                METHODS.pop(method, None)
                if method in vars(Tensor):
                    delattr(Tensor, method)


def _settle_ops(rows: dict[str, Row], stays: dict[int, Any]) -> None:
    """Make the registry refer to the kept functions and classes, in the old order."""
    found = {name: REGISTRY[name] for name in (*rows, *REGISTRY) if name in REGISTRY}
    for name, row in found.items():
        function = stays.get(id(row.function), row.function)
        classes = tuple(stays.get(id(each), each) for each in row.classes)
        found[name] = replace(row, function=function, classes=classes)
        for method in row.methods:
            METHODS[method] = function
            setattr(Tensor, method, function)
    REGISTRY.clear()
    REGISTRY.update(found)


def _put_back_ops(rows: dict[str, Row], methods: dict[str, Any]) -> None:
    REGISTRY.clear()
    REGISTRY.update(rows)
    for method in set(METHODS) - set(methods):
        delattr(Tensor, method)
    METHODS.clear()
    METHODS.update(methods)
    for method, function in methods.items():
        setattr(Tensor, method, function)
