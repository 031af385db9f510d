"""``Program``, which checks a recording's guards and replays its kernel calls.

Host steps (``host_steps``) divide the kernel calls into segments. A ``CallList`` runs those of a
segment, or a CUDA graph (``device_graphs``). ``tracer`` makes the recording of a Program, and
``Captured`` runs it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backends.base import provides
from ..contexts import context
from .calls import CallList
from .constants import Constants
from .device_graphs import DeviceGraphs
from .guards import Guards, StaleRecordingError, array_in
from .passes import Options, Stage, optimise, size_text
from .recorded import InputBinding, Recording, current_value, exchanges_messages
from .signature import map_leaves


@dataclass(eq=False)
class Program:
    """A recording that is ready to be replayed for calls whose signature is ``key``.

    ``objects`` are those that ``key`` identifies by id.
    ``calls`` counts the calls that it has served, the recorded one included; ``checked`` is the
    last of them that was known to be right. ``planned_bytes`` is the memory of its temporaries.
    ``stages`` has the original recording, then the recording after each pass; ``print`` a stage to
    see its calls.
    """

    recording: Recording
    guards: Guards
    options: Options
    key: Any
    objects: list[Any]
    graphs: DeviceGraphs | None = None
    calls: int = 1
    checked: int = 1
    planned_bytes: int = 0
    stages: list[Stage] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        recording = self.recording
        segments, self._backend = recording.segments, recording.backend
        self.stages, self._plan = optimise(recording, self.options)
        needed, limit = self._plan.bytes, self.options.memory
        if limit and needed > limit:
            raise ValueError(
                f"capture: the intermediate values of this step do not fit into memory={limit} "
                f"bytes; the smallest possible figure is {needed} ({size_text(needed)}), or use a "
                "smaller batch"
            )
        self._bindings = [bind for part in segments for bind in part.bindings]
        bound = {bind.slot for bind in self._bindings}
        self._borrowed = [slot for slot in recording.slots if slot.fresh or slot in bound]
        self._written = [slot for slot in bound if slot.written]
        self._steps = [
            (part.bindings, CallList(self._backend, part.calls), part.writes, part.host)
            for part in segments
        ]
        self._backend.empty_cache()  # release the recording's memory
        self.planned_bytes = self._plan.allocate(self._backend)
        self._constants = Constants(recording)
        # A fresh buffer is allocated no earlier than its first kernel, because a preceding host
        # step may free the gradients of the last step.
        first, last = recording.segment_uses()
        fresh = [slot for slot in recording.slots if slot.fresh]
        self._made_in = [[s for s in fresh if first.get(s, 0) == i] for i in range(len(segments))]
        self._released_after = [
            [slot for slot in bound if last.get(slot) == i and not slot.exposed]
            for i in range(len(segments))
        ]
        if self.options.graphs and provides(self._backend, "record_graph"):
            self.graphs = DeviceGraphs(recording, [calls for _, calls, *_ in self._steps])

    def run(self, leaves: Sequence[Any]) -> Any:
        """Replay the step for these arguments and return its result.

        Raises StaleRecordingError before anything is executed.
        """
        self.guards.check(leaves)
        with self.lock:
            try:
                return self._run([*leaves])
            finally:
                for slot in self._borrowed:
                    slot.release()

    def _run(self, values: list[Any]) -> Any:
        """Replay the step for the arguments ``values``, to which host steps add their results."""
        self._constants.update(values)
        first = self._steps[0][0]
        for bind in first:
            bind.run(values)
        handles = {id(bind.slot.handle) for bind in first}
        if len(handles) < len(first):
            raise StaleRecordingError("two tensors now share one buffer")
        written = {id(slot.handle) for slot in self._written}
        if written and not self._constants.buffers().isdisjoint(written):
            raise StaleRecordingError("the step now writes to a parameter")
        graphs, allocate = self.graphs, self._backend.allocate
        if graphs is not None:
            graphs.allocate()
        for number, (bindings, calls, writes, host) in enumerate(self._steps):
            if number:
                _rebind(bindings, values)
            if graphs is not None:
                graphs.run(number)
            else:
                for slot in self._made_in[number]:
                    slot.bind(allocate(slot.size, slot.dtype))
                calls.run()
            for location, made in writes:
                location.put(values, current_value(made, values))
            if host is not None:
                for slot in self._released_after[number]:
                    slot.release()  # an optimiser updates an unshared buffer in place
                host.run(values)
        self.calls += 1
        return map_leaves(lambda leaf: current_value(leaf, values), self.recording.result)

    @context
    def without_memory(self) -> Iterator[None]:
        """Give the memory of the temporaries back inside the context, and graphs that use it."""
        if self.graphs is not None:
            self.graphs.forget()
        for _, calls, *_ in self._steps:
            calls.forget()
        for slot in self._plan.places:
            slot.release()
        self._backend.empty_cache()
        try:
            yield
        finally:
            self._backend.empty_cache()
            self._plan.allocate(self._backend)

    @property
    def repeatable(self) -> bool:
        """False if a host step exchanges messages with other ranks, which must be sent once."""
        return not exchanges_messages(self.recording.segments)

    def written_arrays(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the arrays of arguments and state that a replay writes to."""
        places = [bind.location for bind in self._bindings if bind.slot.written]
        given = [place for place in places if place.leaf is None or place.leaf < len(leaves)]
        return [array for place in given if (array := array_in(place.get(leaves))) is not None]

    def __str__(self) -> str:
        """Return the list of calls, one per line."""
        return str(self.recording)

    def explain(self, verbose: bool = False) -> str:
        """Return one line per stage; with ``verbose``, also its calls."""
        lines = [stage.summary for stage in self.stages]
        if verbose:
            lines += [f"\n--- {stage.name} ---\n{stage}" for stage in self.stages]
        return "\n".join(lines)


def _rebind(bindings: Sequence[InputBinding], values: Sequence[Any]) -> None:
    """Bind slots in the middle of a step, when it is too late to record again."""
    try:
        for bind in bindings:
            bind.run(values)
    except StaleRecordingError as reason:
        raise RuntimeError(
            f"capture: {reason} in the middle of a replay; call the step without capture"
        ) from None
