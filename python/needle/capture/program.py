"""A recorded step: kernel calls of one backend, their buffers, and how they are replayed.

The kernel calls are (kernel, views, scalars), as a CUDA graph holds them (``device_graphs``). Host
steps (``host_steps``) divide them into segments. ``tracer`` builds a Program, ``Captured`` runs it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ..autograd import Tensor
from ..backends.base import Backend, View, provides
from ..ndarray.array import wrap
from ..ndarray.device import BackendDevice
from .buffers import BufferSlot, assign_buffers
from .device_graphs import DeviceGraphs
from .python_state import MISSING, Location, array_in, describe_view, unchanged

Kernel = Callable[..., Any]
Leaves = Sequence[Any]


class StaleRecordingError(Exception):
    """The recording does not fit this call; the message names the guard that failed."""


@dataclass(eq=False)
class InputBinding:
    """Binds a slot to the array at ``location``, whose layout must be as recorded."""

    slot: BufferSlot
    location: Location
    like: View

    def run(self, leaves: Leaves) -> None:
        """Bind the slot; StaleRecordingError if the array is missing or has another layout."""
        array = array_in(self.location.get(leaves))
        view = None if array is None else array.view
        if view is None or view[1:3] != self.like[1:3] or view.dtype != self.like.dtype:
            found = "missing" if view is None else describe_view(view)
            raise StaleRecordingError(
                f"{self.location.label} was {describe_view(self.like)} and is now {found}"
            )
        self.slot.bind(view.handle, view.offset)


@dataclass(eq=False)
class ArrayTemplate:
    """A recipe for a Tensor (of class ``kind``) or, without ``kind``, an NDArray on a slot."""

    slot: BufferSlot
    like: View
    device: BackendDevice
    kind: type[Tensor] | None = None
    requires_grad: bool = False

    def make(self) -> Any:
        """Return a new object on the slot's current buffer."""
        array = wrap(self.slot.view(self.like), self.device)
        return array if self.kind is None else self.kind.make_const(array, self.requires_grad)


@dataclass(eq=False)
class HostCall:
    """A call of a host step.

    Arguments are constants or ``ValueSource``; its result may fill a slot.
    """

    function: Kernel
    args: tuple[Any, ...]
    options: dict[str, Any]
    result: BufferSlot | None = None
    like: View | None = None

    def run(self, leaves: Leaves, values: list[Any]) -> None:
        """Call the function and append its result to ``values``."""

        def now(given: Any) -> Any:
            return given.value(leaves, values) if isinstance(given, ValueSource) else given

        value = self.function(
            *map(now, self.args), **{name: now(given) for name, given in self.options.items()}
        )
        values.append(value)
        if self.result is not None:
            assert self.like is not None
            array = array_in(value)
            view = value if array is None else array.view
            if view[1:3] != self.like[1:3] or view.dtype != self.like.dtype:
                raise RuntimeError(
                    f"capture: {self.function.__name__} returned {describe_view(self.like)} when "
                    f"recorded, but now {describe_view(view)}; call the step without capture"
                )
            self.result.bind(view.handle, view.offset)


@dataclass(eq=False)
class ValueSource:
    """The origin of a value that differs from call to call."""

    leaf: int | None = None
    step: int | None = None
    made: ArrayTemplate | None = None

    def value(self, leaves: Leaves, values: Sequence[Any]) -> Any:
        """Return an argument of this call, the result of a host step, or an array on a slot."""
        if self.leaf is not None:
            return leaves[self.leaf]
        if self.step is not None:
            return values[self.step]
        assert self.made is not None
        return self.made.make()


@dataclass(eq=False)
class Segment:
    """Kernel calls without a host step in between: the bindings before, the writes after."""

    bindings: list[InputBinding] = field(default_factory=list)
    calls: list[tuple[Kernel, str, list[Any]]] = field(default_factory=list)
    writes: list[tuple[Location, Any]] = field(default_factory=list)
    host: HostCall | None = None


