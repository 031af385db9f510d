"""The passes "copies" and "preparation", which give calls constants in place of parameters.

A replay has to find the current array of a parameter and bind it to the calls that read it, since
the array may have been replaced. For a bias, that takes longer than the call, so calls read copies
of small parameters at a fixed address. A convolution algorithm reads the weights in a layout of its
own: Winograd's transforms them, others pack them into panels. For a small batch this takes a large
part of the time, so convolutions read weights that are prepared once. Both constants are updated
when the parameter has changed.
"""

from __future__ import annotations

from ...backends.base import View, provides
from ...dtypes import float32
from ...shapes import compact_strides, product
from ..buffers import BufferSlot
from ..calls import Call
from ..recorded import Recording
from .constants import unchanged_parameters
from .options import Options

LARGEST = 1 << 16
"""Maximum bytes of a copied parameter; copying more would take longer than binding."""


def copy(recording: Recording, options: Options) -> str:
    """Make the calls of a replay read copies of small parameters."""
    known = unchanged_parameters(recording, options)
    known &= {slot for call in recording.calls() for slot in call.reads}
    copies: dict[BufferSlot, tuple[BufferSlot, int]] = {}
    for part in recording.segments:
        for bind in part.bindings:
            like, slot = bind.like, bind.slot
            small = product(like.shape) * like.dtype.itemsize <= LARGEST
            small = small and like.strides == compact_strides(like.shape)
            if slot in known and not slot.exposed and small:
                out = recording.new_slot(like.shape, like.dtype, constant=True)
                recording.constants.append(Call("copy", (like._replace(handle=slot), out)))
                copies[slot] = out.handle, like.offset

    def moved(view: View) -> View:
        handle, start = copies.get(view.handle, (view.handle, 0))
        return view._replace(handle=handle, offset=view.offset - start)

    for part in recording.segments if copies else ():
        part.calls = [call.with_views(moved) for call in part.calls]
    return f"copied {len(copies)} parameters"


def prepare(recording: Recording, options: Options) -> str:
    """Make convolutions of a replay read prepared weights, where the backend supports that."""
    backend = recording.backend
    known = unchanged_parameters(recording, options)
    known |= {slot for call in recording.constants for slot in call.writes}
    made: dict[object, View] = {}

    def prepared(call: Call) -> Call:
        if call.name != "conv2d":
            return call
        x, weight, out, geometry, epilogue = call.args
        if weight.dtype != float32 or weight.handle not in known:
            return call
        size = backend.prepared_conv2d_size(x.shape, weight.shape, geometry)
        if size == 0:
            return call
        key = (weight, x.shape, geometry)
        if key not in made:
            made[key] = recording.new_slot((size,), float32, constant=True)
            args = (weight, made[key], x.shape, geometry)
            recording.constants.append(Call("prepare_conv2d", args))
        return Call("conv2d_prepared", (x, weight, made[key], out, geometry, epilogue))

    for part in recording.segments if provides(backend, "conv2d_prepared") else ():
        part.calls = [prepared(call) for call in part.calls]
    return f"prepared {len(made)} weights"
