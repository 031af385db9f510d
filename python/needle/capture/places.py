"""The Python state that a step can reach: where its tensors are, and the values it may branch on.

Found by walking from the step's function (closure, globals that its code names, ``self``) and its
arguments through modules, optimisers' parameters, dicts and lists. Of objects that are no modules
only attributes that some walked code names are looked at.
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
from ..backends.base import View
from ..ndarray import NDArray
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from ..optim.schedules import Schedule

PLAIN = (type(None), bool, int, float, str, bytes, np.generic, np.dtype)
LONGEST = 1000
"""Longer lists are taken as data; only their identity counts."""
CALLED = ("forward", "compute", "gradient")
"""Methods that needle calls."""
MISSING = object()
"""What is at a place that is not there."""


@dataclass(frozen=True)
class Place:
    """``holder[key]``, or for an argument (``leaf``) the key of its attributes (None: itself)."""

    holder: Any
    key: Any
    label: str
    leaf: int | None = None

    def get(self, leaves: Sequence[Any]) -> Any:
        """What is there now; a mark that is nothing else where there is nothing."""
        if self.leaf is not None:
            return leaves[self.leaf] if self.key is None else vars(leaves[self.leaf]).get(self.key)
        return _entry(self.holder, self.key)

    def put(self, leaves: Sequence[Any], value: Any) -> None:
        """Sets it."""
        holder = self.holder if self.leaf is None else vars(leaves[self.leaf])
        if isinstance(holder, CellType):
            holder.cell_contents = value
        else:
            holder[self.key] = value


@dataclass(frozen=True)
class Length(Place):
    """How many entries the holder has."""

    def get(self, leaves: Sequence[Any]) -> Any:
        return len(self.holder)


@dataclass(frozen=True)
class Holding:
    """An array at a place; ``owner`` tells whether two places show the same Tensor."""

    place: Place
    array: NDArray
    owner: tuple[int, int | None]


def _entry(holder: Any, key: Any) -> Any:
    try:
        return holder.cell_contents if isinstance(holder, CellType) else holder[key]
    except (KeyError, IndexError, ValueError):
        return MISSING


@dataclass(eq=False)
class Container:
    """Something with entries: a dict, a list, a tuple, a cell of a closure."""

    holder: Any
    label: str
    leaf: int | None = None
    keys: set[str] | None = None
    """Only these count; None: all."""
    owner: Tensor | None = None
    """The Tensor whose attributes these are."""

    def entries(self) -> dict[Any, Any]:
        """What is in it now."""
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

    def place(self, key: Any) -> Place:
        """The place of an entry."""
        named = key if isinstance(key, (str, int)) else "" if key is None else type(key).__name__
        label = f"{self.label}.{named}".strip(".")
        return Place(None if self.leaf is not None else self.holder, key, label, self.leaf)


def array_in(value: Any) -> NDArray | None:
    """The array that a place shows: a Tensor's or itself."""
    if isinstance(value, Tensor):
        value = value.cached_data
    return value if isinstance(value, NDArray) else None


def describe_view(view: View) -> str:
    """For messages."""
    return f"{view.dtype} {view.shape} with strides {view.strides}"


