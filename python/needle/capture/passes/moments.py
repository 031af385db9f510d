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

KERNEL = "conv2d_moments"


def share(recording: Recording, options: Options) -> str:
    """Share a temporary with the moments between convolutions and the batch norms after them."""
    shared = 0
    wanted = not options.exact and options.memory is None
    for part in recording.segments if wanted and provides(recording.backend, KERNEL) else ():
        calls = part.calls
        for conv in [call for call in calls if call.name == "conv2d"]:
            x, weight, out, geometry, epilogue = conv.args
            norm = _norm_after(calls, conv)
            if norm is None or not is_storage(out.dtype) or geometry.groups > 1:
                continue
            parts = -(-product(out.shape[:-1]) // MOMENT_PIXELS)
            moments = recording.new_slot((parts, 2, out.shape[-1]), float32)
            args = (x, weight, out, geometry, epilogue, moments)
            calls[calls.index(conv)] = Call(KERNEL, args)
            given, *rest = norm.args
            calls[calls.index(norm)] = Call("batch_norm_of_moments", (given, moments, *rest))
            shared += 1
    return f"took the moments of {shared} batch norms from convolutions"


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
