"""The segments of a recording as graphs of the device: all their kernels launched by one call.

A graph holds addresses. So a segment has one for each set of buffers that it meets, and what a
replay makes for others to keep comes from few buffers in turn. Where there can be no graph the
kernels are called one by one, as ever, and a warning says why. Called by ``program``.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from sys import getrefcount
from typing import Any

from ..backends.base import Backend, View
from .outcome import CaptureWarning
from .slot import Slot

MOST = 8
"""Graphs of one segment that are kept, the latest used."""
IN_TURN = 3
"""Buffers of one slot that are used in turn."""
LEAST_KERNELS = 2
Calls = Sequence[tuple[Callable[..., Any], list[Any]]]


class Graphs:
    """The graphs of one program. ``recorded`` and ``launched`` count; ``refusal``: why none."""

    def __init__(self, backend: Backend, segments: Sequence[Calls], slots: Sequence[Slot]) -> None:
        self.backend = backend
        self.recorded = self.launched = 0
        self.refusal: str | None = None
        for slot in slots:
            slot.waits = slot.fresh or not slot.own
        ends = _ends(segments)
        self._fresh = [_Fresh(backend, s, _segment_of(s, ends)) for s in slots if s.own and s.fresh]
        self._parts = [
            _Part(self, calls, _slots_of(slots, calls), [f for f in self._fresh if f.segment == i])
            for i, calls in enumerate(segments)
        ]

    def renew(self) -> None:
        """A buffer for each fresh slot, in which nobody has an interest."""
        for fresh in self._fresh:
            fresh.renew()

    def run(self, segment: int) -> None:
        """The kernels of one segment."""
        self._parts[segment].run()

    def refuse(self, reason: str) -> None:
        """No graphs from now on, of which a warning tells."""
        self.refusal = reason
        said = f"capture: a step's kernels are launched one by one, not as a graph: {reason}"
        warnings.warn(said, CaptureWarning, stacklevel=2)


class _Part:
    """One segment: its calls, the slots that they see, and its graphs by where these are."""

    def __init__(
        self, whole: Graphs, calls: Calls, slots: Sequence[Slot], handed: Sequence[_Fresh]
    ) -> None:
        self.whole, self.calls, self.slots, self.handed = whole, calls, slots, handed
        self.known: OrderedDict[Any, Callable[[], None]] = OrderedDict()

    def run(self) -> None:
        whole = self.whole
        if whole.refusal is not None or len(self.calls) < LEAST_KERNELS:
            self._call()
        else:
            places = tuple([place for s in self.slots for place in (s.handle.ptr(), s.shift)])
            launch = self.known.get(places)
            if launch is None:
                launch = self._record(places)
            launch()
        for fresh in self.handed:
            fresh.hand_over()

    def _record(self, places: Any) -> Callable[[], None]:
        whole = self.whole
        try:
            launch = whole.backend.record_graph(self._call)
        except (RuntimeError, MemoryError) as reason:
            whole.refuse(str(reason))
            return self._call
        whole.recorded += 1
        if whole.recorded > MOST * len(whole._parts) and whole.launched < 4 * whole.recorded:
            whole.refuse("its buffers are hardly ever at the places where they were")

        def counted() -> None:
            whole.launched += 1
            launch()

        self.known[places] = counted
        if len(self.known) > MOST:
            self.known.popitem(last=False)
        return counted

    def _call(self) -> None:
        for slot in self.slots:
            if slot.stale:
                slot.show()
        for kernel, args in self.calls:
            kernel(*args)


class _Fresh:
    """The buffers of a fresh slot, in turn: one that nobody holds is taken again.

    Where somebody keeps what each replay makes (a list of losses, say), kernels write one buffer,
    of which a copy is handed over: else no two replays would have the same addresses.
    """

    def __init__(self, backend: Backend, slot: Slot, segment: int | None) -> None:
        self.backend, self.slot, self.segment = backend, slot, segment
        self.buffers: list[Any] = []
        self.inner: Any = None

    def renew(self) -> None:
        slot = self.slot
        if self.inner is not None:
            slot.bind(self.inner)
            return
        for handle in self.buffers:
            if getrefcount(handle) == _lone_count():
                slot.bind(handle)
                return
        handle = self.backend.allocate(slot.size, slot.dtype)
        slot.bind(handle)
        if len(self.buffers) < IN_TURN:
            self.buffers.append(handle)
        elif self.segment is not None:
            self.buffers, self.inner = [], handle

    def hand_over(self) -> None:
        if self.inner is None:
            return
        slot = self.slot
        new = self.backend.allocate(slot.size, slot.dtype)
        whole = [View(handle, (slot.size,), (1,), 0, slot.dtype) for handle in (self.inner, new)]
        self.backend.copy(*whole)
        slot.bind(new)


@cache
def _lone_count() -> int:
    """What is counted for a buffer that only its list holds, while it is looked at."""
    (count,) = [getrefcount(handle) for handle in [object()]]
    return count


def _slots_of(slots: Sequence[Slot], calls: Calls) -> list[Slot]:
    """Those of the slots, without temporaries, that these calls see."""
    arguments = {id(inner) for _, args in calls for inner in _lists(args)}
    return [s for s in slots if s.waits and any(id(args) in arguments for args, *_ in s.uses)]


def _lists(args: list[Any]) -> list[list[Any]]:
    return [args, *(inner for a in args if isinstance(a, list) for inner in _lists(a))]


def _ends(segments: Sequence[Calls]) -> list[int]:
    ends, total = [], 0
    for calls in segments:
        total += len(calls)
        ends.append(total)
    return ends


def _segment_of(slot: Slot, ends: Sequence[int]) -> int | None:
    """The segment whose calls are all that see the slot, if there is one."""
    for i, end in enumerate(ends):
        if slot.last <= end:
            return i if slot.first > (ends[i - 1] if i else 0) else None
    return None
