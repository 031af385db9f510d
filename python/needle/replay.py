"""What a default ``backward()`` leaves behind: a tape of the released graph, without its buffers.

Releasing frees every intermediate value, yet ``x.grad.backward()`` must still work (the course's
second derivatives). So the tape keeps the ops and the *leaves* only, and computes the rest again
in the rare case that a gradient is differentiated. Called by ``autograd``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from .errors import GraphError
from .graph import Op, enable_grad, gradients_of


class Leaves:
    """The leaves of a tape: their arrays, and the nodes themselves only weakly.

    So ``x -> x.grad -> tape`` is no reference cycle. A leaf that has died stands as a constant.
    """

    def __init__(self, nodes: Sequence[Any]) -> None:
        self._entries: list[tuple[weakref.ref[Any], Any, type[Any]]] = [
            (weakref.ref(n), n.realize_cached_data(), type(n)) for n in nodes
        ]
        self._substitutes: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        for i, (reference, data, kind) in enumerate(self._entries):
            node = reference()
            if node is None:
                node = self._substitutes.get(i)
                if node is None:
                    node = self._substitutes[i] = kind.make_const(data)
            yield node

    def forget(self, position: int, node: Any) -> None:
        """Lets go of the data of ``node``, if that is the leaf here: it is about to be replaced."""
        if position < len(self._entries):
            reference, _, kind = self._entries[position]
            if reference() is node:
                self._entries[position] = reference, None, kind

    def check_unchanged(self, positions: Container[int]) -> None:
        """GraphError if a leaf got other data since: the values would be of another point."""
        for position, (reference, data, kind) in enumerate(self._entries):
            node = reference()
            replaced = data is None or (node is not None and node.cached_data is not data)
            if position in positions and replaced:
                what = kind.__name__ if node is None else f"leaf of shape {node.shape}"
                raise GraphError(
                    "backward: a released graph is computed again for this derivative, but the "
                    f"data of a {what} was replaced since; call the first "
                    "backward(retain_graph=True)"
                )


class Tape:
    """The ops of a released graph in forward order. Position p < len(leaves) is a leaf, then rows.

    The last leaf is the gradient that backward started with.
    """

    def __init__(self, order: Sequence[Any], out_grad: Any) -> None:
        leaves = [node for node in order if node.op is None] + [out_grad]
        self.leaves = Leaves(leaves)
        self.position = {node: i for i, node in enumerate(leaves)}
        self.rows: list[tuple[Op, tuple[int, ...], Any, Any]] = []
        for node in order:
            if node.op is not None:
                sources = tuple([self.position[source] for source in node.inputs])
                self.rows.append((node.op, sources, node.hooks, node.shape))
                self.position[node] = len(leaves) + len(self.rows) - 1

    def behind(self, position: int) -> set[int]:
        """The positions that the value at ``position`` depends on, and its own."""
        ### BEGIN YOUR SOLUTION [replay]
        found, first = {position}, len(self.leaves)
        for place in range(position, first - 1, -1):
            if place in found:
                found.update(self.rows[place - first][1])
        return found
        ### END YOUR SOLUTION

    def run(self, leaves: Sequence[Any], position: int) -> list[Any]:
        """Values by position, as far as ``position`` needs them, computed again from ``leaves``."""
        ### BEGIN YOUR SOLUTION [replay]
        needed = self.behind(position)
        self.leaves.check_unchanged(needed)
        values: list[Any] = [*leaves, *[None] * len(self.rows)]
        with enable_grad():
            for place, (op, sources, hooks, _) in enumerate(self.rows, len(leaves)):
                if place in needed:
                    values[place] = op(*[values[i] for i in sources])  # type: ignore[operator]
                    values[place].hooks = hooks
        return values
        ### END YOUR SOLUTION


class _Replayed(Op):
    """A function of the tape's leaves that runs the tape when it is needed again."""

    def __init__(self, tape: Tape, position: int) -> None:
        self.tape, self.position = tape, position

    def __call__(self, *leaves: Any) -> Any:
        raise NotImplementedError

    def gradient(self, out_grad: Any, node: Any) -> tuple[Any, ...]:
        leaves = tuple(node.inputs)
        with enable_grad():
            again = self(*leaves)
        if not again.requires_grad:
            return (None,) * len(leaves)
        return tuple(gradients_of(again, out_grad, leaves))


class ReplayedValue(_Replayed):
    """The value at ``position``."""

    def __call__(self, *leaves: Any) -> Any:
        return self.tape.run(leaves, self.position)[self.position]


class ReplayedGradient(_Replayed):
    """The gradient of the tape's last value with respect to the value at ``position``."""

    def __call__(self, *leaves: Any) -> Any:
        # An output that is a leaf itself has no rows: its gradient is the seed.
        last = len(leaves) + len(self.tape.rows) - 1 if self.tape.rows else self.position
        values = self.tape.run(leaves, last)
        with enable_grad():
            seed = values[len(leaves) - 1]
            return gradients_of(values[last], seed, [values[self.position]])[0]


def forget_leaf(node: Any) -> None:
    """Before the data of ``node`` is replaced: the tape behind its gradient need not keep it."""
    op = getattr(node.grad, "op", None)
    if type(op) is ReplayedGradient:
        op.tape.leaves.forget(op.position, node)


def release_onto(tape: Tape) -> Callable[[Any], None]:
    """A release for ``reverse_pass``: whoever still holds the node can differentiate it again."""

    def release(node: Any) -> None:
        position = tape.position.pop(node)
        if node.op is not None:
            node.op, node.inputs = ReplayedValue(tape, position), tape.leaves

    return release


class Released(Op):
    """The op of a node whose graph was released for good."""

    def gradient(self, out_grad: Any, node: Any) -> Any:
        raise GraphError(
            "backward: this graph was released by an earlier backward(retain_graph=False), got a "
            "second one; pass retain_graph=True (or None) to the first"
        )


RELEASED = Released()


def release_for_good(node: Any) -> None:
    """A release for ``reverse_pass`` after which nothing can be differentiated again."""
    if node.op is not None:
        node.op, node.inputs = RELEASED, ()
