"""The pass "folding", which folds a batch norm's scale and shift into a convolution before it.

In evaluation mode, batch norm multiplies each channel by a constant s and adds a constant t. Since
conv(x, w) s + t = conv(x, w s) + t, the scaled weights are computed once, and the addition runs in
the convolution's epilogue, as does a ReLU after it. Rounding differs, so this pass runs only with
``capture(step, exact=False)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...backends.base import Epilogue, View
from ..buffers import BufferSlot
from ..calls import Call
from ..recorded import Recording
from .constants import unchanged_parameters
from .options import Options


def fold(recording: Recording, options: Options) -> str:
    """Fold constant scales and shifts of channels into convolutions before them."""
    folded = 0
    if not options.exact:
        folder = _Folder(recording, unchanged_parameters(recording, options))
        for segment in recording.segments:
            for call in [call for call in segment.calls if call.name == "conv2d"]:
                folded += folder.fold(segment.calls, call)
    return f"folded {folded} batch norms"


class _Folder:
    """A rewriter of the calls of a recording that has constants."""

    def __init__(self, recording: Recording, parameters: set[BufferSlot]) -> None:
        self.recording = recording
        self.constants = {slot for call in recording.constants for slot in call.writes}
        self.known = parameters | self.constants

    def fold(self, calls: list[Call], conv: Call) -> bool:
        """Fold the batch norm after ``conv``; return False if there is none."""
        x, weight, out, geometry, epilogue = conv.args
        channels = weight.shape[-1]
        scaled = self._next(calls, out, "multiply", channels)
        added = [] if epilogue.bias is None else [epilogue.bias]
        if not self.known.issuperset(view.handle for view in [weight, *added]):
            return False
        if epilogue.relu or epilogue.residual is not None or scaled is None:
            return False
        multiply, scale = scaled
        shifted = self._next(calls, multiply.args[3], "add", channels)
        if shifted is None:
            return False
        add, shift = shifted
        relu = self._relu_of(calls, add.args[3])
        last = relu or add
        between = calls[calls.index(conv) : calls.index(last)]
        if any(x.handle in call.writes for call in between):
            return False
        bias = _channels(shift, channels)
        if epilogue.bias is not None:
            bias = self._constant(
                "add", self._constant("multiply", epilogue.bias, _channels(scale, channels)), bias
            )
        new_weight = self._constant("multiply", weight, _channels(scale, channels, weight.shape))
        place = last.args[3]
        result = out._replace(handle=place.handle, offset=place.offset)
        epilogue = Epilogue(bias, relu=relu is not None)
        # The fused call takes the place of the last one, since earlier calls may still use its
        # result's memory.
        calls[calls.index(last)] = replace(conv, args=(x, new_weight, result, geometry, epilogue))
        calls[:] = [call for call in calls if call not in (conv, multiply, add)]
        return True

    def _next(
        self, calls: list[Call], view: View, name: str, channels: int
    ) -> tuple[Call, View] | None:
        """Return the call of ``name`` on this result and a constant, and that constant."""
        call = self._user(calls, view, name)
        if call is None:
            return None
        _, a, b, out = call.args
        for value, constant in ((a, b), (b, a)):
            if (
                isinstance(constant, View)
                and isinstance(value, View)
                and value.handle is view.handle
                and constant.handle in self.constants
                and _is_whole(value, view)
                and alike(value, out)
                and _varies_with_channel(constant, value, channels)
            ):
                return call, constant
        return None

    def _relu_of(self, calls: list[Call], view: View) -> Call | None:
        """Return the call that computes relu of all elements of this result."""
        call = self._user(calls, view, "maximum")
        if call is None or repr(call.args[2]) != "0.0":
            return None
        _, value, _, out = call.args
        return call if _is_whole(value, view) and alike(value, out) else None

    def _user(self, calls: list[Call], view: View, name: str) -> Call | None:
        """Return the only reader of a temporary, if it is an elementwise call of ``name``."""
        slot = view.handle
        recorded = self.recording.calls()
        users = [c for c in recorded if any(v.handle is slot for v, _ in c.views())]
        if len(users) != 2 or not slot.temporary:
            return None
        made, user = users
        alone = slot not in made.reads and slot not in user.writes and user in calls
        return user if alone and user.name == "binary" and user.args[0] == name else None

    def _constant(self, name: str, a: View, b: View) -> View:
        """Return a new constant, computed from two others of one shape."""
        out = self.recording.new_constant(a.shape, a.dtype)
        self.constants.add(out.handle)
        self.recording.constants.append(Call("binary", (name, a, b, out)))
        return out


def _varies_with_channel(constant: View, value: View, channels: int) -> bool:
    """Return True if a constant varies only with the channel of ``value``, an axis of stride 1."""
    return constant.shape == value.shape and all(
        s == (1 if v == 1 and n == channels else 0)
        for n, s, v in zip(constant.shape, constant.strides, value.strides)
        if n > 1
    )


def _channels(constant: View, count: int, shape: tuple[int, ...] | None = None) -> Any:
    """Return a per-channel constant as a view of ``shape``, whose last axis is the channels."""
    shape = shape or (count,)
    strides = (0,) * (len(shape) - 1) + (1,)
    return View(constant.handle, shape, strides, constant.offset, constant.dtype)


def alike(a: View, b: View) -> bool:
    """Return True if two views have equal shapes and strides."""
    return a.shape == b.shape and list(_axes(a)) == list(_axes(b))


def _is_whole(value: View, result: View) -> bool:
    """Return True if ``value`` has all elements of ``result``, possibly with permuted axes."""
    return sorted(_axes(value)) == sorted(_axes(result)) and value.offset == result.offset


def _axes(view: View) -> Iterator[tuple[int, int]]:
    """Yield (length, stride) of the axes with more than one element."""
    return ((n, s) for n, s in zip(view.shape, view.strides) if n > 1)
