"""A recorded step: kernel calls of one backend, the buffers they use, and how it runs again.

The same list is what a CUDA graph holds (``graphs``): (kernel, views, scalars). It is cut into
segments where the host has to do something (``host_steps``). Made by ``recorder``, run by
``Captured``.
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
from .graphs import Graphs
from .places import MISSING, Place, array_in, describe_view, unchanged
from .slot import Slot

Kernel = Callable[..., Any]
Leaves = Sequence[Any]


class StaleRecordingError(Exception):
    """What the step finds is no longer what was recorded; the message says what."""


@dataclass(eq=False)
class Bind:
    """Read the array at ``place``; it must look as it did."""

    slot: Slot
    place: Place
    like: View

    def run(self, leaves: Leaves) -> None:
        """Binds the slot; StaleRecordingError if the array is missing or of another layout."""
        array = array_in(self.place.get(leaves))
        if array is None or array._view[1:3] != self.like[1:3] or array.dtype != self.like.dtype:
            found = "nothing" if array is None else describe_view(array._view)
            raise StaleRecordingError(
                f"{self.place.label} was {describe_view(self.like)} and is {found}"
            )
        self.slot.bind(array._view.handle, array._view.offset)


@dataclass(eq=False)
class Made:
    """A Tensor (of class ``kind``) or, without ``kind``, an NDArray on a slot."""

    slot: Slot
    like: View
    device: BackendDevice
    kind: type[Tensor] | None = None
    requires_grad: bool = False

    def make(self) -> Any:
        """A new object; the slot must have its buffer."""
        array = wrap(self.slot.view(self.like), self.device)
        return array if self.kind is None else self.kind.make_const(array, self.requires_grad)


@dataclass(eq=False)
class HostCall:
    """A host step: its arguments are constants or ``Source``s, its result may fill a slot."""

    function: Kernel
    args: tuple[Any, ...]
    options: dict[str, Any]
    result: Slot | None = None
    like: View | None = None

    def run(self, leaves: Leaves, values: list[Any]) -> None:
        """Calls the function; its value is appended to ``values``."""

        def now(given: Any) -> Any:
            return given.value(leaves, values) if isinstance(given, Source) else given

        value = self.function(
            *map(now, self.args), **{name: now(given) for name, given in self.options.items()}
        )
        values.append(value)
        if self.result is not None:
            assert self.like is not None
            array = array_in(value)
            view = value if array is None else array._view
            if view[1:3] != self.like[1:3] or view.dtype != self.like.dtype:
                raise RuntimeError(
                    f"capture: {self.function.__name__} gave {describe_view(self.like)} when it "
                    f"was recorded, now {describe_view(view)}; call the function itself"
                )
            self.result.bind(view.handle, view.offset)


@dataclass(eq=False)
class Source:
    """Where a value that differs from call to call comes from."""

    leaf: int | None = None
    step: int | None = None
    made: Made | None = None

    def value(self, leaves: Leaves, values: Sequence[Any]) -> Any:
        """An argument of this call, the value of an earlier host step, or an array of a slot."""
        if self.leaf is not None:
            return leaves[self.leaf]
        if self.step is not None:
            return values[self.step]
        assert self.made is not None
        return self.made.make()


@dataclass(eq=False)
class Segment:
    """Kernel calls without a look at the host in between, what they read, what is set after."""

    binds: list[Bind] = field(default_factory=list)
    calls: list[tuple[Kernel, str, list[Any]]] = field(default_factory=list)
    writes: list[tuple[Place, Any]] = field(default_factory=list)
    host: HostCall | None = None


@dataclass(eq=False)
class Program:
    """One recording, ready to run."""

    backend: Backend
    segments: list[Segment]
    slots: list[Slot]
    rebuild: Callable[[Leaves, Sequence[Any]], Any]
    guards: list[tuple[Place, Any]]
    as_graphs: bool = True
    graphs: Graphs | None = None
    replays: int = 0
    planned: int = 0
    _lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._fresh = [slot for slot in self.slots if slot.own and slot.fresh]
        self._borrowed = [slot for slot in self.slots if slot.fresh or not slot.own]
        self.planned = _plan([s for s in self.slots if s.own and not s.fresh], self.backend)
        # Most guards are entries of dicts that hold the very object they held.
        self._entries = [
            (place.holder.get, place.key, expected, place)
            for place, expected in self.guards
            if isinstance(place.holder, dict) and type(place) is Place and place.leaf is None
        ]
        known = {id(place) for *_, place in self._entries}
        self._others = [guard for guard in self.guards if id(guard[0]) not in known]
        # What is run: without the texts, which are for people.
        self._runs = [
            (part.binds, [(kernel, args) for kernel, _, args in part.calls], part.writes, part.host)
            for part in self.segments
        ]
        self._done = _last_uses(self.slots, self.segments)
        if self.as_graphs and provides(self.backend, "record_graph"):
            self.graphs = Graphs(self.backend, [run[1] for run in self._runs], self.slots)

    def check(self, leaves: Leaves) -> None:
        """StaleRecordingError if a value that the step may branch on has changed."""
        for get, key, expected, place in self._entries:
            if get(key, MISSING) is not expected:
                _check(place, expected, leaves)
        for place, expected in self._others:
            _check(place, expected, leaves)

    def run(self, leaves: Leaves) -> Any:
        """The step's outcome for these arguments. StaleRecordingError before anything is done."""
        self.check(leaves)
        with self._lock:
            try:
                return self._run(leaves)
            finally:
                for slot in self._borrowed:
                    slot.release()

    def _run(self, leaves: Leaves) -> Any:
        first = self._runs[0][0]
        for bind in first:
            bind.run(leaves)
        if len({id(bind.slot.handle) for bind in first}) < len(first):
            raise StaleRecordingError("two tensors have come to share one buffer")
        graphs, allocate = self.graphs, self.backend.allocate
        if graphs is not None:
            graphs.renew()
        else:
            for slot in self._fresh:
                slot.bind(allocate(slot.size, slot.dtype))
        values: list[Any] = []
        for number, (binds, calls, writes, host) in enumerate(self._runs):
            if number:
                _rebind(binds, leaves)
            if graphs is not None:
                graphs.run(number)
            else:
                for kernel, args in calls:
                    kernel(*args)
            for place, made in writes:
                place.put(leaves, made.make() if isinstance(made, Made) else made)
            if host is not None:
                for slot in self._done[number]:
                    slot.release()  # so that an optimiser finds that nobody else holds it
                host.run(leaves, values)
        self.replays += 1
        return self.rebuild(leaves, values)

    def __str__(self) -> str:
        """The list of calls, as a compiler would see it."""
        return "\n".join(line for part in self.segments for line in _lines(part))


