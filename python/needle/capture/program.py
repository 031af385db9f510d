"""Programs, which replay a recorded step: kernel calls bound to buffers, and guards.

The kernel calls are pairs (kernel, arguments), as in a CUDA graph (``device_graphs``). Host steps
(``host_steps``) divide them into segments. ``tracer`` makes the recording of a Program, and
``Captured`` runs it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from ..autograd import Tensor
from ..backends.base import Backend, provides
from ..contexts import context
from .buffers import BufferSlot
from .constants import Constants
from .device_graphs import DeviceGraphs
from .passes import Options, Stage, optimise, size_text
from .recorded import (
    ArrayTemplate,
    InputBinding,
    Leaves,
    Recording,
    Segment,
    StaleRecordingError,
    exchanges_messages,
)
from .state import MISSING, LengthLocation, Location, array_in, unchanged


@dataclass(eq=False)
class Program:
    """A recording that is ready to be replayed.

    ``calls`` counts the calls that it has served, the recorded one included; ``checked`` is the
    last of them that was known to be right. ``planned_bytes`` is the memory of its temporaries.
    ``stages`` has the original recording, then the recording after each pass; ``print`` a stage to
    see its calls.
    """

    recording: Recording
    rebuild: Callable[[Leaves, Sequence[Any]], Any]
    guards: list[tuple[Location, Any]]
    options: Options = field(default_factory=Options)
    as_graphs: bool = True
    graphs: DeviceGraphs | None = None
    calls: int = 1
    checked: int = 1
    planned_bytes: int = 0
    stages: list[Stage] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.stages, self._plan = optimise(self.recording, self.options)
        _check_budget(self._plan.bytes, self.options.memory)
        bound = {bind.slot for part in self.segments for bind in part.bindings}
        of_constants = {bind.slot for bind in self.recording.parameters} - bound
        self._borrowed = [
            slot for slot in self.slots if slot.fresh or (slot.bound and slot not in of_constants)
        ]
        self._written = [slot for slot in self.slots if slot.written and slot.bound]
        # The common guards have lists of their own: entries of dicts, and numbers of entries.
        in_dicts = [
            (location.holder.get, location.key, expected, location)
            for location, expected in self.guards
            if isinstance(location.holder, (dict, MappingProxyType))
            and type(location) is Location
            and location.leaf is None
        ]
        self._constant_guards = [guard for guard in in_dicts if _is_constant(guard[2])]
        self._dict_guards = [guard for guard in in_dicts if not _is_constant(guard[2])]
        self._length_guards = [
            (location.holder, expected, location)
            for location, expected in self.guards
            if type(location) is LengthLocation
        ]
        known = {id(location) for *_, location in (*in_dicts, *self._length_guards)}
        self._other_guards = [guard for guard in self.guards if id(guard[0]) not in known]
        self._steps = [
            (part.bindings, [c.linked(self.backend) for c in part.calls], part.writes, part.host)
            for part in self.segments
        ]
        self.backend.empty_cache()  # release the recording's memory
        self.planned_bytes = self._plan.allocate(self.backend)
        self._constants = Constants(self.recording)
        self._made_in = _first_uses(self.slots, self.segments)
        self._released_after = _last_uses(self.slots, self.segments)
        if self.as_graphs and provides(self.backend, "record_graph"):
            self.graphs = DeviceGraphs(self.backend, [run[1] for run in self._steps], self.slots)

    def check(self, leaves: Leaves) -> None:
        """Check all guards; raise StaleRecordingError if one fails."""
        for get, key, expected, location in self._dict_guards:
            value = get(key, MISSING)
            if value is not expected:
                _check(location, value, expected)
        for get, key, expected, location in self._constant_guards:
            value = get(key, MISSING)
            if type(value) is not expected or value.requires_grad:
                _check(location, value, expected)
        for holder, length, location in self._length_guards:
            if len(holder) != length:
                _check(location, len(holder), length)
        for location, expected in self._other_guards:
            _check(location, location.get(leaves), expected)

    def run(self, leaves: Leaves) -> Any:
        """Replay the step for these arguments and return its result.

        Raises StaleRecordingError before anything is executed.
        """
        self.check(leaves)
        with self.lock:
            try:
                return self._run(leaves)
            finally:
                for slot in self._borrowed:
                    slot.release()

    def _run(self, leaves: Leaves) -> Any:
        self._constants.update(leaves)
        first = self._steps[0][0]
        for bind in first:
            bind.run(leaves)
        if len({id(bind.slot.handle) for bind in first}) < len(first):
            raise StaleRecordingError("two tensors now share one buffer")
        if self._written and self._writes_to_parameters(leaves):
            raise StaleRecordingError("the step now writes to a parameter")
        graphs, allocate = self.graphs, self.backend.allocate
        if graphs is not None:
            graphs.allocate()
        values: list[Any] = []
        for number, (bindings, calls, writes, host) in enumerate(self._steps):
            if number:
                _rebind(bindings, leaves)
            if graphs is not None:
                graphs.run(number)
            else:
                for slot in self._made_in[number]:
                    slot.bind(allocate(slot.size, slot.dtype))
                for kernel, args in calls:
                    kernel(*args)
            for location, made in writes:
                location.put(leaves, made.make() if isinstance(made, ArrayTemplate) else made)
            if host is not None:
                for slot in self._released_after[number]:
                    slot.release()  # an optimiser updates an unshared buffer in place
                host.run(leaves, values)
        self.calls += 1
        return self.rebuild(leaves, values)

    @context
    def without_memory(self) -> Iterator[None]:
        """Give the memory of the temporaries back inside the context, and graphs that use it."""
        if self.graphs is not None:
            self.graphs.forget()
        for slot in self._plan.places:
            slot.release()
        self.backend.empty_cache()
        try:
            yield
        finally:
            self.backend.empty_cache()
            self._plan.allocate(self.backend)

    @property
    def repeatable(self) -> bool:
        """False if a host step exchanges messages with other ranks, which must be sent once."""
        return not exchanges_messages(self.segments)

    def written_arrays(self, leaves: Leaves) -> list[Any]:
        """Return the arrays of the state whose buffers a replay writes to."""
        written = set(self._written)
        bindings = [b for part in self.segments for b in part.bindings if b.slot in written]
        arrays = [array_in(bind.location.get(leaves)) for bind in bindings]
        return [array for array in arrays if array is not None]

    def _writes_to_parameters(self, leaves: Leaves) -> bool:
        """Return True if a replay writes to a buffer that constants have read."""
        return not self._constants.buffers(leaves).isdisjoint(id(s.handle) for s in self._written)

    def __str__(self) -> str:
        """Return the list of calls, one per line."""
        return str(self.recording)

    def explain(self, verbose: bool = False) -> str:
        """Return one line per stage; with ``verbose``, also its calls."""
        lines = [stage.summary for stage in self.stages]
        if verbose:
            lines += [f"\n--- {stage.name} ---\n{stage}" for stage in self.stages]
        return "\n".join(lines)

    @property
    def backend(self) -> Backend:
        """The backend whose kernels are called."""
        return self.recording.backend

    @property
    def segments(self) -> list[Segment]:
        """The segments of calls between host steps."""
        return self.recording.segments

    @property
    def slots(self) -> list[BufferSlot]:
        """The slots of all buffers that the calls use."""
        return self.recording.slots


def _check_budget(needed: int, budget: int | None) -> None:
    if budget and needed > budget:
        raise ValueError(
            f"capture: the intermediate values of this step do not fit into memory={budget} bytes; "
            f"the smallest possible figure is {needed} ({size_text(needed)}), or use a smaller "
            "batch"
        )


def _check(location: Location, value: Any, expected: Any) -> None:
    if not unchanged(value, expected):
        raise StaleRecordingError(f"{location.label} has changed")


def _is_constant(expected: Any) -> bool:
    """Return True if a guard expects any constant Tensor of a class."""
    return isinstance(expected, type) and issubclass(expected, Tensor)


def _rebind(bindings: Sequence[InputBinding], leaves: Leaves) -> None:
    """Bind slots in the middle of a step, when it is too late to record again."""
    try:
        for bind in bindings:
            bind.run(leaves)
    except StaleRecordingError as reason:
        raise RuntimeError(
            f"capture: {reason} in the middle of a replay; call the step without capture"
        ) from None


def _first_uses(slots: list[BufferSlot], segments: list[Segment]) -> list[list[BufferSlot]]:
    """Return for each segment the fresh slots that its kernels are the first to use.

    They are allocated no earlier, because a preceding host step may free the gradients of the last
    step.
    """
    made: list[list[BufferSlot]] = [[] for _ in segments]
    ends = _ends(segments)
    for slot in slots:
        if slot.fresh:
            made[bisect_left(ends, slot.first_use)].append(slot)
    return made


def _last_uses(slots: list[BufferSlot], segments: list[Segment]) -> list[list[BufferSlot]]:
    """Return, for each segment, the bound slots that its kernels are the last to use."""
    done: list[list[BufferSlot]] = [[] for _ in segments]
    ends = _ends(segments)
    for slot in slots:
        if slot.uses and slot.bound and not slot.exposed:
            done[bisect_left(ends, slot.last_use)].append(slot)
    return done


def _ends(segments: list[Segment]) -> list[int]:
    """Return the last call number of each segment."""
    return list(accumulate(len(part.calls) for part in segments))
