"""The tape that a default ``backward()`` keeps: the released graph without its buffers.

Releasing the graph frees every intermediate value, yet ``x.grad.backward()`` must still work (the
course's second derivatives). The tape therefore keeps only the ops and the *leaves*, and recomputes
the other values if a gradient is differentiated, which is rare. Called by ``autograd``.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from ..backends.writes import now
from ..dtypes import is_floating
from ..errors import GraphError, warn_caller
from ..host_steps import current
from .changes import has_changed, was_written
from .graph import Op, enable_grad, gradients_of, no_grad


class Leaves:
    """The leaves of a tape: their arrays, and weak references to their nodes.

    Weak references avoid the cycle ``x -> x.grad -> tape -> x``. A leaf that no longer exists is
    replaced by a constant.
    """

    def __init__(self, nodes: Sequence[Any]) -> None:
        self._entries: list[tuple[weakref.ref[Any], Any, type[Any]]] = [
            (weakref.ref(n), n.realize_cached_data(), type(n)) for n in nodes
        ]
        self._substitutes: dict[int, Any] = {}
        self.used = False
        """True if a later graph goes on from a value that these leaves recompute."""
        self._time = now()

    def copy(self) -> Leaves:
        """Return new ``Leaves`` of the same nodes; they keep data that ``forget`` drops here."""
        other = copy.copy(self)
        vars(other).update(_entries=[*self._entries])
        return other

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
        """Drop the data of leaf ``position``, which is about to be replaced, if it is ``node``."""
        if position < len(self._entries):
            reference, _, kind = self._entries[position]
            if reference() is node:
                self._entries[position] = reference, None, kind

    def forget_replaced(self) -> None:
        """Drop data that has since been replaced in its node."""
        for i, (reference, data, kind) in enumerate(self._entries):
            node = reference()
            if node is None or node.cached_data is not data:
                self._entries[i] = reference, None, kind

    def as_recorded(self, nodes: Sequence[Any], positions: Container[int]) -> list[Any]:
        """Return ``nodes``, with an ``EarlierValue`` for each one whose data has been replaced.

        GraphError if data at ``positions`` has been written to or dropped.
        """
        found = list(nodes)
        for position, (node, (_, data, kind)) in enumerate(zip(nodes, self._entries, strict=True)):
            if position not in positions:
                continue
            if data is None or was_written(data, self._time):
                how = "replaced" if data is None else "written to"
                shape = f" of shape {node.shape}" if node.cached_data is not None else ""
                raise GraphError(
                    "backward: this derivative recomputes a released graph, but the data of a "
                    f"leaf{shape} has been {how} since; detach() what one step passes to the next, "
                    "such as a hidden state, or pass retain_graph=True to the first backward"
                )
            if node.cached_data is not data:
                found[position] = kind.make_from_op(EarlierValue(data), [node])
        return found


class EarlierValue(Op):
    """The op that returns the data that a leaf had before a step replaced it."""

    reads = ()

    def __init__(self, data: Any) -> None:
        self.data = data

    def compute(self, _: Any) -> Any:
        """Return the earlier data."""
        return self.data

    def gradient(self, out_grad: Any, node: Any) -> Any:
        """Return ``out_grad``, which is also the gradient of the leaf."""
        return out_grad


DEPTHS = 20, 200
"""Numbers of earlier passes at which a tape warns, and, if it recomputes them, raises."""


class Tape:
    """The ops of a released graph in forward order.

    Position p < len(leaves) is leaf p; the op in row r is at position len(leaves) + r. The last
    leaf is the gradient with which backward started.
    """

    def __init__(self, order: Sequence[Any], out_grad: Any) -> None:
        leaves = [node for node in order if node.op is None] + [out_grad]
        self.leaves = Leaves(leaves)
        self.kept: Callable[[], Leaves | None] | None = None
        """A weak reference to the leaves, which keep their data as long as a value of the graph."""
        self.position = {node: i for i, node in enumerate(leaves)}
        self.rows: list[tuple[Op, tuple[int, ...], Any, Any]] = []
        self.changed: dict[int, Op] = {}
        """Rows that cannot be recomputed, because a value was changed after the forward pass."""
        self.depth = 1
        """The number of backward passes that recomputing nests."""
        self.linear = {*range(len(leaves))}
        """Positions where neither this gradient nor any before it reads a value: nodes may stay."""
        passes = 1
        for node in order:
            if node.op is not None:
                sources = tuple([self.position[source] for source in node.inputs])
                self.rows.append((node.op, sources, node.hooks, node.shape))
                position = self.position[node] = len(leaves) + len(self.rows) - 1
                if has_changed(node):
                    self.changed[position] = node.op
                if isinstance(node.op, _Replayed):
                    node.op.leaves.used = True
                    self.depth = max(self.depth, node.op.tape.depth + 1)
                elif _reads_nothing(node.op) and self.linear.issuperset(sources):
                    self.linear.add(position)
                    passes = max(passes, node.passes + 1)
        self.passes = max(self.depth, passes)
        """The number of backward passes that this one walks through."""
        _check_depth(self.passes, self.depth)

    def behind(self, position: int) -> set[int]:
        """Return ``position`` and the positions on which its value depends."""
        ### BEGIN YOUR SOLUTION [replay]
        found, first = {position}, len(self.leaves)
        for place in range(position, first - 1, -1):
            if place in found:
                found.update(self.rows[place - first][1])
        return found
        ### END YOUR SOLUTION

    def check_unchanged(self, positions: Container[int]) -> None:
        """Raise GraphError if recomputing a value at ``positions`` could give a different value."""
        for position, op in self.changed.items():
            if position in positions:
                raise GraphError(
                    "backward: this derivative recomputes a released graph, but the result or an "
                    f"input of {type(op).__name__} was changed before the first backward; call the "
                    "first backward before the change"
                )

    def run(self, leaves: Sequence[Any], position: int, recorded: Leaves) -> list[Any]:
        """Recompute the values on which ``position`` depends; return them by position.

        ``leaves``: the nodes to start from, with the data in ``recorded``.
        """
        with enable_grad():
            leaves = recorded.as_recorded(leaves, self.behind(position))
        ### BEGIN YOUR SOLUTION [replay]
        needed = self.behind(position)
        self.check_unchanged(needed)
        values: list[Any] = [*leaves, *[None] * len(self.rows)]
        with enable_grad():
            for place, (op, sources, hooks, _) in enumerate(self.rows, len(leaves)):
                if place in needed:
                    values[place] = op(*[values[i] for i in sources])  # type: ignore[operator]
                    values[place].hooks = hooks
        return values
        ### END YOUR SOLUTION


def _reads_nothing(op: Op) -> bool:
    return op.reads is not None and not op.reads


def _check_depth(passes: int, depth: int) -> None:
    """Warn of a long chain of earlier passes; GraphError if a backward recomputes too many."""
    if passes != DEPTHS[0] and depth != DEPTHS[1]:
        return
    message = (
        f"backward: this graph goes on through {passes - 1} earlier backward passes, which each "
        "step walks again; detach() what a step hands on to the next: W = (W - lr * "
        "W.grad).detach(), or W.data = W - lr * W.grad"
    )
    if depth == DEPTHS[1]:
        raise GraphError(message)
    warn_caller(message, UserWarning)


class _Replayed(Op):
    """An op on the tape's leaves that runs the tape when it is differentiated."""

    def __init__(self, tape: Tape, position: int, leaves: Leaves) -> None:
        self.tape, self.position, self.leaves = tape, position, leaves

    def __call__(self, *leaves: Any) -> Any:
        raise NotImplementedError

    def recompute(self, node: Any) -> Any:
        return self(*node.inputs).realize_cached_data()

    def gradient(self, out_grad: Any, node: Any) -> tuple[Any, ...]:
        """Recompute the value from its leaves and differentiate the recomputed graph."""
        leaves = tuple(node.inputs)
        with enable_grad():
            again = self(*leaves)
        if not again.requires_grad:
            return (None,) * len(leaves)
        return tuple(gradients_of(again, out_grad, leaves))


