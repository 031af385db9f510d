"""The pass "copies", which reads small parameters from copies at a fixed address.

A replay has to find the current array of a parameter and bind it to the calls that read it, since
the array may have been replaced. For a bias, that takes longer than the call. A copy is a constant:
it is updated when the parameter has changed, at the same address.
"""

from __future__ import annotations

from ...backends.base import View
from ...shapes import compact_strides, product
from ..buffers import BufferSlot
from ..calls import Call
from ..recorded import InputBinding, Recording
from .constants import unchanged_parameters
from .options import Options

LARGEST = 1 << 16
"""Maximum bytes of a copied parameter; copying more would take longer than binding."""


def copy_parameters(recording: Recording, options: Options) -> str:
    """Make the calls of a replay read copies of small parameters."""
    known = unchanged_parameters(recording, options)
    used = {slot for call in recording.calls() for slot in call.reads}
    bindings = {bind.slot: bind for part in recording.segments for bind in part.bindings}
    copies = {
        slot: _copy(recording, bind)
        for slot, bind in bindings.items()
        if slot in known & used and not slot.exposed and _is_small(bind.like)
    }

    def moved(view: View) -> View:
        if view.handle not in copies:
            return view
        place = view.offset - bindings[view.handle].like.offset
        return view._replace(handle=copies[view.handle], offset=place)

    for part in recording.segments if copies else ():
        part.calls = [call.with_views(moved) for call in part.calls]
    return f"copied {len(copies)} parameters"


def _is_small(like: View) -> bool:
    """Return True for a contiguous parameter of few bytes."""
    size = product(like.shape) * like.dtype.itemsize
    return size <= LARGEST and like.strides == compact_strides(like.shape)


def _copy(recording: Recording, bind: InputBinding) -> BufferSlot:
    """Return the slot of a new constant that copies a parameter."""
    like = bind.like
    out = recording.new_constant(like.shape, like.dtype)
    recording.constants.append(Call("copy", (like._replace(handle=bind.slot), out)))
    slot: BufferSlot = out.handle
    return slot
