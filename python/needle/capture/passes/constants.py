"""The pass "constants", which moves calls that depend only on parameters out of the replay.

A call is moved to ``recording.constants`` if it reads only parameters, buffers and other constants,
such as the scale of a batch norm in evaluation mode, and if no other call writes its results.
``program`` runs these calls once, and again when a parameter has changed. Their results are kept
between replays, so they must not be larger than what the call reads. No call is moved if ``memory``
is limited, or outside ``no_grad``.
"""

from __future__ import annotations

import math
from collections import Counter

from ...backends.base import View
from ..buffers import BufferSlot
from ..calls import Call
from ..recorded import Recording
from .options import Options


def move(recording: Recording, options: Options) -> str:
    """Move calls with constant results out of the replay."""
    written = Counter(slot for call in recording.calls() for slot in call.writes)
    known = unchanged_parameters(recording, options)
    for part in recording.segments:
        kept: list[Call] = []
        for call in part.calls:
            if _is_constant(call, known, written):
                recording.constants.append(call)
                known.update(call.writes)
            else:
                kept.append(call)
        part.calls = kept
    for call in recording.constants:
        for slot in call.writes:
            slot.constant = True
    return f"moved {len(recording.constants)} calls out of the replay"


def unchanged_parameters(recording: Recording, options: Options) -> set[BufferSlot]:
    """Return the slots of arrays of the Python state that a replay does not write.

    Arguments of the function are excluded. There are no such slots if no result may be kept.
    """
    hosts = [part.host for part in recording.segments if part.host is not None]
    if not options.inference or options.memory is not None:
        return set()
    if any(host.changes_state for host in hosts):
        return set()
    bindings = (bind for part in recording.segments for bind in part.bindings)
    found = {bind.slot for bind in bindings if bind.location.leaf is None}
    return found - {slot for call in recording.calls() for slot in call.writes}


def note_parameters(recording: Recording) -> None:
    """Set ``recording.parameters``; segments do not bind parameters that only constants read."""
    read = {slot for call in recording.constants for slot in call.reads}
    used = {view.handle for call in recording.calls() for view, _ in call.views()}
    for part in recording.segments:
        recording.parameters += [bind for bind in part.bindings if bind.slot in read]
        part.bindings = [
            b for b in part.bindings if b.slot in used or b.slot.exposed or b.slot not in read
        ]


def _is_constant(call: Call, known: set[BufferSlot], written: Counter[BufferSlot]) -> bool:
    reads = [view for view, writes in call.views() if not writes]
    return (
        bool(reads)
        and known.issuperset(view.handle for view in reads)
        and all(slot.temporary and written[slot] == 1 for slot in call.writes)
        and max(slot.size for slot in call.writes) <= max(map(_elements, reads))
    )


def _elements(view: View) -> int:
    """Return the number of elements of a view, counting broadcast ones once."""
    return math.prod(n for n, stride in zip(view.shape, view.strides) if stride)
