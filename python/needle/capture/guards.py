"""The guards of a recording: the conditions on arguments and state under which it is replayed.

``state`` makes the guards, and ``program`` checks them before each replay.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq, getitem, is_
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..ndarray import NDArray

PLAIN_TYPES = (type(None), bool, int, float, str, bytes, np.generic, np.dtype)
MISSING = object()
"""The value of a missing location."""


class StaleRecordingError(Exception):
    """Raised if a recording does not match a call; the message names the guard that failed."""


@dataclass(frozen=True)
class Location:
    """A place that stores a value: ``holder[key]``, or a value of the call.

    ``leaf`` is the index of that value: the arguments of the call come first, then the results of
    its host steps. ``key`` then names one of its attributes (None: the value itself).
    """

    holder: Any
    key: Any
    label: str
    leaf: int | None = None

    @property
    def identity(self) -> tuple[int | None, int, Any]:
        """A key by which two objects for one location are equal."""
        return self.leaf, id(self.holder), self.key

    def get(self, values: Sequence[Any]) -> Any:
        """Return the current value, or ``MISSING`` if there is none."""
        if self.leaf is not None:
            return values[self.leaf] if self.key is None else vars(values[self.leaf]).get(self.key)
        try:
            return self.holder[self.key]
        except (KeyError, IndexError):
            return MISSING

    def put(self, values: Sequence[Any], value: Any) -> None:
        """Store ``value`` at the location."""
        holder = self.holder if self.leaf is None else vars(values[self.leaf])
        holder[self.key] = value


@dataclass(eq=False)
class Guard:
    """A condition on a location: ``key`` of its value is ``expected``.

    If ``key`` is ``id``, the value is the object ``expected`` or an equal plain value.
    """

    location: Location
    key: Callable[[Any], Any]
    expected: Any

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Return True if the condition holds."""
        value = self.location.get(leaves)
        if self.key is not id:
            return bool(self.key(value) == self.expected)
        plain = isinstance(value, PLAIN_TYPES)
        if plain and value is not self.expected and fact(value) == fact(self.expected):
            self.expected = value
        return value is self.expected


class Guards:
    """The guards of one recording, which are compared in groups of equal ``key``."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = guards
        self._of_arguments = [guard for guard in guards if guard.location.leaf is not None]
        self._group()

    def _group(self) -> None:
        groups: dict[Any, list[tuple[Any, Any, Any]]] = defaultdict(list)
        for guard in self._guards:
            place = guard.location
            if place.leaf is None:
                groups[guard.key].append((place.holder, place.key, guard.expected))
        self._groups = [(key, *zip(*group, strict=True)) for key, group in groups.items()]

    def check(self, leaves: Sequence[Any]) -> None:
        """Raise StaleRecordingError if a guard fails."""
        same = self._groups_hold()
        for guard in self._of_arguments if same else self._guards:
            if not guard.holds(leaves):
                raise StaleRecordingError(f"{guard.location.label} has changed")
        if not same:
            self._group()  # some values were replaced by equal ones

    def _groups_hold(self) -> bool:
        try:
            for key, holders, keys, expected in self._groups:
                values = map(getitem, holders, keys)
                facts = values if key is id else map(key, values)
                if not all(map(is_ if key is id else eq, facts, expected)):
                    return False
        except (KeyError, IndexError):
            return False
        return True


def array_in(value: Any) -> NDArray | None:
    """Return the array of a Tensor, or the array itself; None for any other value."""
    if isinstance(value, Tensor):
        value = value.cached_data
    return value if isinstance(value, NDArray) else None


def layout(value: Any) -> Any:
    """Return the shape and dtype of an array or a Tensor; None for any other value."""
    array = array_in(value)
    return None if array is None else (array.shape, array.dtype)


def constant_kind(value: Any) -> type | None:
    """Return the class of a Tensor that needs no gradient; None for any other value."""
    return type(value) if isinstance(value, Tensor) and not value.requires_grad else None


def hook_list(hooks: dict[int, Any] | None) -> list[Any]:
    """Return the hooks of a Tensor, which are compared by identity."""
    return [*hooks.values()] if hooks else []


def fact(value: Any) -> Any:
    """Return what a guard compares: the bits of an array, a plain value, or the class of an object.

    Zeros of different sign differ, and NaN equals itself.
    """
    array = value if isinstance(value, np.ndarray) else array_in(value)
    if array is not None:
        host = array if isinstance(array, np.ndarray) else array.numpy()
        digest = hashlib.blake2b(host.tobytes(), digest_size=16).digest()
        return type(value), array.shape, str(array.dtype), digest
    if isinstance(value, float):
        return type(value), value.hex()
    if isinstance(value, np.inexact):
        return type(value), value.tobytes()
    return (type(value), value) if isinstance(value, PLAIN_TYPES) else type(value)
