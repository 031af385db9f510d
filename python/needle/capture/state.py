"""The state of a captured step: all that its arguments and ``capture(state=...)`` refer to.

The walk follows tensors, modules, optimisers, schedules, averages, generators, objects of the
program's own classes, and dicts, lists, tuples and sets of these. ``tracer`` looks arrays up in it,
``program`` checks its guards, and ``checking`` restores it.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..autograd.value import RECORDS
from ..backends.base import View
from ..contexts import uninterrupted
from ..init import Generator
from ..ndarray import NDArray
from ..nn.module import Module
from ..optim import ExponentialAverage
from ..optim.optimizer import Optimizer
from ..optim.schedules import Schedule

PLAIN_TYPES = (type(None), bool, int, float, str, bytes, np.generic, np.dtype)
MAX_LENGTH = 1000
"""The most entries of a list or dict that are guarded one by one; of longer ones the length is."""
COLLECTIONS = (dict, list, tuple, set, frozenset, deque)
SERVICES = (Optimizer, Schedule, ExponentialAverage, Generator)
"""Objects whose methods a replay calls again, so that their attributes need no guards."""
CODE = (type, ModuleType, FunctionType, MethodType)
GRAPH_KEYS = ("op", "inputs", *RECORDS)
"""Attributes of a Tensor that a replay does not set, since it makes constants."""
MISSING = object()
"""The value of a missing location."""
Roots = Sequence[tuple[str, Any]]
"""Labels and objects from which the walk starts."""


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
        try:
            return self.holder[self.key]
        except (KeyError, IndexError):
            return MISSING

    def put(self, leaves: Sequence[Any], value: Any) -> None:
        """Store ``value`` at the location."""
        holder = self.holder if self.leaf is None else vars(leaves[self.leaf])
        holder[self.key] = value


@dataclass(frozen=True)
class LengthLocation(Location):
    """A guarded location whose value is the number of entries of the holder."""

    def get(self, leaves: Sequence[Any]) -> Any:
        """Return the current number of entries."""
        return len(self.holder)


@dataclass(frozen=True)
class ContentLocation(Location):
    """A guarded place of a NumPy array, whose value is its content."""

    def get(self, leaves: Sequence[Any]) -> Any:
        """Return the bytes of the array."""
        value = super().get(leaves)
        return value.tobytes() if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class SetLocation(Location):
    """A guarded set, whose value is the hash of its entries."""

    def get(self, leaves: Sequence[Any]) -> Any:
        """Return the hash of the entries."""
        return hash(frozenset(self.holder))


@dataclass(frozen=True)
class ArrayReference:
    """A reference to an array at a location; ``owner`` identifies the Tensor that holds it."""

    location: Location
    array: NDArray
    owner: tuple[int, int | None]


@dataclass(eq=False)
class Container:
    """A collection, or the attributes of an object, whose entries are part of the state.

    ``owner``: the Tensor of which this is the attribute dict, if any. ``service``: it belongs to an
    object of ``SERVICES``.
    """

    holder: Any
    label: str
    leaf: int | None = None
    owner: Tensor | None = None
    service: bool = False

    def entries(self) -> dict[Any, Any]:
        """Return the current entries as a dict; those of a class without its code."""
        if isinstance(self.holder, dict):
            return dict(self.holder)
        if isinstance(self.holder, MappingProxyType):
            return {key: v for key, v in self.holder.items() if _is_class_state(key, v)}
        return dict(enumerate(self.holder))

    def location(self, key: Any) -> Location:
        """Return the location of the entry ``key``."""
        named = key if isinstance(key, (str, int)) else type(key).__name__
        is_data = self.owner is not None and key == "cached_data"
        label = self.label if is_data else f"{self.label}.{named}"
        return Location(None if self.leaf is not None else self.holder, key, label, self.leaf)


def array_in(value: Any) -> NDArray | None:
    """Return the array of a Tensor, or the array itself; None for any other value."""
    if isinstance(value, Tensor):
        value = value.cached_data
    return value if isinstance(value, NDArray) else None


def describe_view(view: View) -> str:
    """Return the dtype, shape and strides of a view as text for messages."""
    return f"{view.dtype} {view.shape} with strides {view.strides}"


class State:
    """The containers of the state, each once, with owners before their contents."""

    def __init__(self, roots: Roots, leaves: Sequence[Any]) -> None:
        self.leaves = leaves
        self.containers: list[Container] = []
        self._seen: set[int] = set()
        for i, leaf in enumerate(leaves):
            self._walk(leaf, f"argument {i}", i)
        for label, root in roots:
            self._walk(root, label, None)

    def _walk(self, root: Any, label: str, leaf: int | None) -> None:
        stack: list[tuple[Any, str, int | None, bool]] = [(root, label, leaf, False)]
        while stack:
            value, label, leaf, service = stack.pop()
            if not is_followed(value) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            service = isinstance(value, SERVICES) or (service and isinstance(value, COLLECTIONS))
            visited = [*self._visit(value, label, leaf, service)]
            stack += [(item, name, None, service) for item, name in reversed(visited)]

    def _visit(
        self, value: Any, label: str, leaf: int | None, service: bool
    ) -> Iterator[tuple[Any, str]]:
        """Add the containers of ``value`` and yield the objects to visit next."""
        if isinstance(value, Tensor):
            self.containers.append(Container(vars(value), label, leaf, owner=value))
        elif isinstance(value, COLLECTIONS):
            yield from self._add(Container(value, label, service=service))
        else:
            yield from self._add(Container(vars(value), label, service=service))
            for kind in type(value).__mro__:
                if id(kind) not in self._seen and kind is not object:
                    self._seen.add(id(kind))
                    yield from self._add(Container(vars(kind), kind.__name__))

    def _add(self, container: Container) -> Iterator[tuple[Any, str]]:
        self.containers.append(container)
        return ((v, container.location(k).label) for k, v in container.entries().items())

    def holds(self, value: Any) -> bool:
        """Return True if an object of ``SERVICES`` is part of the state."""
        return id(value) in self._seen

    # ---- contents ----------------------------------------------------------------------------

    def snapshot(self) -> list[dict[Any, Any]]:
        """Return the current entries of every container."""
        return [container.entries() for container in self.containers]

    @uninterrupted
    def restore(self, snapshot: list[dict[Any, Any]]) -> None:
        """Give every container the entries of a snapshot."""
        for container, before in zip(self.containers, snapshot, strict=True):
            holder = container.holder
            if isinstance(holder, list):
                holder[:] = before.values()
            elif isinstance(holder, (set, deque)):
                holder.clear()
                (holder.update if isinstance(holder, set) else holder.extend)(before.values())
            elif isinstance(holder, dict):
                for key in holder.keys() - before.keys():
                    del holder[key]
                for key, value in before.items():
                    holder[key] = value

    def arrays(self) -> dict[int, list[ArrayReference]]:
        """Return all references to arrays by the id of their buffer.

        Arrays of services are left out where another reference exists: no kernel of a replay reads
        them.
        """
        found: dict[int, list[ArrayReference]] = {}
        last: list[tuple[int, ArrayReference]] = []
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, NDArray):
                here = Location(None, None, f"argument {i}", i)
                found.setdefault(id(leaf.view.handle), []).append(
                    ArrayReference(here, leaf, (id(leaf), i))
                )
        for container in self.containers:
            for key, value in container.entries().items():
                array = array_in(value)
                if array is None:
                    continue
                own = key == "cached_data" and container.owner is not None
                owner = id(container.owner if own else value), container.leaf
                held = ArrayReference(container.location(key), array, owner)
                if container.service:
                    last.append((id(array.view.handle), held))
                else:
                    found.setdefault(id(array.view.handle), []).append(held)
        for handle, held in last:
            found.setdefault(handle, [held])
        return found

    def guards(self) -> list[tuple[Location, Any]]:
        """Return (location, expected value) pairs, on which the step's behaviour may depend."""
        found: list[tuple[Location, Any]] = []
        values = (value for c in self.containers for value in c.entries().values())
        holders = Counter(id(value) for value in values if isinstance(value, Tensor))
        for container in self.containers:
            entries, holder = container.entries(), container.holder
            if container.owner is not None:
                if container.leaf is None:
                    rest = entries.keys() - {"grad", "cached_data", *RECORDS}
                    found += [(container.location(key), entries[key]) for key in rest]
                grad = holder.setdefault("grad", None)
                if grad is None or not grad.requires_grad:
                    expected = None if grad is None else type(grad)
                    found.append((container.location("grad"), expected))
            elif not container.service and not isinstance(holder, (tuple, frozenset)):
                # The entries of a tuple are guarded by the object that holds it.
                if isinstance(holder, MappingProxyType):  # replays depend on the methods too
                    entries = {k: v for k, v in holder.items() if not k.startswith("__")}
                if isinstance(holder, set):
                    place = SetLocation(holder, None, container.label)
                    found.append((place, place.get(())))
                elif len(entries) <= MAX_LENGTH:
                    found += [
                        (container.location(key), _expected(value, holders[id(value)]))
                        for key, value in entries.items()
                        if not isinstance(value, NDArray)
                    ]
                    found += [
                        (ContentLocation(holder, key, container.location(key).label), v.tobytes())
                        for key, v in entries.items()
                        if isinstance(v, np.ndarray) and v.size <= MAX_LENGTH
                    ]
                found.append((LengthLocation(holder, None, container.label), len(holder)))
        return found


