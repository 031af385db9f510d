"""Detection of values that changed between the forward pass and ``backward``.

Every recorded node keeps, in ``saved``, the arrays of its inputs, the array of its result and the
time of its computation, which is a count of events. An array that was assigned since is another
object; a buffer that was written to since has a later time of writing. Views share the buffer, so
they share that time. ``graph`` calls ``protected_gradient``; ``backends.writes``
knows the times.

An op declares nothing. If a value has changed, ``gradient`` is given a stand-in for it, which has
its shape and dtype and raises GraphError when its data is read. Thus only values that a gradient
needs can fail. Writes that needle does not see (by NumPy into shared memory) are not detected.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..backends import writes
from ..errors import GraphError

RECORDS = ("saved", "is_changed", "changed_by", "held")
"""The attributes of a Value that belong to this detection: no part of its state."""


class Tracked:
    """The attributes of a value of the graph that the detection uses, as named in ``RECORDS``."""

    saved: list[Any] | None = None
    """The arrays of the inputs, the array of the result, and the time; None for a leaf."""
    is_changed: bool = False
    """True if a backward found that the value or an input has changed since it was computed."""
    held: bool = False
    """True if an input could be discarded once the program no longer refers to it."""
    changed_by: str = ""
    """The way in which the data was assigned last, for messages."""


def written_since(data: Any, time: int) -> bool:
    """Return True if the buffer of an array (or of one in a tuple) was written to after ``time``.

    NumPy's own arrays have no such time.
    """
    if type(data) is tuple:
        return any(written_since(each, time) for each in data)
    return writes.buffer_written_since(getattr(data.view, "handle", None), time)


def has_changed(node: Any) -> bool:
    """Return True if the result or an input of a recorded node changed after its computation."""
    saved = getattr(node, "saved", None)
    if saved is None:
        return False
    i = 0  # plain loops, because this runs for every node of every backward
    for source in node.inputs:
        if source.cached_data is not saved[i]:
            return node.cached_data is not None
        i += 1
    if node.cached_data is not saved[i]:
        return True
    time = saved[-1]
    if writes.last_write() > time:
        for data in saved[:-1]:
            if written_since(data, time):
                return True
    return False


def protected_gradient(out_grad: Any, node: Any) -> tuple[Any, ...]:
    """Return ``node.op.gradient_as_tuple(out_grad, node)`` for a node that has changed.

    GraphError if the gradient reads a value that has changed.
    """
    node.is_changed = True
    given, saved = node.inputs, node.saved
    parts: tuple[Any, ...]
    # The node stays the same object, because a recorded gradient may become its user.
    node.inputs = tuple(
        _protected(source, data, node, f"input {i}")
        for i, (source, data) in enumerate(zip(given, saved))
    )
    try:
        parts = node.op.gradient_as_tuple(out_grad, _protected(node, saved[-2], node, "result"))
    finally:
        node.inputs = given
    return parts


def check_deferred(node: Any) -> None:
    """Raise GraphError if an input of a lazy node changed before the node was computed."""
    for i, (source, data) in enumerate(zip(node.inputs, node.saved or ())):
        time = node.saved[-1]
        if data is None:  # the input was lazy too, and was computed later
            data, time = source.saved[-2:] if source.saved else (source.cached_data, time)
        how = _how(source, data, time)
        if how:
            raise _error(node, "value", f"input {i}", data, how)


def _how(value: Any, data: Any, time: int) -> str:
    """Return how ``value``, which held ``data`` at ``time``, was changed; "" if it was not."""
    if value.cached_data is not data:
        return value.changed_by or "an assignment of another array"
    return "a write into its array (a[...] = ...)" if written_since(data, time) else ""


def _error(node: Any, needs: str, what: str, data: Any, how: str) -> GraphError:
    layout = "a tuple" if isinstance(data, tuple) else f"shape {tuple(data.shape)}"
    return GraphError(
        f"backward: the {needs} of {type(node.op).__name__} needs its {what}, of {layout}, as in "
        f"the forward pass, but it was changed since by {how}; call backward() before the change, "
        "or run the forward pass again after it"
    )


def _protected(value: Any, data: Any, node: Any, what: str) -> Any:
    """Return ``value`` if it still is the ``data`` of ``node``'s computation, else a stand-in."""
    time = node.saved[-1]
    how = _how(value, data, time)
    if not how:
        return value
    kind: Any = type(value)
    stand_in: Any = object.__new__(_stand_in_class(kind))
    vars(stand_in).update(vars(value))
    stand_in.cached_data, stand_in.error = None, _error(node, "gradient", what, data, how)
    if isinstance(data, tuple):
        replaced = value.cached_data is not data
        stand_in.items_left = _ItemsLeft(data)
        stand_in.items_left.error = stand_in.error
        stand_in.items_left.gone = [replaced or written_since(each, time) for each in data]
        stand_in.shape = tuple(tuple(each.shape) for each in data)
    else:
        stand_in.shape, stand_in.dtype, stand_in.size = tuple(data.shape), data.dtype, data.size
        stand_in.device = value.device
    return stand_in


class _StandIn:
    """A value that has changed: its layout can be read, its data raises ``error``."""

    shape = dtype = device = size = items_left = None
    error: GraphError

    def realize_cached_data(self) -> Any:
        if self.items_left is None:
            raise self.error
        return self.items_left


class _ItemsLeft(tuple[Any, ...]):
    """The arrays of a tuple; those that have changed raise ``error``."""

    error: GraphError
    gone: list[bool]

    def __getitem__(self, index: Any) -> Any:
        if self.gone[index]:
            raise self.error
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))


@cache
def _stand_in_class(kind: Any) -> Any:
    return type(kind.__name__, (_StandIn, kind), {})
