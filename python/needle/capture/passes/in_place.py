"""The pass "in place", which lets an elementwise kernel overwrite an input on its last use.

The temporary that the kernel would write is replaced, in this call and in all later ones, by the
temporary whose lifetime ends here. Both must have the same size and dtype, and the two views the
same shape, strides and offset, so that each element is read before it is written. ``IN_PLACE``
lists the kernels whose interface allows it (``backends.base``).
"""

from __future__ import annotations

from ...backends.base import View
from ..buffers import BufferSlot
from ..calls import Call, parameters
from ..recorded import Recording
from .options import Options

IN_PLACE = {
    "unary": ("out", "a"),
    "binary": ("out", "a", "b"),
    "where": ("out", "a", "b"),
    "apply_epilogue": ("out", "a"),
    "relu_grad": ("out", "grad", "y"),
    "batch_norm": ("out", "x"),
    "batch_norm_of_moments": ("out", "x"),
    "batch_norm_grad": ("x_grad", "grad", "x"),
}
"""The output of each kernel, then the inputs that it may alias."""


def write_over_inputs(recording: Recording, options: Options) -> str:
    """Make calls overwrite an input whose lifetime ends with them."""
    recording.note_uses()
    last = {slot: slot.last_use for slot in recording.slots}
    merged: dict[BufferSlot, BufferSlot] = {}
    number = 0
    for segment in recording.segments:
        for place, recorded in enumerate(segment.calls):
            number += 1
            call = recorded.with_slots(merged)
            pair = _pair(call, number, last)
            if pair is not None:
                out, given = pair
                merged[out], last[given] = given, last[out]
                call = call.with_slots({out: given})
            segment.calls[place] = call
    recording.slots[:] = [slot for slot in recording.slots if slot not in merged]
    return f"{len(merged)} calls write over an input"


def _pair(
    call: Call, number: int, last: dict[BufferSlot, int]
) -> tuple[BufferSlot, BufferSlot] | None:
    """Return the output's slot and the input's slot that replaces it, or None."""
    if call.name not in IN_PLACE:
        return None
    output, *inputs = map(parameters(call.name).index, IN_PLACE[call.name])
    out = call.args[output]
    if not out.handle.temporary or out.handle.first_use != number:
        return None
    for position in inputs:
        view = call.args[position]
        if not isinstance(view, View) or view[1:] != out[1:]:
            continue
        slot = view.handle
        # Every view of the slot in this call must be an input that may be overwritten.
        used = [each for each, _ in call.views() if each.handle is slot]
        same = [p for p in inputs if call.args[p] == view]
        if (
            slot.temporary
            and last[slot] == number
            and (slot.size, slot.dtype) == (out.handle.size, out.handle.dtype)
            and len(used) == len(same)
        ):
            return out.handle, slot
    return None
