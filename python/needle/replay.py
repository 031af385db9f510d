"""What a default ``backward()`` leaves behind: a tape of the released graph, without its buffers.

Releasing frees every intermediate value, yet ``x.grad.backward()`` must still work (the course's
second derivatives). So the tape keeps the ops and the *leaves* only, and computes the rest again
in the rare case that a gradient is differentiated. Called by ``autograd``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .errors import GraphError
from .graph import Op, enable_grad, gradients_of


class Leaves:
    """The leaves of a tape: their arrays, and the nodes themselves only weakly.

    So ``x -> x.grad -> tape`` is no reference cycle. A leaf that has died stands as a constant.
    """

    def __init__(self, nodes: Sequence[Any]) -> None:
        self._entries = [(weakref.ref(n), n.realize_cached_data(), type(n)) for n in nodes]
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

    def check_unchanged(self) -> None:
        """GraphError if a leaf got other data since: the values would be of another point."""
        for reference, data, _ in self._entries:
            node = reference()
            if node is not None and node.cached_data is not data:
                raise GraphError(
                    "backward: a released graph is computed again for this derivative, but the "
                    f"data of a leaf of shape {node.shape} was replaced since; call the first "
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

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """The values at every position, computed and recorded again from ``leaves``."""
        values = list(leaves)
        with enable_grad():
            for op, sources, hooks, _ in self.rows:
                node = op(*[values[i] for i in sources])  # type: ignore[operator]
                node.hooks = hooks
                values.append(node)
        return values


class _Replayed(Op):
    """A function of the tape's leaves that runs the tape when it is needed again."""

    def __init__(self, tape: Tape, position: int) -> None:
        self.tape, self.position = tape, position

    def __call__(self, *leaves: Any) -> Any:
        raise NotImplementedError

    def gradient(self, out_grad: Any, node: Any) -> tuple[Any, ...]:
        self.tape.leaves.check_unchanged()
        leaves = tuple(node.inputs)
        with enable_grad():
            again = self(*leaves)
        if not again.requires_grad:
            return (None,) * len(leaves)
        return tuple(gradients_of(again, out_grad, leaves))


class ReplayedValue(_Replayed):
    """The value at ``position``."""

    def __call__(self, *leaves: Any) -> Any:
        return self.tape.run(leaves)[self.position]


class ReplayedGradient(_Replayed):
    """The gradient of the tape's last value with respect to the value at ``position``."""

    def __call__(self, *leaves: Any) -> Any:
        values = self.tape.run(leaves)
        seed = values[len(leaves) - 1]
        target = values[self.position]
        with enable_grad():
            # An output that is a leaf itself has no rows: its gradient is the seed.
            output = values[-1] if self.tape.rows else target
            return gradients_of(output, seed, [target])[0]


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
