"""The computational graph as such: recording, topological order, the reverse pass.

Works on any node with ``op``, ``inputs``, ``requires_grad`` and ``hooks``; knows neither arrays
nor tensors nor any op. Called by ``autograd`` and ``replay``.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ContextDecorator
from typing import Any


class Op:
    """A differentiable operation: ``compute`` on arrays, ``gradient`` on graph nodes.

    Subclass ``TensorOp`` (one result) or ``TensorTupleOp`` (several) of ``autograd``.
    """

    differentiable = True
    """False for ops with a zero gradient everywhere (comparisons): their results are constants."""

    def compute(self, *args: Any) -> Any:
        """The result's array from the inputs' arrays."""
        raise NotImplementedError

    def gradient(self, out_grad: Any, node: Any) -> Any:
        """The gradient of each of ``node.inputs``, from that of ``node``: a node, or a tuple of
        them with None where an input has none. Built of public ops, so it has a gradient too."""
        raise NotImplementedError

    def gradient_as_tuple(self, out_grad: Any, node: Any) -> tuple[Any, ...]:
        """``gradient``, always as a tuple with one entry an input."""
        result = self.gradient(out_grad, node)
        if isinstance(result, tuple):
            return result
        return tuple(result) if isinstance(result, list) else (result,)


class _Recording(threading.local):
    """Whether operations of this thread are recorded for differentiation."""

    on = True


recording = _Recording()


class no_grad(ContextDecorator):
    """Operations inside are not recorded: their results are constants. Also a decorator.

    >>> with no_grad():
    ...     pass
    """

    value = False

    def __init__(self) -> None:
        self._before: list[bool] = []

    def _recreate_cm(self) -> no_grad:
        return type(self)()

    def __enter__(self) -> no_grad:
        ### BEGIN YOUR SOLUTION [no-grad]
        self._before.append(recording.on)
        recording.on = self.value
        return self
        ### END YOUR SOLUTION

    def __exit__(self, *exc: object) -> None:
        ### BEGIN YOUR SOLUTION [no-grad]
        recording.on = self._before.pop()
        ### END YOUR SOLUTION


class enable_grad(no_grad):
    """Operations inside are recorded, also within ``no_grad``."""

    value = True


def find_topo_sort(node_list: Iterable[Any]) -> list[Any]:
    """Every node that ``node_list`` depends on, inputs before users (post-order depth first)."""
    visited: set[Any] = set()
    order: list[Any] = []
    for node in node_list:
        topo_sort_dfs(node, visited, order)
    return order


def topo_sort_dfs(node: Any, visited: set[Any], topo_order: list[Any]) -> None:
    """Appends ``node`` and what it depends on to ``topo_order``; a loop, so of any depth."""
    ### BEGIN YOUR SOLUTION [topo-sort]
    if node in visited:
        return
    visited.add(node)
    stack = [(node, iter(node.inputs))]
    while stack:
        current, inputs = stack[-1]
        for child in inputs:
            if child not in visited:
                visited.add(child)
                stack.append((child, iter(child.inputs)))
                break
        else:
            stack.pop()
            topo_order.append(current)
    ### END YOUR SOLUTION


def sum_node_list(node_list: list[Any]) -> Any:
    """The sum of the nodes, through their own ``+``."""
    return functools.reduce(operator.add, node_list)


def reverse_pass(
    order: list[Any],
    out_grad: Any,
    visit: Callable[[Any, Any], None],
    release: Callable[[Any], None] | None = None,
    stops: Collection[Any] = (),
) -> None:
    """Walks ``order`` backwards from its last node, whose gradient is ``out_grad``.

    ``visit(node, grad)`` is called for each node reached, with its complete gradient after its
    hooks; the walk does not go behind ``stops``. With ``release``, ``order`` is consumed and each
    node is handed to it behind the walk: a value that nobody else holds is freed as soon as its
    last user is done.
    """
    ### BEGIN YOUR SOLUTION [reverse-pass]
    pending: dict[Any, list[Any]] = {order[-1]: [out_grad]}
    for position in range(len(order) - 1, -1, -1):
        node = order[position] if release is None else order.pop()
        contributions = pending.pop(node, None)
        if contributions is not None:
            grad = contributions[0] if len(contributions) == 1 else sum_node_list(contributions)
            if node.hooks:
                grad = _run_hooks(node, grad)
            visit(node, grad)
            if node.op is not None and node not in stops:
                _pass_on(node, grad, pending)
        if release is not None:
            release(node)
    ### END YOUR SOLUTION


def _pass_on(node: Any, grad: Any, pending: dict[Any, list[Any]]) -> None:
    """Adds each input's part of the gradient to its pending ones."""
    ### BEGIN YOUR SOLUTION [pass-on]
    parts = node.op.gradient_as_tuple(grad, node)
    for source, part in zip(node.inputs, parts, strict=True):
        if part is not None and source.requires_grad:
            pending.setdefault(source, []).append(part)
    ### END YOUR SOLUTION


def gradients_of(output: Any, out_grad: Any, wanted: Sequence[Any]) -> list[Any]:
    """The gradient of each node of ``wanted`` (None where ``output`` does not depend on it).

    Nothing behind ``wanted`` is walked, no ``.grad`` is set. Recorded if recording is on.
    """
    ### BEGIN YOUR SOLUTION [gradients-of]
    stops = set(wanted)
    order = list(stops - {output})
    visited = set(order)
    topo_sort_dfs(output, visited, order)
    found: dict[Any, Any] = {}
    reverse_pass(order, out_grad, found.__setitem__, stops=stops)
    return [found.get(node) for node in wanted]
    ### END YOUR SOLUTION


def _run_hooks(node: Any, grad: Any) -> Any:
    ### BEGIN YOUR SOLUTION [hooks]
    for hook in tuple(node.hooks.values()):
        replaced = hook(grad)
        grad = grad if replaced is None else replaced
    return grad
    ### END YOUR SOLUTION


class HookHandle:
    """Returned by ``register_hook``; ``remove()`` takes the hook off again."""

    def __init__(self, hooks: dict[int, Callable[[Any], Any]], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Takes the hook off; a second call does nothing."""
        self._hooks.pop(self._key, None)
