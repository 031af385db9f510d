"""The Python state that a step can reach: the locations of tensors, and guarded values.

The search starts at the step's function (closure, globals named in its code, ``self``) and its
arguments. It follows modules, parameters of optimisers, dicts and lists. Of other objects, it
considers only the attributes named in the visited code.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..autograd.value import RECORDS
from ..backends.base import View
from ..ndarray import NDArray
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from ..optim.schedules import Schedule

PLAIN_TYPES = (type(None), bool, int, float, str, bytes, np.generic, np.dtype)
MAX_LIST_LENGTH = 1000
"""Longer lists are treated as data, so only their identity is guarded."""
CALLED_METHODS = ("forward", "compute", "gradient")
"""Names of methods called by needle itself."""
MISSING = object()
"""The value of a missing location."""


@dataclass(frozen=True)
class Location:
    """A place that stores a value: ``holder[key]``, or an argument of the call.

    ``leaf`` is the index of an argument; ``key`` then names one of its attributes (None: the
    argument itself).
    """

    holder: Any
    key: Any
    label: str
    leaf: int | None = None

    def get(self, leaves: Sequence[Any]) -> Any:
        """Return the current value, or ``MISSING`` if there is none."""
        if self.leaf is not None:
            return leaves[self.leaf] if self.key is None else vars(leaves[self.leaf]).get(self.key)
        return _entry(self.holder, self.key)

    def put(self, leaves: Sequence[Any], value: Any) -> None:
        """Store ``value`` at the location."""
        holder = self.holder if self.leaf is None else vars(leaves[self.leaf])
        if isinstance(holder, CellType):
            holder.cell_contents = value
        else:
            holder[self.key] = value


@dataclass(frozen=True)
class LengthLocation(Location):
    """A guarded location whose value is the number of entries of the holder."""

    def get(self, leaves: Sequence[Any]) -> Any:
        """Return the current number of entries."""
        return len(self.holder)


@dataclass(frozen=True)
class ArrayReference:
    """A reference to an array at a location; ``owner`` identifies the Tensor that holds it."""

    location: Location
    array: NDArray
    owner: tuple[int, int | None]


def _entry(holder: Any, key: Any) -> Any:
    try:
        return holder.cell_contents if isinstance(holder, CellType) else holder[key]
    except (KeyError, IndexError, ValueError):
        return MISSING


@dataclass(eq=False)
class Container:
    """A dict, list, tuple or closure cell whose entries are part of the state."""

    holder: Any
    label: str
    leaf: int | None = None
    keys: set[str] | None = None
    """The keys considered; None means all."""
    owner: Tensor | None = None
    """The Tensor of which this is the attribute dict, if any."""

    def entries(self) -> dict[Any, Any]:
        """Return the current entries as a dict."""
        holder = self.holder
        if isinstance(holder, CellType):
            value = _entry(holder, None)
            return {} if value is MISSING else {None: value}
        if isinstance(holder, (dict, MappingProxyType)):
            if self.keys is None:
                return dict(holder)
            few, many = sorted((self.keys, holder.keys()), key=len)
            return {key: holder[key] for key in few if key in many}
        return dict(enumerate(holder))

    def location(self, key: Any) -> Location:
        """Return the location of the entry ``key``."""
        named = key if isinstance(key, (str, int)) else "" if key is None else type(key).__name__
        label = f"{self.label}.{named}".strip(".")
        return Location(None if self.leaf is not None else self.holder, key, label, self.leaf)


def array_in(value: Any) -> NDArray | None:
    """Return the array of a Tensor, or the array itself; None for any other value."""
    if isinstance(value, Tensor):
        value = value.cached_data
    return value if isinstance(value, NDArray) else None


def describe_view(view: View) -> str:
    """Return the dtype, shape and strides of a view as text for messages."""
    return f"{view.dtype} {view.shape} with strides {view.strides}"


class ReachableState:
    """The containers that a step can reach, each once, with owners before their contents."""

    def __init__(self, function: Any, leaves: Sequence[Any]) -> None:
        self.leaves = leaves
        self.names: set[str] = set()
        known = -1
        while known < len(self.names):  # newly visited code may name more attributes
            known = len(self.names)
            self.containers: list[Container] = []
            self._seen: set[int] = set()
            for i, leaf in enumerate(leaves):
                self._walk(leaf, f"argument {i}", i)
            self._walk(function, getattr(function, "__name__", "the step"), None)

    def _walk(self, root: Any, label: str, leaf: int | None) -> None:
        stack = [(root, label, leaf)]
        while stack:
            value, label, leaf = stack.pop()
            if isinstance(value, (*PLAIN_TYPES, np.ndarray, NDArray)) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            found = [(item, name, None) for item, name in self._visit(value, label, leaf)]
            stack += reversed(found)

    def _visit(self, value: Any, label: str, leaf: int | None) -> Iterator[tuple[Any, str]]:
        """Add the containers of ``value`` and yield the objects to visit next."""
        if isinstance(value, Tensor):
            self._add(Container(vars(value), label, leaf, owner=value))
        elif isinstance(value, Optimizer):
            yield from ((p, f"{label}.params.{i}") for i, p in enumerate(value.params))
            yield from self._visit_attributes(value, label)
            for i, group in enumerate(value.param_groups):
                yield from self._add_named(group, f"{label}.param_groups.{i}")
        elif isinstance(value, Module):
            yield from self._add(Container(vars(value), label))
            yield from self._class(value)
        elif isinstance(value, dict):
            yield from self._add(Container(value, label))
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield from self._sequence(value, label)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, MethodType):
            yield value.__self__, label
            yield value.__func__, label
        elif isinstance(value, functools.partial):
            yield from ((item, label) for item in (value.func, value.args, value.keywords))
        elif isinstance(value, type):
            yield from self._class_code(value)
        elif isinstance(value, Schedule) or not _is_library_module(type(value).__module__):
            yield from self._visit_attributes(value, label)
            yield from self._class(value)

    def _add(self, container: Container) -> Iterator[tuple[Any, str]]:
        self.containers.append(container)
        return ((v, container.location(k).label) for k, v in container.entries().items())

    def _sequence(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        if len(value) > MAX_LIST_LENGTH:
            return iter(())
        if isinstance(value, (list, tuple)):
            return self._add(Container(value, label))
        return ((item, label) for item in value)

    def _visit_attributes(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        """Add the attributes named in the visited code."""
        own = getattr(value, "__dict__", {})
        if not _is_library_module(type(value).__module__):
            for each in type(value).__mro__:
                plain = {
                    k for k, v in vars(each).items() if isinstance(v, PLAIN_TYPES)
                } & self.names
                if plain:
                    yield from self._add(Container(vars(each), each.__name__, keys=plain))
        yield from self._add_named(own, label)

    def _add_named(self, entries: Any, label: str) -> Iterator[tuple[Any, str]]:
        return self._add(Container(entries, label, keys=self.names))

    def _class(self, value: Any) -> Iterator[tuple[Any, str]]:
        yield type(value), type(value).__name__

    def _class_code(self, kind: type) -> Iterator[tuple[Any, str]]:
        """Yield the methods of a user's class, because their code may name more attributes."""
        for each in kind.__mro__:
            if not _is_library_module(each.__module__):
                for name, member in vars(each).items():
                    called = name in self.names or name in CALLED_METHODS or name.startswith("__")
                    member = getattr(member, "__func__", member)
                    if called and isinstance(member, FunctionType):
                        yield member, each.__name__

    def _function(self, function: FunctionType) -> Iterator[tuple[Any, str]]:
        if _is_library_module(function.__module__ or ""):
            return
        names = set(_names(function.__code__))
        self.names |= names
        inner = getattr(function, "__wrapped__", None)
        if inner is not None:
            yield inner, function.__name__
        free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in free:
            yield from self._add(Container(cell, name))
        yield from ((value, function.__name__) for value in function.__defaults__ or ())
        yield from ((v, n) for n, v in (function.__kwdefaults__ or {}).items())
        scope = function.__globals__
        yield from self._add(Container(scope, "", keys=names))

    # ---- contents ----------------------------------------------------------------------------

    def snapshot(self) -> list[dict[Any, Any]]:
        """Return the current entries of every container."""
        return [container.entries() for container in self.containers]

    def restore(self, snapshot: list[dict[Any, Any]]) -> None:
        """Restore the entries of a snapshot that were replaced by arrays."""
        for container, before in zip(self.containers, snapshot, strict=True):
            holder = container.holder
            for key, value in container.entries().items():
                if value is before.get(key, MISSING) or array_in(value) is None:
                    continue
                if key in before:
                    container.location(key).put(self.leaves, before[key])
                elif isinstance(holder, dict):
                    del holder[key]

    def arrays(self) -> dict[int, list[ArrayReference]]:
        """Return all references to arrays by the id of their buffer."""
        found: dict[int, list[ArrayReference]] = {}

        def add(location: Location, value: Any, owner: Any) -> None:
            array = array_in(value)
            if array is not None:
                held = ArrayReference(location, array, (id(owner), location.leaf))
                found.setdefault(id(array.view.handle), []).append(held)

        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, NDArray):
                add(Location(None, None, f"argument {i}", i), leaf, leaf)
        for container in self.containers:
            for key, value in container.entries().items():
                own = key == "cached_data" and container.owner is not None
                add(container.location(key), value, container.owner if own else value)
        return found

    def guards(self) -> list[tuple[Location, Any]]:
        """Return (location, expected value) pairs, on which the step's behaviour may depend."""
        found: list[tuple[Location, Any]] = []
        for container in self.containers:
            entries = container.entries()
            if container.owner is not None:
                if container.leaf is None:
                    rest = entries.keys() - {"grad", "cached_data", *RECORDS}
                    found += [(container.location(key), entries[key]) for key in rest]
                continue
            if isinstance(container.holder, tuple) and container.leaf is None:
                continue  # its entries are guarded by the object that holds it
            keys: Any = entries if container.keys is None else container.keys
            for key in keys:
                value = entries.get(key, MISSING)
                if not isinstance(value, NDArray):
                    found.append((container.location(key), self._expected(value)))
            if container.keys is None and isinstance(container.holder, (dict, list)):
                found.append(
                    (LengthLocation(container.holder, None, container.label), len(entries))
                )
        return found

    def grad_guards(self) -> list[tuple[Location, Any]]:
        """Return guards of ``.grad``: None, or the class of a constant Tensor.

        There are none if no visited code uses gradients.
        """
        if not any("grad" in name for name in self.names):
            return []
        owners = [c for c in self.containers if c.owner is not None]
        grads = [(c.location("grad"), c.holder.setdefault("grad", None)) for c in owners]
        return [
            (location, None if grad is None else type(grad))
            for location, grad in grads
            if grad is None or not grad.requires_grad
        ]

    def _expected(self, value: Any) -> Any:
        """Return the value to guard, or the type of a constant Tensor with one location.

        Such a constant may be replaced by another one, because replays read it from its location.
        """
        if not isinstance(value, Tensor) or value.requires_grad:
            return value
        holders = sum(item is value for c in self.containers for item in c.entries().values())
        return type(value) if holders == 1 else value


def unchanged(value: Any, expected: Any) -> bool:
    """Return True if a guard holds, for the same object or an equal plain value."""
    if value is expected:
        return True
    if isinstance(value, Tensor):
        return type(value) is expected and not value.requires_grad
    same_kind = type(value) is type(expected) and isinstance(value, PLAIN_TYPES)
    return same_kind and bool(plain_key(value) == plain_key(expected))


def plain_key(value: Any) -> Any:
    """Return a key of a plain value that tells -0.0 from 0.0 and equates NaN with itself."""
    if isinstance(value, float):
        return value.hex()
    return value.tobytes() if isinstance(value, np.inexact) else value


def _is_library_module(module: str) -> bool:
    """Return True for modules of needle, NumPy and the standard library, which the search skips."""
    root = module.partition(".")[0]
    return root != "__main__" and (root in ("needle", "numpy") or root in sys.stdlib_module_names)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names and strings in a function's code, including inner functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str):
            yield constant