def _check(place: Place, expected: Any, leaves: Leaves) -> None:
    if not unchanged(place.get(leaves), expected):
        raise StaleRecordingError(f"{place.label} has changed")


def _rebind(binds: Sequence[Bind], leaves: Leaves) -> None:
    """Binds in the middle of a step, where it is too late to record anew."""
    try:
        for bind in binds:
            bind.run(leaves)
    except StaleRecordingError as reason:
        raise RuntimeError(
            f"capture: {reason} in the middle of a replay; call the function itself"
        ) from None


def _last_uses(slots: list[Slot], segments: list[Segment]) -> list[list[Slot]]:
    """For each segment the slots from outside that kernels use in it and never again."""
    done: list[list[Slot]] = [[] for _ in segments]
    ends = list(accumulate(len(part.calls) for part in segments))
    for slot in slots:
        if slot.uses and not slot.own and not slot.shown:
            done[bisect_left(ends, slot.last)].append(slot)
    return done


def _plan(slots: list[Slot], backend: Backend) -> int:
    """Gives temporaries buffers, which they share where their lives do not overlap; the bytes.

    A buffer is taken again for up to twice its need, the latest released one first: it is the
    one most likely to be in the cache.
    """
    free: list[tuple[int, Any, Any]] = []
    living: list[tuple[int, tuple[int, Any, Any]]] = []
    total = 0
    for slot in sorted(slots, key=lambda s: s.first):
        free += [buffer for last, buffer in living if last < slot.first]
        living = [(last, buffer) for last, buffer in living if last >= slot.first]
        fits = [b for b in free if b[1] == slot.dtype and slot.size <= b[0] <= 2 * slot.size]
        if fits:
            buffer = fits[-1]
            free.remove(buffer)
        else:
            buffer = (slot.size, slot.dtype, backend.allocate(slot.size, slot.dtype))
            total += slot.size * slot.dtype.itemsize
        living.append((slot.last, buffer))
        slot.bind(buffer[2])
    return total


def _lines(part: Segment) -> list[str]:
    lines = [f"%{bind.slot.number} = {bind.place.label}" for bind in part.binds]
    lines += [text for _, text, _ in part.calls]
    for place, made in part.writes:
        lines.append(
            f"{place.label} = {f'%{made.slot.number}' if isinstance(made, Made) else made}"
        )
    if part.host is not None:
        called = f"host: {part.host.function.__qualname__}"
        lines.append(f"%{part.host.result.number} = {called}" if part.host.result else called)
    return lines
