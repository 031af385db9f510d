"""The data of a recorded step: segments of kernel calls with their bindings and writes.

``tracer`` makes a Recording, ``passes`` rewrite its calls, ``program`` replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from ..autograd import Tensor
from ..backends.base import Backend, View
from ..dtypes import DType
from ..ndarray.array import wrap
from ..ndarray.device import BackendDevice
from ..shapes import Shape, compact_strides, product
from .buffers import BufferSlot
from .calls import Call
from .signature import map_leaves
from .state import PLAIN_TYPES, Location, array_in, describe_view

DISTRIBUTED = __package__.rpartition(".")[0] + ".distributed"

Leaves = Sequence[Any]


class StaleRecordingError(Exception):
    """Raised if a recording does not match a call; the message names the guard that failed."""


@dataclass(eq=False)
class InputBinding:
    """A binding of a slot to the array at ``location``, whose layout must be as recorded."""

    slot: BufferSlot
    location: Location
    like: View

    def run(self, leaves: Leaves) -> None:
        """Bind the slot; raise StaleRecordingError if the array is missing or does not fit."""
        array = array_in(self.location.get(leaves))
        view = None if array is None else array.view
        if view is None or view[1:3] != self.like[1:3] or view.dtype != self.like.dtype:
            found = "missing" if view is None else describe_view(view)
            raise StaleRecordingError(
                f"{self.location.label} was {describe_view(self.like)} and is now {found}"
            )
        self.slot.bind(view.handle, view.offset)


@dataclass(eq=False)
class ArrayTemplate:
    """A template of a Tensor of class ``kind``, or of an NDArray if that is None, on a slot."""

    slot: BufferSlot
    like: View
    device: BackendDevice
    kind: type[Tensor] | None = None
    requires_grad: bool = False

    def make(self) -> Any:
        """Return a new object on the slot's current buffer."""
        array = wrap(self.slot.view(self.like), self.device)
        return array if self.kind is None else self.kind.make_const(array, self.requires_grad)