class ReplayedValue(_Replayed):
    """The op of a released node: the value at ``position`` of the tape."""

    def __call__(self, *leaves: Any) -> Any:
        """Return the value, recomputed from ``leaves``."""
        return self.tape.run(leaves, self.position, self.leaves)[self.position]


class ReplayedGradient(_Replayed):
    """An op: the gradient of the tape's last value with respect to the value at ``position``."""

    def __call__(self, *leaves: Any) -> Any:
        """Return the gradient, recomputed from ``leaves``."""
        # If the output is a leaf itself, there are no rows; its gradient is the seed.
        last = len(leaves) + len(self.tape.rows) - 1 if self.tape.rows else self.position
        values = self.tape.run(leaves, last, self.leaves)
        with enable_grad():
            seed = values[len(leaves) - 1]
            return gradients_of(values[last], seed, [values[self.position]])[0]


class LateGradients:
    """The gradients of constants in a graph, all computed when the first one is read.

    Programs of the course read ``W.grad`` after ``W = (W - lr * W.grad).detach()``. These are the
    constants made by operations: no program has declared that they require no gradient.
    """

    def __init__(self, nodes: Sequence[Any], tape: Tape | None) -> None:
        self._tape = tape
        self._references = [weakref.ref(node) for node in nodes]
        self._positions = [tape.position[node] for node in nodes] if tape else []
        for node in nodes:
            vars(node).pop("grad", None)
            node.late = self

    def __call__(self, node: Any) -> Any:
        """Return the gradient of ``node``; GraphError if it was not kept."""
        try:
            found = self._compute()
        except GraphError as error:
            raise GraphError(
                f"grad: the gradient of this constant of shape {node.shape}, made by detach() or "
                "another operation, was not kept; read it after a default backward() and before "
                "other data changes, or set requires_grad=True before the forward pass"
            ) from error
        for reference, gradient in zip(self._references, found, strict=True):
            constant = reference()
            if constant is not None and constant.late is self:
                constant.grad, constant.late = gradient, None
        return node.grad

    def _compute(self) -> list[Any]:
        if self._tape is None:
            raise GraphError("backward: the graph was released, or gradients were accumulated")
        leaves = list(self._tape.leaves)
        for i in self._positions:
            leaves[i] = type(leaves[i]).make_const(leaves[i], requires_grad=True)
        last = len(leaves) + len(self._tape.rows) - 1
        values = self._tape.run(leaves, last, self._tape.leaves)
        with no_grad():
            seed = values[len(leaves) - 1]
            return gradients_of(values[last], seed, [leaves[i] for i in self._positions])


