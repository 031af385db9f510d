# Trail 1 of 30: reverse_pass: the graph in reverse topological order, without arrays.
# Next: python/needle/autograd/value.py
"""The computational graph: recording switch, topological order, reverse pass.

Works on any node with ``op``, ``inputs``, ``requires_grad`` and ``hooks``, and depends on no array,
tensor or op. Called by ``autograd`` and ``replay``.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..contexts import Decorator, uninterrupted
from .changes import check_reads

_COLLECTIONS = (tuple, list, set, frozenset)
"""The types of ``Op.reads`` that list values; ``isinstance`` is slow for an abstract class."""


class Op:
    """A differentiable operation: ``compute`` on arrays, ``gradient`` on graph nodes.

    Subclass ``TensorOp`` (one result) or ``TensorTupleOp`` (several) of ``autograd``.
    """

    differentiable = True
    """False for ops whose gradient is zero everywhere, such as comparisons."""
    reads: Collection[int | str] | Mapping[int, Collection[int | str]] | None = None
    """The values whose elements ``gradient`` reads: indices of inputs, and "result".

    A mapping lists them for each input whose gradient is computed, that is, which requires grad.
    None: all of them. Other values are freed early (``discarding``) and may change between the
    forward pass and ``backward`` (``changes``). Shapes and dtypes can always be read.
    """

    def compute(self, *args: Any) -> Any:
        """Return the result array for the input arrays."""
        raise NotImplementedError

    def gradient(self, out_grad: Any, node: Any) -> Any:
        """Return the gradients of ``node.inputs``, given the gradient of ``node``.

        The result is one node, or a tuple of nodes with None for an input without gradient. Write
        it with public ops, so that it can be differentiated again.
        """
        raise NotImplementedError

    def gradient_as_tuple(self, out_grad: Any, node: Any) -> tuple[Any, ...]:
        """Return ``gradient`` as a tuple with one entry per input."""
        result = self.gradient(out_grad, node)
        if isinstance(result, tuple):
            return result
        return tuple(result) if isinstance(result, list) else (result,)

    def reads_value(self, which: int | str, node: Any) -> bool:
        """Return True if the gradient of ``node`` reads input ``which`` (or "result")."""
        reads: Any = self.reads
        if reads is None or isinstance(reads, _COLLECTIONS):
            return reads is None or which in reads
        for i, source in enumerate(node.inputs):
            if source.requires_grad and which in reads[i]:
                return True
        return False

    def reads_item(self, index: int, node: Any) -> bool:
        """Return True if the gradient of ``node`` reads item ``index`` of its result, a tuple."""
        return self.reads_value("result", node)

    def keeps_result(self, node: Any) -> bool:
        """Return True if the result of ``node`` must be kept, because a gradient reads it."""
        return self.reads_value("result", node)

    def recompute(self, node: Any) -> Any:
        """Return the array of ``node``, which was discarded."""
        return self.compute(*[source.realize_cached_data() for source in node.inputs])

    def discard(self, node: Any, place: Any) -> None:
        """Drop other references to the array of ``node``, which ``place`` has replaced."""

    def multiplications(self, inputs: Sequence[Any], output: Any) -> int:
        """Return the number of multiplications of ``compute`` for these shapes.

        Only matrix products and convolutions are counted; 0 for all other ops.
        """
        return 0


class _Recording(threading.local):
    """The recording switch of a thread; ``on`` is True if operations are recorded."""

    on = True


recording = _Recording()


class no_grad(Decorator):
    """Context manager and decorator: operations inside are not recorded, results are constants.

    It applies to the thread that enters it. Threads must not share one object.

    >>> with no_grad():
    ...     pass
    """

    value = False
    _before: list[bool]

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """Return a manager, or the decorated function: ``@no_grad`` is ``@no_grad()``."""
        made = super().__new__(cls)
        made._before = []
        return made if function is None else made(function)

    def _recreate_cm(self) -> Any:
        return type(self)()

    @uninterrupted
    def __enter__(self) -> no_grad:
        ### BEGIN YOUR SOLUTION [no-grad]
        self._before.append(recording.on)
        recording.on = self.value
        return self
        ### END YOUR SOLUTION

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        ### BEGIN YOUR SOLUTION [no-grad]
        recording.on = self._before.pop()
        ### END YOUR SOLUTION


class enable_grad(no_grad):
    """Context manager and decorator: operations inside are recorded, even within ``no_grad``."""

    value = True


def find_topo_sort(node_list: Iterable[Any]) -> list[Any]:
    """Return all nodes that ``node_list`` depends on, inputs before users (post-order DFS)."""
    visited: set[Any] = set()
    order: list[Any] = []
    for node in node_list:
        topo_sort_dfs(node, visited, order)
    return order


def topo_sort_dfs(node: Any, visited: set[Any], topo_order: list[Any]) -> None:
    """Append ``node`` and its dependencies to ``topo_order``, without recursion."""
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
    """Return the sum of the nodes, using their own ``+``."""
    return functools.reduce(operator.add, node_list)


def reverse_pass(
    order: list[Any],
    out_grad: Any,
    visit: Callable[[Any, Any], None],
    release: Callable[[Any], None] | None = None,
    stops: Collection[Any] = (),
) -> None:
    """Visit ``order`` in reverse; the gradient of its last node is ``out_grad``.

    ``visit(node, grad)`` is called for each node reached, with its complete gradient, after its
    hooks have run. The pass does not continue to the inputs of the nodes in ``stops``. With
    ``release``, ``order`` is consumed and ``release(node)`` is called after each visit, so that a
    value without other references is freed as soon as its last user is done.
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
    """Add the gradient of each input to the pending contributions of that input."""
    check_reads(node)
    ### BEGIN YOUR SOLUTION [pass-on]
    parts = node.op.gradient_as_tuple(grad, node)
    for source, part in zip(node.inputs, parts, strict=True):
        if part is not None and source.requires_grad:
            pending.setdefault(source, []).append(part)
    ### END YOUR SOLUTION


def gradients_of(output: Any, out_grad: Any, wanted: Sequence[Any]) -> list[Any]:
    """Return the gradient of each node in ``wanted``; None where ``output`` does not depend on it.

    The inputs of ``wanted`` are not visited, and no ``.grad`` is set. The result is recorded if
    recording is on.
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
    """The handle that ``register_hook`` returns; ``remove()`` removes the hook."""

    def __init__(self, hooks: dict[int, Callable[[Any], Any]], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Remove the hook; a second call has no effect."""
        self._hooks.pop(self._key, None)