@dataclass(eq=False)
class Program:
    """One recording, ready to be replayed.

    ``planned_bytes`` is the memory of its temporaries.
    """

    backend: Backend
    segments: list[Segment]
    slots: list[BufferSlot]
    rebuild: Callable[[Leaves, Sequence[Any]], Any]
    guards: list[tuple[Location, Any]]
    as_graphs: bool = True
    graphs: DeviceGraphs | None = None
    replays: int = 0
    planned_bytes: int = 0
    _lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._outputs = [slot for slot in self.slots if slot.owned and slot.output]
        self._borrowed = [slot for slot in self.slots if slot.output or not slot.owned]
        self.planned_bytes = assign_buffers(
            [s for s in self.slots if s.owned and not s.output], self.backend
        )
        # The common case, checked first: an entry of a dict that must be the same object.
        self._dict_guards = [
            (location.holder.get, location.key, expected, location)
            for location, expected in self.guards
            if isinstance(location.holder, dict)
            and type(location) is Location
            and location.leaf is None
        ]
        known = {id(location) for *_, location in self._dict_guards}
        self._other_guards = [guard for guard in self.guards if id(guard[0]) not in known]
        # The segments without the texts, which serve for printing only.
        self._steps = [
            (
                part.bindings,
                [(kernel, args) for kernel, _, args in part.calls],
                part.writes,
                part.host,
            )
            for part in self.segments
        ]
        self._released_after = _last_uses(self.slots, self.segments)
        if self.as_graphs and provides(self.backend, "record_graph"):
            self.graphs = DeviceGraphs(self.backend, [run[1] for run in self._steps], self.slots)

    def check(self, leaves: Leaves) -> None:
        """Check all guards; StaleRecordingError if one fails."""
        for get, key, expected, location in self._dict_guards:
            if get(key, MISSING) is not expected:
                _check(location, expected, leaves)
        for location, expected in self._other_guards:
            _check(location, expected, leaves)

    def run(self, leaves: Leaves) -> Any:
        """Replay the step for these arguments and return its result.

        StaleRecordingError is raised before anything has been executed.
        """
        self.check(leaves)
        with self._lock:
            try:
                return self._run(leaves)
            finally:
                for slot in self._borrowed:
                    slot.release()

    def _run(self, leaves: Leaves) -> Any:
        first = self._steps[0][0]
        for bind in first:
            bind.run(leaves)
        if len({id(bind.slot.handle) for bind in first}) < len(first):
            raise StaleRecordingError("two tensors now share one buffer")
        graphs, allocate = self.graphs, self.backend.allocate
        if graphs is not None:
            graphs.allocate()
        else:
            for slot in self._outputs:
                slot.bind(allocate(slot.size, slot.dtype))
        values: list[Any] = []
        for number, (bindings, calls, writes, host) in enumerate(self._steps):
            if number:
                _rebind(bindings, leaves)
            if graphs is not None:
                graphs.run(number)
            else:
                for kernel, args in calls:
                    kernel(*args)
            for location, made in writes:
                location.put(leaves, made.make() if isinstance(made, ArrayTemplate) else made)
            if host is not None:
                for slot in self._released_after[number]:
                    slot.release()  # an optimiser updates in place if nothing else refers to it
                host.run(leaves, values)
        self.replays += 1
        return self.rebuild(leaves, values)

    def __str__(self) -> str:
        """Return the list of calls, one per line."""
        return "\n".join(line for part in self.segments for line in _lines(part))


def _check(location: Location, expected: Any, leaves: Leaves) -> None:
    if not unchanged(location.get(leaves), expected):
        raise StaleRecordingError(f"{location.label} has changed")


def _rebind(bindings: Sequence[InputBinding], leaves: Leaves) -> None:
    """Bind external slots in the middle of a step, where it is too late to record again."""
    try:
        for bind in bindings:
            bind.run(leaves)
    except StaleRecordingError as reason:
        raise RuntimeError(
            f"capture: {reason} in the middle of a replay; call the step without capture"
        ) from None


def _last_uses(slots: list[BufferSlot], segments: list[Segment]) -> list[list[BufferSlot]]:
    """Return, for each segment, the external slots that its kernels are the last to use."""
    done: list[list[BufferSlot]] = [[] for _ in segments]
    ends = list(accumulate(len(part.calls) for part in segments))
    for slot in slots:
        if slot.uses and not slot.owned and not slot.exposed:
            done[bisect_left(ends, slot.last_use)].append(slot)
    return done


def _lines(part: Segment) -> list[str]:
    lines = [f"%{bind.slot.number} = {bind.location.label}" for bind in part.bindings]
    lines += [text for _, text, _ in part.calls]
    for location, made in part.writes:
        value = f"%{made.slot.number}" if isinstance(made, ArrayTemplate) else made
        lines.append(f"{location.label} = {value}")
    if part.host is not None:
        called = f"host: {part.host.function.__qualname__}"
        lines.append(f"%{part.host.result.number} = {called}" if part.host.result else called)
    return lines
