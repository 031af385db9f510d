"""Release of intermediate values that no gradient reads. Called by ``autograd`` for each new node.

A graph keeps its intermediate values for ``backward``, but a gradient may not need all of them: the
gradient of ``relu`` reads the result and not the input. Ops declare this with ``reads``. A value is
discarded, that is, a ``Discarded`` replaces its array, as soon as

* the gradients of its own op and of its only user do not read it, and
* no program holds a reference to its tensor, which CPython's reference counts tell.

A program that reads the value nevertheless, as ``y.inputs[0]``, gets it computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from .changes import check_deferred


class Discarded:
    """The layout of a discarded array, which it replaces in the graph."""

    __slots__ = ("array", "device", "dtype", "shape", "size")
    view = None  # no buffer, so none that could be written to (see ``changes``)

    def __init__(self, array: Any, device: Any) -> None:
        self.shape, self.dtype, self.size = array.shape, array.dtype, array.size
        self.device, self.array = device, None

    def of(self, node: Any) -> Any:
        """Return the array of ``node``, computed again at the first call."""
        if self.array is None:
            check_deferred(node)
            self.array = node.op.recompute(node)
        return self.array


def has_one_user(inputs: Sequence[Any]) -> bool:
    """Return True if only ``inputs``, those of a node, refers to its first item."""
    return _references(inputs) == _ALONE


def _references(inputs: Sequence[Any]) -> int:
    for source in inputs:
        return getrefcount(source)
    return 0


_ALONE = _references((object(),))

SMALLEST = 4096
"""The least number of elements of a value whose inputs are worth the time to discard them."""


def discard_inputs(node: Any) -> None:
    """Discard the inputs of ``node`` that no gradient reads and no program refers to.

    ``node`` is about to be used by a new node. An input that is still referred to, as by a variable
    of the function that computes, is tried once more when the user of ``node`` is used.
    """
    inputs = node.inputs
    for source in inputs:
        if source.held:
            source.held = False
            discard_inputs(source)
    if "inputs" in node.op.reads or node.cached_data is None:
        return
    position = -1
    for source in inputs:
        position += 1
        data, saved = source.cached_data, source.saved
        if saved is None or data is not saved[-2] or "result" in source.op.reads:
            continue
        if type(data) is tuple:
            continue
        if getrefcount(source) != _ALONE:
            node.held = True
        else:
            place = Discarded(data, source.device)
            source.cached_data = saved[-2] = node.saved[position] = place
            source.op.discard(source, place)
