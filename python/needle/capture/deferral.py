"""Deferred calls, which wait while a step is recorded and then run in planned memory.

An eager step needs more memory than a replay, so a recording that ran its kernels at once would
determine the peak memory of a training run. Calls are therefore deferred on a backend in host
memory (one with ``export``), where a page is committed when it is first written. With
``exact=False`` they are deferred on every device, so that the first call has the bits of the
replays. They run before a host step that changes the Python state, before anything outside the
recording reads or writes one of their buffers, and at the end. By then most buffers have been
dropped, and their values become planned temporaries. Called by ``tracer``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..backends.base import Backend
from .buffers import BufferSlot
from .calls import Call, CallList
from .passes import Options, optimise
from .recorded import Recording, Segment


class DeferredCalls:
    """A queue of recorded calls, ``calls``, that have not run yet."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._computed: set[BufferSlot] = set()
        self._forget()

    def _forget(self) -> None:
        self.calls: list[Call] = []
        # _made: slots that the calls create; their buffers may be dropped before the calls run.
        # _held: older slots with their buffers, which must be kept alive.
        self._made: dict[BufferSlot, Callable[[], Any]] = {}
        self._held: dict[BufferSlot, Any] = {}

    def add(self, call: Call, buffers: dict[BufferSlot, tuple[Any, Callable[[], Any]]]) -> None:
        """Defer a call; ``buffers``: the buffer of each of its slots and a weak reference to it."""
        self.calls.append(call)
        written = set(call.writes)
        for slot, (handle, reference) in buffers.items():
            if not slot.bound and slot in written and slot not in self._computed:
                self._made.setdefault(slot, reference)
            elif slot not in self._made:
                self._held[slot] = handle

    def touch(self, slot: BufferSlot, written: bool) -> bool:
        """Note a use outside the recording; return True if deferred calls must run before it."""
        if slot in self._made or (written and slot in self._held):
            return True
        if written:
            self._computed.add(slot)
        return False

    def run(self, backend: Backend) -> None:
        """Run the calls; a value that has lost its buffer is placed in planned memory."""
        calls, made, held = self.calls, self._made, self._held
        self._forget()
        alive = {slot: handle for slot, ref in made.items() if (handle := ref()) is not None}
        slots = {
            slot: replace(slot, bound=slot not in made, fresh=slot in alive)
            for slot in (*made, *held)
        }
        segment = Segment(calls=[call.with_slots(slots) for call in calls])
        recording = Recording(backend, [segment], list(slots.values()))
        _, plan = optimise(recording, self.options)
        ready = CallList(backend, recording.calls())
        backend.empty_cache()  # makes room for the arena
        plan.allocate(backend)
        for slot, handle in (*held.items(), *alive.items()):
            slots[slot].bind(handle, slot.offset)
        ready.run()
        self._computed.update(made)
