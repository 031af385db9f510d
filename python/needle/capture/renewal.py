"""The renewal of arrays at the end of a recorded step, which shows what else the program keeps.

Each array that a replay will replace, in the state or in the result, gets a new object on the same
buffer. An original that is still alive afterwards is held by something that a replay cannot update.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Collection
from typing import Any

from ..autograd import Tensor
from ..ndarray import NDArray
from ..ndarray.array import wrap
from .buffers import BufferSlot
from .guards import array_in
from .state import State


class Renewals:
    """The objects that replace arrays of one step; ``given``: ids of buffers from before it."""

    def __init__(self, state: State, given: Collection[int]) -> None:
        self._state, self._given = state, frozenset(given)
        self._replaced: list[weakref.ref[NDArray]] = []
        self._renewals: dict[int, Any] = {}  # by the id of the object that is replaced

    def renewed(self, value: Any) -> Any:
        """Return a constant that replaces ``value``, an array of the step, on the same buffer.

        ``kept`` then finds out whether the program also keeps the replaced object.
        """
        array = array_in(make_constant(value))
        if array is None or id(array.view.handle) in self._given or self._state.holds(value):
            return value
        if id(value) not in self._renewals:
            self._replaced.append(weakref.ref(array))
            again = wrap(array.view, array.device)
            if value is not array:
                again = value.make_const(again, value.requires_grad)
            self._renewals[id(value)] = again
        return self._renewals[id(value)]

    def kept(self, buffers: Collection[tuple[BufferSlot, Callable[[], Any]]]) -> int:
        """Return how many arrays the program keeps elsewhere.

        ``buffers``: the slots of the step, each with a weak reference to its buffer.
        """
        self._renewals = {}
        lost = 0
        for collected in (False, True):
            if collected:
                gc.collect()
            alive = [slot for slot, ref in buffers if ref() is not None]
            lost = sum(not (slot.bound or slot.fresh) for slot in alive)
            lost += sum(ref() is not None for ref in self._replaced)
            if not lost:
                break
        return lost


def make_constant(value: Any) -> Any:
    """Return a value; a Tensor without its autograd graph, which would keep temporaries alive."""
    if isinstance(value, Tensor) and value.op is not None:
        value.op, value.inputs, value.requires_grad, value.grad = None, (), False, None
        value.saved = None
    return value
