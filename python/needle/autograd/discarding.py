"""Release intermediate values that no gradient reads. Called by ``value`` for each new node.

A graph keeps its intermediate values for ``backward``, but a gradient may not need all of them: the
gradient of ``relu`` reads the result and not the input. Ops declare this with ``reads``. A value is
discarded, that is, a ``Discarded`` replaces its array, as soon as

* the gradients of its own op and of its only user do not read it, and
* the program holds no reference to its tensor, according to reference counts (``refs``).

If a program reads the value nevertheless, as ``y.inputs[0]``, it is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .changes import check_deferred
from .refs import unheld


class Discarded:
    """A stand-in for a discarded array in the graph, with its shape, dtype and device."""

    __slots__ = ("array", "device", "dtype", "shape", "size")
    view = None
    """There is no buffer, so none that could be written to (see ``changes``)."""

    def __init__(self, array: Any, device: Any) -> None:
        self.shape, self.dtype, self.size = array.shape, array.dtype, array.size
        self.device, self.array = device, None

    def of(self, node: Any) -> Any:
        """Return the array of ``node``, computed again at the first call."""
        if self.array is None:
            check_deferred(node)
            self.array = node.op.recompute(node)
        return self.array


SMALLEST = 4096
"""Inputs of values with fewer elements than this are not worth the time to discard them."""


def discard_inputs(node: Any) -> None:
    """Discard the inputs of ``node`` that no gradient reads and no program refers to.

    ``node`` is about to be used by a new node. If something, such as a local variable of a layer,
    still refers to an input, another attempt is made when the user of ``node`` is itself used.
    """
    if node.saved is None:
        return
    _discard_held(node.inputs)
    node.held = _discard(node)


def _discard_held(nodes: Sequence[Any]) -> None:
    for node in nodes:
        if node.held:
            node.held = False
            _discard(node)


def _discard(node: Any) -> bool:
    """Discard such inputs; return True if the program still refers to one."""
    if node.saved is None:
        return False
    inputs, arrays = node.inputs, node.saved[0]
    reads = node.op.reads_value
    unread = [
        i
        for i, (source, data) in enumerate(zip(inputs, arrays, strict=True))
        if source.saved is not None and not reads(i, node) and _is_unread(source, data)
    ]
    if not unread:
        return False
    free = unheld(inputs)
    for i in unread:
        if free[i]:
            source = inputs[i]
            place = Discarded(arrays[i], source.device)
            source.cached_data = source.saved[1] = arrays[i] = place
            source.op.discard(source, place)
    return not all(free[i] for i in unread)


def _is_unread(node: Any, data: Any) -> bool:
    """Return True if ``data`` is the array of ``node`` and its own gradient does not read it."""
    return (
        node.cached_data is data is node.saved[1]
        and data is not None
        and type(data) is not tuple
        and not node.op.keeps_result(node)
    )
