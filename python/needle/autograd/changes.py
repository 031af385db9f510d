"""Detect values that changed between the forward pass and ``backward``.

Every recorded node keeps, in ``saved``, the arrays of its inputs, the array of its result and the
time of its computation. If an array has been assigned since, it is another object; if a buffer has
been written to since, it has a later write time (``backends.writes``), which all its views share.
``backward`` raises GraphError if a gradient reads such a value; ``Op.reads`` declares what it
reads. Writes that needle does not see (by NumPy into shared memory) are not detected.
"""

from __future__ import annotations

from typing import Any

from ..backends.base import View
from ..backends.writes import latest, written_since
from ..errors import GraphError


def was_written(data: Any, time: int) -> bool:
    """Return True if the buffer of an array (or of one in a tuple) was written to after ``time``.

    NumPy arrays and discarded arrays have no write time.
    """
    if type(data) is tuple:
        return any(was_written(each, time) for each in data)
    return type(data.view) is View and written_since(data.view.handle, time)


def has_changed(node: Any) -> bool:
    """Return True if the result or an input of a node has changed since it was computed."""
    if node.saved is None:
        return False
    arrays, result, time = node.saved
    for source, data in zip(node.inputs, arrays):
        if source.cached_data is not data:
            return True
    if node.cached_data is not result:
        return True
    return latest() > time and any(was_written(data, time) for data in (*arrays, result))


def check_reads(node: Any) -> None:
    """Raise GraphError if a value that the gradient of ``node`` reads has changed."""
    if not has_changed(node):
        return
    op = node.op
    arrays, result, time = node.saved
    for i, (source, data) in enumerate(zip(node.inputs, arrays, strict=True)):
        may_differ = not op.reads_value(i, node) and _layout(source.cached_data) == _layout(data)
        if not may_differ and (how := _how(source, data, time)):
            raise _error(op, "gradient", f"input {i}", data, how)
    if op.reads_value("result", node):
        read = result
        if type(result) is tuple and node.cached_data is result:
            read = tuple(each for i, each in enumerate(result) if op.reads_item(i, node))
        if how := _how(node, result, time) if read is result else _how_written(read, time):
            raise _error(op, "gradient", "result", result, how)


def check_deferred(node: Any) -> None:
    """Raise GraphError if an input has changed before the lazy value of ``node`` is computed."""
    arrays, _, time = node.saved or ((), None, 0)
    for i, (source, data) in enumerate(zip(node.inputs, arrays, strict=False)):
        since = time
        if data is None:  # the input was also lazy, and was computed later
            data, since = source.saved[1:] if source.saved else (source.cached_data, time)
        if how := _how(source, data, since):
            raise _error(node.op, "value", f"input {i}", data, how)


def _layout(data: Any) -> Any:
    """Return what any gradient may read: the shape and dtype of each array."""
    return [*map(_layout, data)] if isinstance(data, tuple) else (data.shape, data.dtype)


def _how(value: Any, data: Any, time: int) -> str:
    """Describe how ``value``, which held ``data`` at ``time``, has changed; "" if it has not."""
    if value.cached_data is not data:
        return value.changed_by or "an assignment of another array"
    return _how_written(data, time)


def _how_written(data: Any, time: int) -> str:
    return "a write into its array (a[...] = ...)" if was_written(data, time) else ""


def _error(op: Any, needs: str, what: str, data: Any, how: str) -> GraphError:
    layout = "a tuple" if isinstance(data, tuple) else f"shape {tuple(data.shape)}"
    declare = "" if op.reads is not None else "; if its gradient reads no such value, set `reads`"
    return GraphError(
        f"backward: the {needs} of {type(op).__name__} needs its {what}, of {layout}, as in "
        f"the forward pass, but it was changed since by {how}; call backward() before the change, "
        f"or run the forward pass again after it{declare}"
    )
