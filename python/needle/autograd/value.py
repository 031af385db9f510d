# Trail 2 of 30: Value.make_from_op records an op and computes its result.
# Next: python/needle/ops/arithmetic.py
"""``Value``: a node of the computational graph, with the array that its op computed.

``tensor`` derives Tensor and TensorTuple from it; their ops call ``make_from_op``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from ..array_namespace import NDArray
from ..backends.writes import now
from ..errors import GraphError
from .changes import check_deferred
from .discarding import SMALLEST, Discarded, discard_inputs
from .graph import HookHandle, Op, recording

evaluation = SimpleNamespace(lazy=False)
"""``lazy``: if True, a value is computed at its first use instead of immediately."""

Self = TypeVar("Self", bound="Value")
_new = object.__new__


RECORDS = ("saved", "held", "late", "passes", "kept", "tapes", "changed_by")
"""Attributes that track a Value's memory and changes and are not part of its state."""


class _Gradient:
    """The ``grad`` of a Value to which none was assigned: None, or what ``late`` computes."""

    def __get__(self, node: Any, kind: type[Any]) -> Any:
        return None if node is None or node.late is None else node.late(node)


class Value:
    """A node of the computational graph: the op and inputs that produced it, and its value."""

    op: Op | None = None
    inputs: Sequence[Any] = ()
    cached_data: Any = None
    requires_grad: bool = False
    num_outputs: int = 1
    hooks: dict[int, Callable[[Any], Any]] | None = None
    grad: Any = _Gradient()
    """The gradient of the last backward that reached this node; every backward overwrites it."""
    late: Callable[[Any], Any] | None = None
    """Computes the gradient when it is read, for a constant that an operation made (``replay``)."""
    saved: list[Any] | None = None
    """The arrays of the inputs, the array of the result, and the time; None for a leaf."""
    held: bool = False
    """True if an input could be discarded once the program no longer refers to it."""
    passes: int = 0
    """The number of backward passes that this node took part in and outlived (``replay``)."""
    kept: Callable[[], Any] | None = None
    """A weak reference to the ``Leaves`` that keep earlier data of this leaf (``replay``)."""
    tapes: Sequence[tuple[Callable[[], Any], int]] = ()
    """Weak references to the tapes of this leaf's gradient, and its position in each of them."""
    changed_by: str = ""
    """The way in which the data was assigned last, for messages."""

    @property
    def shape(self) -> Any:
        """The shape of the value."""
        raise NotImplementedError

    def realize_cached_data(self) -> Any:
        """Return the value's array; compute it first if necessary."""
        data = self.cached_data
        if type(data) is Discarded:
            return data.of(self)
        if data is None:
            assert self.op is not None
            arrays = [source.realize_cached_data() for source in self.inputs]
            check_deferred(self)
            self.cached_data = as_array(self.op.compute(*arrays))
            self.saved = [arrays, self.cached_data, now()]
        return self.cached_data

    def is_leaf(self) -> bool:
        """Return True if no recorded operation produced this value."""
        return self.op is None

    @classmethod
    def make_const(cls: type[Self], data: Any, requires_grad: bool = False) -> Self:
        """Return a leaf that shares ``data``: an array, a tuple of arrays, or a Value."""
        value = _new(cls)
        value.cached_data = data.realize_cached_data() if isinstance(data, Value) else data
        value.requires_grad = requires_grad
        return value

    @classmethod
    def make_from_op(cls: type[Self], op: Op, inputs: Sequence[Value]) -> Self:
        """Return the node of ``op`` applied to ``inputs``; a constant if nothing is recorded."""
        value = _new(cls)
        ### BEGIN YOUR SOLUTION [record]
        for source in inputs:
            if source.requires_grad:
                if op.differentiable and recording.on:
                    value.op, value.inputs, value.requires_grad = op, inputs, True
                break
        ### END YOUR SOLUTION
        if evaluation.lazy and value.op is not None:
            value.saved = [[source.cached_data for source in inputs], None, now()]
            return value
        arrays = _arrays_of(inputs, value.op is not None)
        data = op.compute(*arrays)
        if type(data) is not NDArray:  # saves a call in the common case
            data = as_array(data)
        value.cached_data = data
        if value.op is not None:
            value.saved = [arrays, data, now()]
        return value

    def register_hook(self, hook: Callable[[Any], Any]) -> HookHandle:
        """Call ``hook(grad)`` whenever a backward has completed the gradient of this value.

        A result other than None replaces the gradient. ``remove()`` of the returned handle removes
        the hook. GraphError if the value does not require grad.
        """
        if not self.requires_grad:
            raise GraphError(
                "register_hook: the tensor must require grad, got requires_grad=False; set it True"
            )
        if self.hooks is None:
            self.hooks = {}
        key = max(self.hooks, default=-1) + 1
        self.hooks[key] = hook
        return HookHandle(self.hooks, key)


def _arrays_of(inputs: Sequence[Value], recorded: bool) -> list[Any]:
    """Return the arrays of ``inputs``; if recorded, discard what only their computation needed."""
    arrays = []
    for source in inputs:
        data = source.cached_data
        if type(data) is not NDArray:
            data = source.realize_cached_data()
        elif recorded and source.op is not None and data.size >= SMALLEST:
            discard_inputs(source)
        arrays.append(data)
    return arrays


def as_array(data: Any) -> Any:
    """Return ``data`` as an array, and a list of arrays as a tuple.

    NumPy returns an immutable scalar for a 0-d result.
    """
    if type(data) is NDArray:
        return data
    if type(data) is list:
        return tuple(data)
    return np.asarray(data) if isinstance(data, np.generic) else data