@dataclass(eq=False)
class HostCall:
    """A call of a host step, whose arguments are constants or ``ValueSource``s.

    Its result may fill a slot. ``changes_state``: it may write to arrays of the Python state.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    changes_state: bool = False
    result: BufferSlot | None = None
    like: View | None = None

    def run(self, leaves: Leaves, values: list[Any]) -> None:
        """Call the function and append its result to ``values``."""

        def now(given: Any) -> Any:
            return given.value(leaves, values) if isinstance(given, ValueSource) else given

        value = self.function(
            *map(now, self.args), **{name: now(given) for name, given in self.options.items()}
        )
        values.append(value)
        if self.result is not None:
            assert self.like is not None
            array = array_in(value)
            view = value if array is None else array.view
            if view[1:3] != self.like[1:3] or view.dtype != self.like.dtype:
                raise RuntimeError(
                    f"capture: {self.function.__name__} returned {describe_view(self.like)} when "
                    f"recorded, but now {describe_view(view)}; call the step without capture"
                )
            self.result.bind(view.handle, view.offset)


@dataclass(eq=False)
class ValueSource:
    """The origin of a value that differs from call to call."""

    leaf: int | None = None
    step: int | None = None
    made: ArrayTemplate | None = None

    def value(self, leaves: Leaves, values: Sequence[Any]) -> Any:
        """Return an argument of this call, the result of a host step, or an array on a slot."""
        if self.leaf is not None:
            return leaves[self.leaf]
        if self.step is not None:
            return values[self.step]
        assert self.made is not None
        return self.made.make()


@dataclass(eq=False)
class Segment:
    """A run of kernel calls without a host step, with bindings before and writes after it."""

    bindings: list[InputBinding] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    writes: list[tuple[Location, Any]] = field(default_factory=list)
    host: HostCall | None = None


@dataclass(eq=False)
class Recording:
    """A recorded step: its segments and the slots of its buffers, without the buffers."""

    backend: Backend
    segments: list[Segment]
    slots: list[BufferSlot]
    result: Any = None
    """The result of the step, in which ``ValueSource``s stand for arrays."""
    constants: list[Call] = field(default_factory=list)
    """Calls whose results are kept between replays until a parameter changes."""
    parameters: list[InputBinding] = field(default_factory=list)
    """The bindings of parameters that constants read."""

    def calls(self) -> list[Call]:
        """Return the calls of all segments in order."""
        return [call for part in self.segments for call in part.calls]

    def temporaries(self) -> list[BufferSlot]:
        """Return the temporaries used by calls, with ``first_use`` and ``last_use`` set."""
        self.note_uses()
        return [slot for slot in self.slots if slot.temporary and slot.first_use]

    def new_constant(self, shape: Shape, dtype: DType) -> View:
        """Return a view of a new slot whose contents are kept between replays."""
        number = max(slot.number for slot in self.slots) + 1
        slot = BufferSlot(number, product(shape), dtype, constant=True)
        self.slots.append(slot)
        return View(slot, shape, compact_strides(shape), 0, dtype)

    def new_temporary(self, shape: Shape, dtype: DType) -> View:
        """Return a view of a new slot, which the memory plan will place."""
        view = self.new_constant(shape, dtype)
        view.handle.constant = False
        return view

    def note_uses(self) -> None:
        """Set ``first_use`` and ``last_use`` of all slots."""
        for slot in self.slots:
            slot.first_use = slot.last_use = 0
        for number, call in enumerate(self.calls(), start=1):
            for view, _ in call.views():
                slot = view.handle
                slot.first_use, slot.last_use = slot.first_use or number, number

    def live_bytes(self) -> list[int]:
        """Return for each call the bytes of temporaries that are live while it runs."""
        changes = [0] * (len(self.calls()) + 2)
        for slot in self.temporaries():
            changes[slot.first_use] += slot.bytes
            changes[slot.last_use + 1] -= slot.bytes
        return list(accumulate(changes))[1:-1]

    def copy(self) -> Recording:
        """Return a copy with its own lists, which later passes do not change."""
        parts = [replace(part, calls=list(part.calls)) for part in self.segments]
        return replace(self, segments=parts, slots=list(self.slots), constants=list(self.constants))

    def __str__(self) -> str:
        """Return the list of calls, one per line."""
        constants = [f"constant: {call}" for call in self.constants]
        lines = [line for part in self.segments for line in _lines(part)]
        returned: list[str] = []
        map_leaves(lambda leaf: returned.append(_source_text(leaf)), self.result)
        return "\n".join([*constants, *lines, f"return {', '.join(returned)}"])


def _lines(part: Segment) -> list[str]:
    lines = [f"%{bind.slot.number} = {bind.location.label}" for bind in part.bindings]
    lines += map(str, part.calls)
    for location, made in part.writes:
        value = f"%{made.slot.number}" if isinstance(made, ArrayTemplate) else made
        lines.append(f"{location.label} = {value}")
    if part.host is not None:
        given = ", ".join(map(_source_text, [*part.host.args, *part.host.options.values()]))
        called = f"host: {part.host.function.__qualname__} {given}".strip()
        lines.append(f"%{part.host.result.number} = {called}" if part.host.result else called)
    return lines


def _source_text(value: Any) -> str:
    """Return the origin of a value, or a plain value itself, as text."""
    if isinstance(value, ValueSource):
        made = None if value.made is None else value.made.slot.number
        kinds = {"argument ": value.leaf, "host step ": value.step, "%": made}
        return next(f"{kind}{number}" for kind, number in kinds.items() if number is not None)
    return repr(value) if isinstance(value, (*PLAIN_TYPES, tuple)) else type(value).__name__


def exchanges_messages(segments: Sequence[Segment]) -> bool:
    """Return True if a host step exchanges messages with other ranks."""
    hosts = [part.host for part in segments if part.host is not None]
    return any(host.function.__module__.startswith(DISTRIBUTED) for host in hosts)
