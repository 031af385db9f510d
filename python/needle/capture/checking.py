"""The check of a recording: a replay compared to the bit with the step itself, from one state.

The state is copied before the replay and restored after it; then the step runs as it does while it
is recorded. Arrays are compared by digests, so that only one copy of the state is kept. Called by
``Captured``.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..contexts import uninterrupted
from ..ndarray import NDArray
from .program import Program
from .state import GRAPH_KEYS, PLAIN_TYPES, Roots, State, array_in, plain_key
from .tracer import RefusedError, Tracer, random_state

Fact = tuple[str, Any]


class SavedState:
    """A copy of the state and of the global random streams, to which ``restore`` returns.

    An array is kept by reference, because a replay gives parameters new buffers while another
    reference exists. Only what is changed in place is copied: the arrays of optimisers, and buffers
    that kernels write to.
    """

    def __init__(self, roots: Roots, leaves: Sequence[Any], program: Program) -> None:
        self._state = State(roots, leaves)
        self._entries = self._state.snapshot()
        self._contents = [(array, array.copy()) for array in program.written_arrays(leaves)]
        self._numpy, self._python = np.random.get_state(), random.getstate()
        rewritten = {id(array) for array, _ in self._contents}
        self._unchanged: dict[tuple[int, Any], Any] = {}
        """The values of the saved state that are compared by identity."""
        for container, entries in zip(self._state.containers, self._entries, strict=True):
            for key, value in entries.items():
                if container.service and isinstance(value, NDArray):
                    entries[key] = value.copy()
                elif id(array_in(value)) not in rewritten:
                    self._unchanged[id(container.holder), key] = value

    @uninterrupted
    def restore(self) -> None:
        """Return to the saved state."""
        self._state.restore(self._entries)
        for array, content in self._contents:
            array[...] = content
        np.random.set_state(self._numpy)
        random.setstate(self._python)

    def facts(self, result: Any, state: State) -> list[Fact]:
        """Return (label, fact) of the result and of each part of ``state`` that has changed."""
        found = list(_facts("the result", result))
        for container in state.containers:
            if isinstance(container.holder, MappingProxyType):
                continue  # a step that changes a class is not recorded
            kind = type(container.owner)
            for key, value in container.entries().items():
                graph = container.owner is not None and key in GRAPH_KEYS
                usual = getattr(kind, key, None) if container.owner is not None else None
                before = self._unchanged.get((id(container.holder), key), usual)
                if not graph and value is not before:
                    found.append((container.location(key).label, _fact(value)))
        return [*found, ("the random stream of numpy or random", random_state())]


def replay_and_compare(
    program: Program,
    tracer: Callable[[], Tracer],
    roots: Roots,
    leaves: Sequence[Any],
    call: Callable[[Tracer], Any],
) -> tuple[Any, str | None, RefusedError | None]:
    """Replay a recording and run its step from the same state.

    Returns the result of the step, the label of the first difference, and the reason why the step
    cannot be recorded any more. Raises StaleRecordingError before anything is executed. A replay
    that may round differently is not run: only the recorded calls are compared.
    """
    program.check(leaves)
    with program.lock:
        exact, refused = program.options.exact, None
        if exact:
            saved = SavedState(roots, leaves, program)
            try:
                replayed = saved.facts(program.run(leaves), State(roots, leaves))
            finally:
                saved.restore()
        else:
            program.calls += 1
        with program.without_memory():
            run = tracer()
            result = call(run)
            try:
                result = run.finish(result)
                run.check_released()
            except RefusedError as reason:
                refused = reason
        if exact:
            difference = _first_difference(saved.facts(result, State(roots, leaves)), replayed)
        else:
            same = refused is not None or str(run.recording()) == str(program.stages[0])
            difference = None if same else "the list of kernel calls"
    return result, difference, refused


def _first_difference(facts: list[Fact], others: list[Fact]) -> str | None:
    """Return the label of the first fact in which two lists differ."""
    for one, other in zip(facts, others):
        if one != other:
            longer = one if len(facts) >= len(others) else other
            return longer[0]
    return None if len(facts) == len(others) else "the state"


def _facts(label: str, value: Any) -> Iterator[Fact]:
    """Yield the facts of a nested result."""
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        yield label, (type(value), len(value))
        for key, item in items:
            yield from _facts(f"{label}[{key!r}]", item)
    else:
        yield label, _fact(value)


def _fact(value: Any) -> Any:
    """Return what can be compared of a value: the bits of an array, a plain value, or a class."""
    array = value if isinstance(value, np.ndarray) else array_in(value)
    if array is not None:
        host = array if isinstance(array, np.ndarray) else array.numpy()
        digest = hashlib.blake2b(host.tobytes(), digest_size=16).digest()
        return type(value), array.shape, str(array.dtype), digest
    return (type(value), plain_key(value)) if isinstance(value, PLAIN_TYPES) else type(value)
