"""The pass "dead calls": a call whose results nobody reads is removed.

The calls are visited from the last to the first. A slot is *needed* if a later call that stays
reads it, or if it outlives the step: it is fresh, bound or a constant. A call stays if it
writes a slot that is needed; then the slots that it reads are needed as well. A slot never stops
being needed when it is written, because a call may write a part of it only.
"""

from __future__ import annotations

from ..recorded import Recording
from .options import Options


def remove(recording: Recording, options: Options) -> str:
    """Remove the calls whose results nobody reads."""
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
