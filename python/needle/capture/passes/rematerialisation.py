"""The pass "rematerialisation", which recomputes values instead of keeping them, to meet a budget.

A value of the forward pass that a gradient reads has a long lifetime. If it was computed by a cheap
kernel whose arguments are still live when the gradient runs, the kernel can be called again just
before. For example, relu and batch norm read the result of a convolution, which the gradient of
batch norm needs anyway. If an argument is no longer live, it is recomputed as well, by up to
``MAX_CHAIN`` calls in total.

While the step needs more memory than ``Options.memory``, the pass looks at the call with the most
live bytes. Among the values that are live but not used there, it chooses the one with the best
ratio of (bytes times lifetime saved) to (bytes read and written again). This greedy choice follows
"Dynamic Tensor Rematerialization" (Kirisame et al. 2021), with all lifetimes known in advance.
Kernels are deterministic, so the results have the same bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from itertools import accumulate

from ...shapes import product
from ..buffers import BufferSlot
from ..calls import Call
from ..recorded import Recording
from .in_place import write_over_inputs
from .options import Options
from .planning import plan

CHEAP = {
    *("fill", "copy", "unary", "binary", "where", "one_hot"),
    *("apply_epilogue", "batch_norm", "layer_norm"),
}
"""Memory-bound kernels: reading arguments and writing results takes nearly all of their time."""
MAX_CHAIN = 6
"""Maximum number of calls repeated for one value."""
PATIENCE = 10
"""Number of values after which the pass stops if the memory has not decreased."""
LEAST_SHARE = 1e-3
"""Minimum fraction of the live bytes for a value to be considered."""


def rematerialise(recording: Recording, options: Options) -> str:
    """Repeat cheap calls until the temporaries fit in ``options.memory``, if possible."""
    if options.memory is None:
        return "repeated 0 calls"
    before, stalled = len(recording.calls()), 0
    later = _in_place(recording, options)
    least, best = _needed(later, options.memory), recording.copy()
    while least > options.memory and stalled < PATIENCE:
        if not _Choice(recording, later.live_bytes()).take_best():
            break
        later = _in_place(recording, options)
        needed, stalled = _needed(later, options.memory), stalled + 1
        if needed < least:
            least, best, stalled = needed, recording.copy(), 0
    recording.segments[:], recording.slots[:] = best.segments, best.slots
    return f"repeated {len(recording.calls()) - before} calls"


def _needed(recording: Recording, budget: int) -> int:
    """Return the bytes of the plan, or the lower bound if that already exceeds the budget."""
    bound = max(recording.live_bytes(), default=0)
    return bound if bound > budget else plan(recording.temporaries()).bytes


def _in_place(recording: Recording, options: Options) -> Recording:
    """Return the recording after the pass "in place", which keeps the positions of calls."""
    result = recording.copy()
    write_over_inputs(result, options)
    return result


class _Choice:
    """One greedy step of the pass, which selects the value to recompute and where."""

    def __init__(self, recording: Recording, live: list[int]) -> None:
        self.recording, self.calls = recording, recording.calls()
        self.peak = max(range(len(live)), key=live.__getitem__)
        self.least = LEAST_SHARE * live[self.peak]
        self.uses: dict[BufferSlot, list[int]] = defaultdict(list)
        self.writers: dict[BufferSlot, list[int]] = defaultdict(list)
        for index, call in enumerate(self.calls):
            for view, written in call.views():
                self.uses[view.handle].append(index)
                if written:
                    self.writers[view.handle].append(index)
        # Numbers of the first calls after host steps that may change parameters.
        ends = accumulate(len(part.calls) for part in recording.segments)
        hosts = [part.host for part in recording.segments]
        self.barriers = [end for end, h in zip(ends, hosts) if h is not None and h.changes_state]

    def take_best(self) -> bool:
        """Repeat the calls that save most; return False if there are none."""
        found: list[tuple[float, int, list[int], BufferSlot]] = []
        for slot in self.recording.temporaries():
            late = self._late_use(slot)
            if late is not None and slot.bytes >= self.least:
                chain: list[int] = []
                if self._repeat(slot, late, chain):
                    early = max(i for i in self.uses[slot] if i < late)
                    value = slot.bytes * (late - early) / self._cost(chain)
                    found.append((value, late, chain, slot))
        if found:
            _, late, chain, slot = max(found, key=lambda each: (each[0], each[3].number))
            self._insert(slot, late, chain)
        return bool(found)

    def _late_use(self, slot: BufferSlot) -> int | None:
        """Return the first use after the peak of a slot that is live but unused at the peak."""
        uses = self.uses[slot]
        after = bisect_left(uses, self.peak)
        late = uses[after] if 0 < after < len(uses) else self.peak
        return late if late != self.peak else None

    def _repeat(self, slot: BufferSlot, late: int, chain: list[int]) -> bool:
        """Add to ``chain`` the calls that recompute ``slot`` at ``late``; False if impossible."""
        (index, *others) = self.writers[slot] or [late]
        if index in chain:
            return True
        chain.append(index)
        if others or index >= late or len(chain) > MAX_CHAIN:
            return False
        call = self.calls[index]
        if call.name not in CHEAP or not all(s.temporary for s in call.writes):
            return False
        return all(
            self._kept(read, index, late) or self._repeat(read, late, chain) for read in call.reads
        )

    def _kept(self, slot: BufferSlot, index: int, late: int) -> bool:
        """Return True if at ``late`` the slot still holds the value that call ``index`` read."""
        if any(index <= writer < late for writer in self.writers[slot]):
            return False
        if not slot.bound:
            return not slot.temporary or self.uses[slot][-1] >= late
        return not any(index < barrier <= late for barrier in self.barriers)

    def _cost(self, chain: list[int]) -> int:
        views = [view for index in chain for view, _ in self.calls[index].views()]
        return 1 + sum(product(view.shape) * view.dtype.itemsize for view in views)

    def _insert(self, slot: BufferSlot, late: int, chain: list[int]) -> None:
        """Insert copies of the calls before ``late``, and use their results from there on."""
        new: dict[BufferSlot, BufferSlot] = {}
        for index in chain:
            for written in self.calls[index].writes:
                new[written] = replace(written, number=len(self.recording.slots))
                self.recording.slots.append(new[written])
        copies = [self.calls[index].with_slots(new) for index in sorted(chain)]
        place = 0
        for part in self.recording.segments:
            calls: list[Call] = []
            for call in part.calls:
                if place == late:
                    calls += copies
                calls.append(call if place < late else call.with_slots({slot: new[slot]}))
                place += 1
            part.calls = calls