def _expected(value: Any, holders: int) -> Any:
    """Return the value to guard, or the type of a constant Tensor with one location.

    Such a constant may be replaced by another one, because replays read it from its location.
    """
    constant = isinstance(value, Tensor) and not value.requires_grad
    return type(value) if constant and holders == 1 else value


def is_followed(value: Any) -> bool:
    """Return True if the walk looks into a value: a collection, a Tensor, or a known object."""
    return isinstance(value, (*COLLECTIONS, Tensor, Module, *SERVICES)) or _is_own_object(value)


def _is_own_object(value: Any) -> bool:
    """Return True for an object with attributes whose class belongs to the program."""
    root = type(value).__module__.partition(".")[0]
    own = root == "__main__" or (
        root not in ("needle", "numpy") and root not in sys.stdlib_module_names
    )
    own |= isinstance(value, SimpleNamespace)
    return own and hasattr(value, "__dict__") and not isinstance(value, CODE)


def _is_class_state(key: str, value: Any) -> bool:
    """Return True for an attribute of a class that is a value rather than code."""
    special = key.startswith("__") or isinstance(value, CODE) or hasattr(type(value), "__get__")
    return not special and (isinstance(value, (*PLAIN_TYPES, NDArray)) or is_followed(value))


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


def labelled(state: Any) -> list[tuple[str, Any]]:
    """Return what was given as ``state=`` with labels: the class of an object, else its place."""
    several = isinstance(state, (list, tuple))
    places = [(f"state[{i}]", v) for i, v in enumerate(state)] if several else [("state", state)]
    return [
        (place if isinstance(value, (*COLLECTIONS, Tensor)) else type(value).__name__, value)
        for place, value in places
    ]


def check_state(value: Any, label: str = "state") -> None:
    """Raise TypeError unless a value can be part of the state of a step."""
    if isinstance(value, COLLECTIONS):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            check_state(item, f"{label}[{key!r}]")
    elif not is_followed(value) and not isinstance(value, (*PLAIN_TYPES, NDArray)):
        raise TypeError(
            f"capture: {label} must be a module, optimizer, schedule, average, needle.init."
            "Generator, tensor, object with attributes or a collection of these, got "
            f"{type(value).__name__}; pass what the step changes and what its kernels read"
        )
