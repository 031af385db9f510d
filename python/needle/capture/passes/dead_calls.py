"""The pass "dead calls", which removes calls if nothing reads their results.

The calls are visited from the last to the first. A slot is *needed* if it is read by a later call
that stays, or if it outlives the step because it is fresh, bound or a constant. A call stays if it
writes a needed slot; the slots that it reads are then needed as well. A write never ends the need
for a slot, because a call may write only a part of the slot.
"""

from __future__ import annotations

from ..recorded import Recording
from .options import Options


def remove(recording: Recording, options: Options) -> str:
    """Remove calls whose results are never read."""
    before = len(recording.calls())
    ### BEGIN YOUR SOLUTION [dead-calls]
    needed = {slot for slot in recording.slots if not slot.temporary}
    for segment in reversed(recording.segments):
        kept = []
        for call in reversed(segment.calls):
            if needed.intersection(call.writes):
                needed.update(call.reads)
                kept.append(call)
        segment.calls = kept[::-1]
    ### END YOUR SOLUTION
    return f"removed {before - len(recording.calls())} calls"