def promise_gradients(order: Sequence[Any], tape: Tape | None) -> None:
    """Give the constants that operations made a ``.grad``, computed from ``tape`` when it is read.

    Without a tape, reading ``.grad`` raises GraphError. A captured step keeps no such gradients.
    """
    made = [
        node
        for node in order
        if node.op is None
        and "requires_grad" not in vars(node)
        and type(node.cached_data) is not tuple
        and is_floating(node.dtype)
    ]
    if made and current.recorder is None:
        LateGradients(made, tape)


def note_tape(node: Any, tape: Tape, position: int, accumulate: bool) -> None:
    """Note that the gradient of the leaf ``node`` comes, at least partly, from ``tape``."""
    earlier = [each for each in node.tapes if each[0]() is not None] if accumulate else []
    node.tapes = [*earlier, (weakref.ref(tape), position)]


def forget_leaf(node: Any) -> None:
    """Make the tapes of the gradient drop the data of ``node``, which is about to be replaced.

    ``node.grad`` itself may be another tensor by now, such as a clipped gradient. Data that an
    earlier tape keeps for values that this tape does not use is dropped as well: a list of outputs
    must not keep the weights of every step.
    """
    for reference, position in node.tapes:
        tape = reference()
        if tape is None:
            continue
        tape.leaves.forget(position, node)
        earlier = node.kept() if node.kept is not None else None
        if earlier is not None and node.kept is not tape.kept and not earlier.used:
            earlier.used = True
            earlier.forget_replaced()
        node.kept = tape.kept


def release_onto(tape: Tape) -> Callable[[Any], None]:
    """Return a ``release`` for ``reverse_pass`` that makes nodes recomputable from ``tape``.

    As long as the program holds a value such as a hidden state, the leaves keep their data, and an
    optimiser writes updates to new buffers. The loss itself, the first node to be released, does
    not keep them, nor does a captured step. Nodes before the loss are left as they are if their
    gradients read no value: a chain of updates, W = W - lr * W.grad.detach(), is never recomputed.
    """
    leaves = tape.leaves

    def release(node: Any) -> None:
        nonlocal leaves
        position = tape.position.pop(node)
        if node.op is not None and position in tape.linear and leaves is not tape.leaves:
            node.passes = tape.passes
        elif node.op is not None:
            node.op, node.inputs = ReplayedValue(tape, position, leaves), leaves
            node.saved = None
        if leaves is tape.leaves and current.recorder is None:
            leaves = leaves.copy()
            tape.kept = weakref.ref(leaves)

    return release


class Released(Op):
    """The op of a node whose graph was released permanently."""

    def recompute(self, node: Any) -> Any:
        """Raise GraphError: the graph is gone."""
        raise GraphError(
            "backward: an earlier backward(retain_graph=False) has released this graph, including "
            "a value that no gradient needed; keep a reference to the tensor to read it afterwards"
        )

    def gradient(self, out_grad: Any, node: Any) -> Any:
        """Raise GraphError: the graph is gone."""
        raise GraphError(
            "backward: an earlier backward(retain_graph=False) has released this graph; pass "
            "retain_graph=True (or None) to the earlier call"
        )


RELEASED = Released()


def release_for_good(node: Any) -> None:
    """Release a node so that it cannot be differentiated again.

    This is a ``release`` callback for ``reverse_pass``.
    """
    if node.op is not None:
        node.op, node.inputs, node.saved = RELEASED, (), None
