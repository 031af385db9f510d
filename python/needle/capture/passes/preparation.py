"""The pass "preparation", which lets convolutions read weights that are prepared once.

A convolution algorithm reads the weights in a layout of its own: Winograd's transforms them, others
pack them into panels. For a small batch this takes a large part of the time. Prepared weights are a
constant, updated when the weights have changed.
"""

from __future__ import annotations

from ...backends.base import Backend, View, provides
from ...dtypes import float32
from ..buffers import BufferSlot
from ..calls import Call
from ..recorded import Recording
from .constants import unchanged_parameters
from .options import Options


def prepare(recording: Recording, options: Options) -> str:
    """Make convolutions of a replay read prepared weights, where the backend supports that."""
    backend = recording.backend
    if not provides(backend, "conv2d_prepared"):
        return "prepared 0 weights"
    known = unchanged_parameters(recording, options)
    known |= {slot for call in recording.constants for slot in call.writes}
    made: dict[object, View] = {}
    for part in recording.segments:
        part.calls = [_prepared(recording, backend, call, known, made) for call in part.calls]
    return f"prepared {len(made)} weights"


def _prepared(
    recording: Recording,
    backend: Backend,
    call: Call,
    known: set[BufferSlot],
    made: dict[object, View],
) -> Call:
    """Return a convolution with prepared weights; return other calls unchanged."""
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
        made[key] = recording.new_constant((size,), float32)
        args = (weight, made[key], x.shape, geometry)
        recording.constants.append(Call("prepare_conv2d", args))
    return Call("conv2d_prepared", (x, weight, made[key], out, geometry, epilogue))
