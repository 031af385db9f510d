"""The pass "folding", which folds a batch norm's scale and shift into a convolution before it.

In evaluation mode, batch norm multiplies each channel by a constant s and adds a constant t. Since
conv(x, w) s + t = conv(x, w s) + t, the scaled weights are computed once, and the addition runs in
the convolution's epilogue, as does a ReLU after it. Rounding differs, so this pass runs only with
``capture(step, exact=False)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

        def is_factor(value: View, other: Any) -> bool:
            known = isinstance(other, View) and other.handle in self.constants
            return known and _varies_with_channel(other, value, channels)

        multiply, scale = self._next(calls, out, "multiply", is_factor)
        added = [] if epilogue.bias is None else [epilogue.bias]
        if multiply is None or epilogue.relu or epilogue.residual is not None:
            return False
        add, shift = self._next(calls, multiply.args[3], "add", is_factor)
        if add is None or not self.known.issuperset(v.handle for v in [weight, *added]):
            return False
        relu, _ = self._next(calls, add.args[3], "maximum", lambda _, other: repr(other) == "0.0")
        last = relu or add
        between = calls[calls.index(conv) : calls.index(last)]
        if any(x.handle in call.writes for call in between):
            return False
        bias = _channels(shift, channels)
        for old in added:
            bias = self._constant(
                "add", self._constant("multiply", old, _channels(scale, channels)), bias
            )
        new_weight = self._constant("multiply", weight, _channels(scale, channels, weight.shape))
        place = last.args[3]
        result = out._replace(handle=place.handle, offset=place.offset)
        args = (x, new_weight, result, geometry, Epilogue(bias, relu=relu is not None))
        # The fused call takes the place of the last one, since earlier calls may still use its
        # result's memory.
        calls[calls.index(last)] = Call("conv2d", args)
        calls[:] = [call for call in calls if call not in (conv, multiply, add)]
        return True

    def _next(
        self, calls: list[Call], view: View, name: str, wanted: Callable[[View, Any], bool]
    ) -> tuple[Call | None, Any]:
        """Return the only reader of a temporary, if it is a call of ``name``, and its operand.

        The call must read the whole temporary, and ``wanted`` must be true of the other one.
        """
        slot = view.handle
        recorded = self.recording.calls()
        users = [c for c in recorded if any(v.handle is slot for v, _ in c.views())]
        if len(users) != 2 or not slot.temporary:
            return None, None
        made, user = users
        alone = slot not in made.reads and slot not in user.writes and user in calls
        if alone and user.name == "binary" and user.args[0] == name:
            _, a, b, out = user.args
            for value, other in ((a, b), (b, a)):
                whole = isinstance(value, View) and value.handle is slot and _is_whole(value, view)
                if whole and alike(value, out) and wanted(value, other):
                    return user, other
        return None, None

    def _constant(self, name: str, a: View, b: View) -> View:
        """Return a new constant, computed from two others of one shape."""
        out = self.recording.new_slot(a.shape, a.dtype, constant=True)
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
    """Return a per-channel constant as a view of ``shape``, with the channels on the last axis."""
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
