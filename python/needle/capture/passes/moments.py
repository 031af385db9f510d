"""The pass "moments", which lets batch norm take its input's moments from a convolution.

The bfloat16 convolution before it has each tile of the result in registers, and its epilogue also
writes the moments of every 64 pixels (``Backend.conv2d_moments``). Batch norm combines them and
reads its input only once, to normalise it. The order of summation differs, so this pass runs only
with ``capture(step, exact=False)``. It does not run with a memory limit, since a batch norm that is
called again would need the moments.
"""

from __future__ import annotations

from ...backends.base import MOMENT_PIXELS, View, provides
from ...dtypes import float32, is_storage
from ...shapes import product
from ..calls import Call
from ..recorded import Recording
from .folding import alike
from .options import Options


def share(recording: Recording, options: Options) -> str:
    """Share a temporary with the moments between convolutions and the batch norms after them."""
    shared = 0
    if not options.exact and options.memory is None:
        for part in recording.segments:
            for call in [call for call in part.calls if call.name == "conv2d"]:
                shared += _share(recording, part.calls, call)
    return f"took the moments of {shared} batch norms from convolutions"


def _share(recording: Recording, calls: list[Call], conv: Call) -> bool:
    """Share the moments of the result of ``conv``; return False if that saves nothing."""
    norm = _norm_after(calls, conv)
    x, weight, out, geometry, epilogue = conv.args
    takes_part = provides(recording.backend, "conv2d_moments") and is_storage(out.dtype)
    if norm is None or not takes_part or geometry.groups > 1:
        return False
    parts = -(-product(out.shape[:-1]) // MOMENT_PIXELS)
    moments = recording.new_slot((parts, 2, out.shape[-1]), float32)
    calls[calls.index(conv)] = Call("conv2d_moments", (x, weight, out, geometry, epilogue, moments))
    calls[calls.index(norm)] = Call(
        "batch_norm_of_moments", (norm.args[0], moments, *norm.args[1:])
    )
    return True


def _norm_after(calls: list[Call], conv: Call) -> Call | None:
    """Return the first batch norm of the result of ``conv``, which is unchanged until then."""
    out: View = conv.args[2]
    if out.handle.bound or product(out.shape) == 0:
        return None
    for call in calls[calls.index(conv) + 1 :]:
        x = call.args[0]
        if call.name == "batch_norm" and x.handle is out.handle:
            return call if alike(x, out) and x.offset == out.offset else None
        if out.handle in call.writes:
            return None
    return None
