"""The pass "fusion", which fuses ReLU and its gradient into neighbouring kernels.

A convolution, a batch norm or a bias addition applies a following ReLU to each result before
storing it (``Epilogue``). Batch norm can add another array first, as at the end of a residual
block. The gradient of batch norm then includes the gradient of its ReLU (``EpilogueGrad``). Each
fusion saves a pass over memory and keeps every bit, because rounding happens at the same points.
``nn.Sequential`` calls such kernels itself; the pass finds the patterns in any program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...backends.base import NO_EPILOGUE, Epilogue, EpilogueGrad, View, provides
from ...dtypes import float32, float64, is_storage
from ..calls import Call
from ..recorded import Recording, Segment
from .options import Options
from .patterns import alike, is_binary, is_whole, only_users, placed

RESULT = {"conv2d": 2, "apply_epilogue": 1, "batch_norm": 3}
"""The position of the result among the arguments of each kernel with an ``Epilogue``."""


def fuse(recording: Recording, options: Options) -> str:
    """Fuse ReLU into the kernel before it, and its gradient into that of batch norm."""
    before = len(recording.calls())
    for part in recording.segments:
        for call in [call for call in part.calls if _is_relu(call)]:
            _fuse_relu(recording, part.calls, call, options)
    for part in recording.segments:
        for call in [call for call in part.calls if call.name == "batch_norm_grad"]:
            _fuse_relu_grad(recording, part, call)
    return f"fused {before - len(recording.calls())} calls into others"


def _is_relu(call: Call) -> bool:
    """Return True if a call computes the maximum of each element and 0.0 (not -0.0)."""
    if not is_binary(call, "maximum") or isinstance(call.args[2], View):
        return False
    _, a, zero, out = call.args
    return zero == 0 and math.copysign(1, zero) > 0 and alike(a, out)


def _fuse_relu(recording: Recording, calls: list[Call], relu: Call, options: Options) -> None:
    """Fuse relu, or an addition and relu, into the kernel that computed the operand."""
    _, a, _, out = relu.args
    users = only_users(recording, a)
    made = users[0] if users else None
    if made is None or made not in calls:
        return
    if is_binary(made, "add") and made.args[3] == a:
        if is_storage(a.dtype) and options.exact:
            return  # the eager step also rounds the result before the addition
        for norm, added in _normalised(recording, made):
            epilogue = Epilogue(None, placed(norm.args[3], added), True)
            plain = norm in calls and norm.args[-1] == NO_EPILOGUE
            if plain and _merge(calls, [norm, made, relu], _ending(norm, out, epilogue)):
                return
        if provides(recording.backend, "apply_epilogue") and a.dtype in {float32, float64}:
            _fuse_bias(calls, made, relu)
    elif made.name in RESULT and is_whole(a, made.args[RESULT[made.name]]):
        _merge(calls, [made, relu], _ending(made, out, made.args[-1]._replace(relu=True)))


def _normalised(recording: Recording, add: Call) -> Iterator[tuple[Call, View]]:
    """Yield each batch norm whose result is added to another array, with that array."""
    _, x, y, total = add.args
    if not (isinstance(x, View) and isinstance(y, View) and alike(x, total) and alike(y, total)):
        return
    for value, other in ((x, y), (y, x)):
        users = only_users(recording, value)
        norm = users[0] if users else add
        twice = value.handle is other.handle
        if norm.name == "batch_norm" and is_whole(value, norm.args[3]) and not twice:
            yield norm, other


def _ending(call: Call, out: View, epilogue: Epilogue) -> Call:
    """Return the call with this epilogue and ``out`` as its result."""
    place = RESULT[call.name]
    result = placed(call.args[place], out)
    return Call(call.name, (*call.args[:place], result, *call.args[place + 1 : -1], epilogue))


def _fuse_bias(calls: list[Call], add: Call, relu: Call) -> None:
    """Merge the addition of a per-channel bias and relu into one call."""
    _, x, y, total = add.args
    for value, bias in ((x, y), (y, x)):
        if isinstance(value, View) and isinstance(bias, View) and alike(value, total):
            varies = [i for i, (n, s) in enumerate(zip(bias.shape, bias.strides)) if n > 1 and s]
            if len(varies) == 1 and bias.shape == total.shape:
                (axis,) = varies
                channels = View(
                    bias.handle, (bias.shape[axis],), (bias.strides[axis],), bias.offset, bias.dtype
                )
                ends = [_with_last(view, axis) for view in (value, relu.args[3])]
                new = Call("apply_epilogue", (*ends, Epilogue(channels, None, True)))
                _merge(calls, [add, relu], new)
                return


def _with_last(view: View, axis: int) -> View:
    """Return a view with ``axis`` moved to the end."""
    order = [*range(axis), *range(axis + 1, len(view.shape)), axis]
    shape, strides = (tuple(given[i] for i in order) for given in (view.shape, view.strides))
    return view._replace(shape=shape, strides=strides)


def _fuse_relu_grad(recording: Recording, part: Segment, grad: Call) -> None:
    """Fuse the gradient of a batch norm's ReLU into that of the batch norm."""
    given, x, weight, mean = grad.args[:4]
    norm = _unchanged_norm(recording, part, mean)
    relu_grads = [
        c for c in part.calls if c.name == "relu_grad" and c.args[2].handle is given.handle
    ]
    if norm is None or not relu_grads or grad.args[-1] != EpilogueGrad():
        return
    passed = relu_grads[0]
    above, result, out, bias_grad = passed.args
    bias, y, epilogue = norm.args[2], norm.args[3], norm.args[-1]
    same = alike(above, out) and alike(result, out) and alike(given, y)
    same = same and is_whole(given, out) and is_whole(result, y)
    if not same or norm.args[:2] != (x, weight) or result.handle is not y.handle or bias_grad:
        return
    more = EpilogueGrad(bias=bias)
    if epilogue.residual is not None:
        more = EpilogueGrad(None, y, given)
    elif not only_users(recording, out):
        return
    new = Call("batch_norm_grad", (placed(given, above), *grad.args[1:-1], more))
    _merge(part.calls, [passed, grad], new)


def _unchanged_norm(recording: Recording, part: Segment, mean: View) -> Call | None:
    """Return the batch norm with relu that wrote ``mean``, if its arrays are unchanged."""
    calls: list[Call] = []
    norm = None
    for segment in recording.segments:
        for call in segment.calls:
            if call.name == "batch_norm" and call.args[4].handle is mean.handle:
                norm, calls = call, []
            elif norm is not None:
                calls.append(call)
        if segment is part:
            break
        if norm is not None and segment.host is not None and segment.host.changes_state:
            return None
    if norm is None or not norm.args[-1].relu:
        return None
    kept = {norm.args[2].handle, norm.args[3].handle}
    return None if any(kept.intersection(call.writes) for call in calls) else norm


def _merge(calls: list[Call], merged: list[Call], new: Call) -> bool:
    """Replace the first of the merged calls by ``new`` and remove the others, if that is safe.

    It is not if a call between them writes a slot that ``new`` now reads earlier, or uses a slot
    that ``new`` now writes earlier.
    """
    first, *others = merged
    reads, writes = set(new.reads), set(new.writes)
    if not reads.isdisjoint(writes):
        return False
    reads, writes = reads.difference(first.reads), writes.difference(first.writes)
    for call in calls[calls.index(first) : calls.index(others[-1])]:
        if call not in merged:
            used = {*call.reads, *call.writes}
            if not writes.isdisjoint(used) or not reads.isdisjoint(call.writes):
                return False
    calls[calls.index(first)] = new
    for call in others:
        calls.remove(call)
    return True
