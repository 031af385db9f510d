"""Check a recording: replay it and run the step itself from one state, and compare every bit.

The state is copied before the replay and restored after it; then the step runs as it does while it
is recorded. Arrays are compared by digests, so that only one copy of the state is kept. Called by
``Captured``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np

from ..contexts import uninterrupted
from ..ndarray import NDArray
from .guards import array_in, fact
from .program import Program
from .state import GRAPH_KEYS, State, random_state
from .tracer import StepCall, Tracer

Fact = tuple[str, Any]


class SavedState:
    """A copy of the state and of the global random streams, to which ``restore`` returns.

    An array is kept by reference, because a replay gives parameters new buffers while another
    reference exists. Only what is changed in place is copied: the arrays of optimisers, and buffers
    that kernels write to.
    """

    def __init__(self, call: StepCall, program: Program) -> None:
        self._call = call
        self._state = State(call.roots, call.leaves)
        self._entries = self._state.snapshot()
        self._contents = [(array, array.copy()) for array in program.written_arrays(call.leaves)]
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

    def facts(self, result: Any) -> list[Fact]:
        """Return (label, fact) for the result and for each part of the state that has changed."""
        found = list(_facts("the result", result))
        for container in State(self._call.roots, self._call.leaves).containers:
            if isinstance(container.holder, MappingProxyType):
                continue  # a step that changes a class is not recorded
            hidden = () if container.owner is None else GRAPH_KEYS
            for key, value in container.entries().items():
                usual = getattr(type(container.owner), str(key), None)
                before = self._unchanged.get((id(container.holder), key), usual)
                if key not in hidden and value is not before:
                    found.append((container.location(key).label, fact(value)))
        return [*found, ("the random stream of numpy or random", random_state())]


def replay_and_compare(program: Program, call: StepCall) -> tuple[Any, str | None, str | None]:
    """Replay a recording and run its step from the same state.

    Returns the result of the step, the label of the first difference, and the reason why the step
    cannot be recorded any more. Raises StaleRecordingError before anything is executed. A replay
    that may round differently is not run: only the recorded calls are compared.
    """
    program.guards.check(call.leaves)
    with program.lock:
        saved = SavedState(call, program) if program.options.exact else None
        if saved is None:
            program.calls += 1
        else:
            try:
                replayed = saved.facts(program.run(call.leaves))
            finally:
                saved.restore()
        with program.without_memory():
            tracer = Tracer(call)
            result = tracer.run()
        if saved is not None:
            difference = _first_difference(saved.facts(result), replayed)
        else:
            same = tracer.refusal or str(tracer.recording()) == str(program.stages[0])
            difference = None if same else "the list of kernel calls"
    return result, difference, tracer.refusal


def _first_difference(facts: list[Fact], others: list[Fact]) -> str | None:
    """Return the label of the first fact in which two lists differ."""
    longer, shorter = (facts, others) if len(facts) >= len(others) else (others, facts)
    return next((one[0] for one, other in zip(longer, shorter) if one != other), None)


def _facts(label: str, value: Any) -> Iterator[Fact]:
    """Yield the facts of a nested result."""
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        yield label, (type(value), len(value))
        for key, item in items:
            yield from _facts(f"{label}[{key!r}]", item)
    else:
        yield label, fact(value)
