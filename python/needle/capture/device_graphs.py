"""Device graphs (CUDA graphs), which launch all kernels of a segment by one call.

A graph contains addresses, so a segment has one graph for each set of buffers that it runs with.
Buffers of fresh slots are used in rotation, so that these sets repeat. If no graph can be made,
kernels are launched one by one and a ``CaptureWarning`` gives the reason. Called by ``program``.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..autograd.refs import unheld
from ..backends.base import Backend, View
from .buffers import BufferSlot
from .calls import CallList
from .recorded import Recording
from .signature import CaptureWarning

MAX_GRAPHS = 8
"""Number of graphs kept for each segment; the least recently used one is evicted."""
ROTATION = 3
"""Number of buffers through which a fresh slot rotates."""
MIN_KERNELS = 2
"""Number of kernels below which a segment is launched without a graph."""


class DeviceGraphs:
    """The graphs of one program.

    ``recorded`` and ``launched`` are counters; ``refusal`` is the reason why no graphs are used.
    """

    def __init__(self, recording: Recording, calls: Sequence[CallList]) -> None:
        self.backend = recording.backend
        self.recorded = self.launched = 0
        self._forgotten = 0, 0
        self.refusal: str | None = None
        first, last = recording.segment_uses()
        self._fresh = [_FreshBuffers(self.backend, s) for s in recording.slots if s.fresh]
        self._segments: list[_Segment] = []
        for index, ready in enumerate(calls):
            only = [f for f in self._fresh if first.get(f.slot) == last.get(f.slot) == index]
            for buffers in only:
                buffers.copied = True
            moving = [slot for slot in ready.slots if slot.fresh or slot.bound]
            self._segments.append(_Segment(ready, moving, only))

    def forget(self) -> None:
        """Forget all graphs, because buffers that they use are about to be freed."""
        self._forgotten = self.recorded, self.launched
        for segment in self._segments:
            segment.graphs.clear()

    def allocate(self) -> None:
        """Bind each fresh slot to an unreferenced buffer."""
        for fresh in self._fresh:
            fresh.allocate()

    def run(self, number: int) -> None:
        """Run the kernels of a segment."""
        segment = self._segments[number]
        if self.refusal is not None or len(segment.calls) < MIN_KERNELS:
            segment.calls.run()
        else:
            addresses = tuple([a for s in segment.slots for a in (s.handle.ptr(), s.place[1])])
            launch = segment.graphs.get(addresses) or self._record(segment, addresses)
            launch()
            self.launched += launch != segment.calls.run
        for fresh in segment.fresh:
            fresh.hand_out()

    def _record(self, segment: _Segment, addresses: Any) -> Callable[[], None]:
        try:
            launch = self.backend.record_graph(segment.calls.run)
        except (RuntimeError, MemoryError) as reason:
            self._refuse(str(reason))
            return segment.calls.run
        self.recorded += 1
        recorded, launched = self.recorded - self._forgotten[0], self.launched - self._forgotten[1]
        if recorded > MAX_GRAPHS * len(self._segments) and launched < 4 * recorded:
            self._refuse("its buffers hardly ever come back at the same addresses")
        segment.graphs[addresses] = launch
        if len(segment.graphs) > MAX_GRAPHS:
            segment.graphs.popitem(last=False)
        return launch

    def _refuse(self, reason: str) -> None:
        """Stop using graphs and issue a warning with the reason."""
        self.refusal = reason
        message = f"capture: a step's kernels are launched one by one, not as a graph: {reason}"
        warnings.warn(message, CaptureWarning, stacklevel=2)


@dataclass(eq=False)
class _Segment:
    """The calls of a segment, the slots whose addresses they contain, and a cache of its graphs.

    ``fresh``: the buffers that only this segment uses.
    """

    calls: CallList
    slots: list[BufferSlot]
    fresh: list[_FreshBuffers]
    graphs: OrderedDict[Any, Callable[[], None]] = field(default_factory=OrderedDict)


class _FreshBuffers:
    """The rotation of a fresh slot's buffers, which reuses a buffer without other references.

    A program may keep the output of every replay (a list of losses, say). Then the kernels write to
    one fixed buffer and the program gets a copy; otherwise no two replays would use the same
    addresses. ``copied``: this is possible, because only one segment uses the slot.
    """

    def __init__(self, backend: Backend, slot: BufferSlot) -> None:
        self.backend, self.slot, self.copied = backend, slot, False
        self.buffers: list[Any] = []
        self.fixed: Any = None

    def allocate(self) -> None:
        slot = self.slot
        if self.fixed is not None:
            slot.bind(self.fixed)
            return
        for handle, free in zip(self.buffers, unheld(self.buffers), strict=True):
            if free:
                slot.bind(handle)
                return
        handle = self.backend.allocate(slot.size, slot.dtype)
        slot.bind(handle)
        if len(self.buffers) < ROTATION:
            self.buffers.append(handle)
        elif self.copied:
            self.buffers, self.fixed = [], handle

    def hand_out(self) -> None:
        if self.fixed is None:
            return
        slot = self.slot
        new = self.backend.allocate(slot.size, slot.dtype)
        whole = [View(handle, (slot.size,), (1,), 0, slot.dtype) for handle in (self.fixed, new)]
        self.backend.copy(*whole)
        slot.bind(new)