class State:
    """Every container that the step can reach, each once, owners before what they hold."""

    def __init__(self, function: Any, leaves: Sequence[Any]) -> None:
        self.leaves = leaves
        self.names: set[str] = set()
        known = -1
        while known < len(self.names):  # code that is found names more attributes
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
            if isinstance(value, (*PLAIN, np.ndarray, NDArray)) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            found = [(item, name, None) for item, name in self._visit(value, label, leaf)]
            stack += reversed(found)

    def _visit(self, value: Any, label: str, leaf: int | None) -> Iterator[tuple[Any, str]]:
        """Notes the containers of ``value``; what is to be visited next."""
        if isinstance(value, Tensor):
            self._add(Container(vars(value), label, leaf, owner=value))
        elif isinstance(value, Optimizer):
            yield from ((p, f"{label}.params.{i}") for i, p in enumerate(value.params))
            yield from self._named(value, label)
            for i, group in enumerate(value.param_groups):
                yield from self._chosen(group, f"{label}.param_groups.{i}")
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
        elif isinstance(value, Schedule) or not _foreign(type(value).__module__):
            yield from self._named(value, label)
            yield from self._class(value)

    def _add(self, container: Container) -> Iterator[tuple[Any, str]]:
        self.containers.append(container)
        return ((v, container.place(k).label) for k, v in container.entries().items())

    def _sequence(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        if len(value) > LONGEST:
            return iter(())
        if isinstance(value, (list, tuple)):
            return self._add(Container(value, label))
        return ((item, label) for item in value)

    def _named(self, value: Any, label: str) -> Iterator[tuple[Any, str]]:
        """The attributes that walked code names."""
        own = getattr(value, "__dict__", {})
        if not _foreign(type(value).__module__):
            for each in type(value).__mro__:
                plain = {k for k, v in vars(each).items() if isinstance(v, PLAIN)} & self.names
                if plain:
                    yield from self._add(Container(vars(each), each.__name__, keys=plain))
        yield from self._chosen(own, label)

    def _chosen(self, entries: Any, label: str) -> Iterator[tuple[Any, str]]:
        return self._add(Container(entries, label, keys=self.names))

    def _class(self, value: Any) -> Iterator[tuple[Any, str]]:
        yield type(value), type(value).__name__

    def _class_code(self, kind: type) -> Iterator[tuple[Any, str]]:
        """Methods of a class that somebody else wrote: their code may read more."""
        for each in kind.__mro__:
            if not _foreign(each.__module__):
                for name, member in vars(each).items():
                    called = name in self.names or name in CALLED or name.startswith("__")
                    member = getattr(member, "__func__", member)
                    if called and isinstance(member, FunctionType):
                        yield member, each.__name__

    def _function(self, function: FunctionType) -> Iterator[tuple[Any, str]]:
        if _foreign(function.__module__ or ""):
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

    # ---- what is in it -----------------------------------------------------------------------

    def snapshot(self) -> list[dict[Any, Any]]:
        """The entries of every container."""
        return [container.entries() for container in self.containers]

    def arrays(self) -> dict[int, list[Holding]]:
        """Every array, by the id of its buffer."""
        found: dict[int, list[Holding]] = {}

        def add(place: Place, value: Any, owner: Any) -> None:
            array = array_in(value)
            if array is not None:
                held = Holding(place, array, (id(owner), place.leaf))
                found.setdefault(id(array._view.handle), []).append(held)

        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, NDArray):
                add(Place(None, None, f"argument {i}", i), leaf, leaf)
        for container in self.containers:
            for key, value in container.entries().items():
                own = key == "cached_data" and container.owner is not None
                add(container.place(key), value, container.owner if own else value)
        return found

    def guards(self) -> list[tuple[Place, Any]]:
        """Places and what was there: another value may lead the step elsewhere."""
        found: list[tuple[Place, Any]] = []
        for container in self.containers:
            entries = container.entries()
            if container.owner is not None:
                if container.leaf is None:
                    rest = entries.keys() - {"grad", "cached_data"}
                    found += [(container.place(key), entries[key]) for key in rest]
                continue
            keys: Any = entries if container.keys is None else container.keys
            for key in keys:
                value = entries.get(key, MISSING)
                if not isinstance(value, NDArray):
                    found.append((container.place(key), self._expected(value)))
            if container.keys is None and isinstance(container.holder, (dict, list)):
                found.append((Length(container.holder, None, container.label), len(entries)))
        return found

    def _expected(self, value: Any) -> Any:
        """A constant that is at one place only may be replaced by another: it is read from there,
        and only its kind counts."""
        if not isinstance(value, Tensor) or value.requires_grad:
            return value
        holders = sum(item is value for c in self.containers for item in c.entries().values())
        return type(value) if holders == 1 else value


def unchanged(value: Any, expected: Any) -> bool:
    """Whether a guarded place holds what it held: the same object, or an equal plain value."""
    if value is expected:
        return True
    if isinstance(value, Tensor):
        return type(value) is expected and not value.requires_grad
    same_kind = type(value) is type(expected) and isinstance(value, PLAIN)
    return same_kind and bool(value == expected)


def _foreign(module: str) -> bool:
    """Whether code of that module is needle's, NumPy's or Python's own: no user's step."""
    root = module.partition(".")[0]
    return root != "__main__" and (root in ("needle", "numpy") or root in sys.stdlib_module_names)


def _names(code: CodeType) -> Iterator[str]:
    """The names and strings in a function's code, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str):
            yield constant
