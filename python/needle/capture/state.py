"""The state of a captured step: all that its arguments and ``capture(state=...)`` refer to.

The walk follows tensors, modules, optimisers, schedules, averages, generators, objects of the
program's own classes, and dicts, lists, tuples and sets of these. ``tracer`` looks arrays up in it,
``program`` checks its guards, and ``checking`` restores it.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
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
from .guards import (
    PLAIN_TYPES,
    Guard,
    Location,
    array_in,
    constant_kind,
    fact,
    hook_list,
    layout,
)

MAX_LENGTH = 1000
"""Entries of a list or dict up to this size are guarded one by one; else only its length is."""
COLLECTIONS = (dict, list, tuple, set, frozenset, deque)
SERVICES = (Optimizer, Schedule, ExponentialAverage, Generator)
"""Objects that need no guards for their attributes, because a replay calls their methods."""
CODE = (type, ModuleType, FunctionType, MethodType)
GRAPH_KEYS = ("op", "inputs", *RECORDS)
"""Attributes of a Tensor that a replay does not set, since it makes constants."""
UNGUARDED = {"grad", "hooks", *RECORDS}
"""Attributes of a Tensor that change from call to call, or that have a guard of their own."""
Roots = Sequence[tuple[str, Any]]
"""Labels and objects from which the walk starts."""


@dataclass(frozen=True)
class ArrayReference:
    """A reference to an array at a location; ``owner`` identifies the Tensor that holds it."""

    location: Location
    array: NDArray
    owner: tuple[int, int | None]


@dataclass(eq=False)
class Container:
    """A collection, or an object's attributes, with entries that are part of the state.

    ``owner``: the Tensor that has this attribute dict, if any. ``leaf``: the index of an
    argument, if the entries are its attributes or the argument itself. ``service``: it belongs to
    an object of ``SERVICES``.
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
        if self.leaf is not None and self.owner is None:
            return Location(None, None, self.label, self.leaf)
        named = key if isinstance(key, (str, int)) else type(key).__name__
        is_data = self.owner is not None and key == "cached_data"
        label = self.label if is_data else f"{self.label}.{named}"
        return Location(None if self.leaf is not None else self.holder, key, label, self.leaf)


def random_state() -> Any:
    """Return the states of the global streams of NumPy and Python, which can be compared."""
    state: Any = np.random.get_state(legacy=True)
    return state[1].tobytes(), *state[2:], random.getstate()


def short_text(value: Any) -> str:
    """Return how messages show a value: a plain value itself, any other by its class."""
    text = repr(value) if isinstance(value, PLAIN_TYPES) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


def describe_view(view: View) -> str:
    """Return the dtype, shape and strides of a view as text for messages."""
    return f"{view.dtype} {view.shape} with strides {view.strides}"


class State:
    """The containers of the state, each once, with owners before their contents."""

    def __init__(self, roots: Roots, leaves: Sequence[Any]) -> None:
        self.containers: list[Container] = []
        self._seen: dict[int, Any] = {}
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, NDArray):
                self.containers.append(Container((leaf,), f"argument {i}", i))
            self._walk(leaf, f"argument {i}", i)
        for label, root in roots:
            self._walk(root, label, None)

    def _walk(self, root: Any, label: str, leaf: int | None) -> None:
        stack: list[tuple[Any, str, bool]] = [(root, label, False)]
        while stack:
            value, label, service = stack.pop()
            if not is_followed(value) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            service = isinstance(value, SERVICES) or (service and isinstance(value, COLLECTIONS))
            if isinstance(value, Tensor):
                place = leaf if value is root else None
                self.containers.append(Container(vars(value), label, place, owner=value))
                continue
            holder = value if isinstance(value, COLLECTIONS) else vars(value)
            made = [Container(holder, label, service=service)]
            made += [] if holder is value else self._classes(value)
            self.containers += made
            entries = [(c.location(k).label, v) for c in made for k, v in c.entries().items()]
            stack += [(item, name, service) for name, item in reversed(entries)]

    def _classes(self, value: Any) -> Iterator[Container]:
        for kind in type(value).__mro__:
            if id(kind) not in self._seen and kind is not object:
                self._seen[id(kind)] = kind
                yield Container(vars(kind), kind.__name__)

    def holds(self, value: Any) -> bool:
        """Return True if an object, such as a Tensor or a module, is part of the state."""
        return id(value) in self._seen

    def location_of(self, value: Any) -> Location | None:
        """Return the first location of an object; None for one that no container holds."""
        entries = ((c, key, each) for c in self.containers for key, each in c.entries().items())
        return next((c.location(key) for c, key, each in entries if each is value), None)

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
        for container in sorted(self.containers, key=attrgetter("service")):
            for key, value in container.entries().items():
                array = array_in(value)
                if array is None:
                    continue
                held = found.setdefault(id(array.view.handle), [])
                if not (held and container.service):
                    own = key == "cached_data" and container.owner is not None
                    owner = id(container.owner if own else value), container.leaf
                    held.append(ArrayReference(container.location(key), array, owner))
        return found

    def guards(self) -> list[Guard]:
        """Return the conditions on which the step's behaviour may depend."""
        found: list[Guard] = []
        values = (value for c in self.containers for value in c.entries().values())
        places = Counter(id(value) for value in values if isinstance(value, Tensor))
        for container in self.containers:
            entries, holder = container.entries(), container.holder
            if container.owner is not None:
                hooks, grad = holder.setdefault("hooks", None), holder.setdefault("grad", None)
                found.append(_guard(container.location("hooks"), hooks, alone=False))
                if hooks is not None:
                    found.append(Guard(container.location("hooks"), hook_list, hook_list(hooks)))
                if grad is None or not grad.requires_grad:
                    found.append(_guard(container.location("grad"), grad, alone=True))
                entries = {k: v for k, v in entries.items() if k not in UNGUARDED}
                if container.leaf is not None:
                    continue
            elif container.service or isinstance(holder, (tuple, frozenset)):
                continue  # the entries of a tuple are guarded by the object that holds it
            else:
                whole = Location((holder,), 0, container.label)
                found.append(Guard(whole, len, len(holder)))
                if isinstance(holder, MappingProxyType):  # replays depend on the methods too
                    entries = {k: v for k, v in holder.items() if not k.startswith("__")}
                elif isinstance(holder, set):
                    found.append(Guard(whole, frozenset, frozenset(holder)))
                    continue
                elif len(holder) > MAX_LENGTH:
                    continue
            held = container.owner is not None and places[id(container.owner)]
            for key, value in entries.items():
                if not isinstance(value, NDArray):
                    found.append(_guard(container.location(key), value, places[id(value)] == 1))
                if array_in(value) is not None and not held:
                    found.append(Guard(container.location(key), layout, layout(value)))
        return found


def _guard(location: Location, value: Any, alone: bool) -> Guard:
    """Return the guard of a value; ``alone``: the state has no other reference to it.

    Such a constant Tensor may be replaced by another one: replays read it from its location.
    """
    if alone and constant_kind(value):
        return Guard(location, constant_kind, type(value))
    if isinstance(value, np.ndarray) and value.size <= MAX_LENGTH:
        return Guard(location, fact, fact(value))
    return Guard(location, id, value)


def is_followed(value: Any) -> bool:
    """Return True if the walk looks into a value: a collection, a Tensor, or a known object."""
    return isinstance(value, (*COLLECTIONS, Tensor, Module, *SERVICES)) or _is_own_object(value)


def _is_own_object(value: Any) -> bool:
    """Return True for an object with attributes that is an instance of a class of the program."""
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
