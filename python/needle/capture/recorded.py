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
from .guards import PLAIN_TYPES, Location, StaleRecordingError, array_in
from .signature import map_leaves
from .state import describe_view

DISTRIBUTED = __package__.rpartition(".")[0] + ".distributed"


@dataclass(eq=False)
class InputBinding:
    """A binding of a slot to the array at ``location``, which must have the recorded layout."""

    slot: BufferSlot
    location: Location
    like: View

    def run(self, values: Sequence[Any]) -> None:
        """Bind the slot; raise StaleRecordingError if the array is missing or does not fit."""
        value = self.location.get(values)
        array = array_in(value)
        view = value if array is None else array.view
        like = self.like
        if not isinstance(view, View) or view[1:3] != like[1:3] or view.dtype != like.dtype:
            now = describe_view(view) if isinstance(view, View) else "missing"
            raise StaleRecordingError(
                f"{self.location.label} was {describe_view(like)} and is now {now}"
            )
        self.slot.bind(view.handle, view.offset)


@dataclass(eq=False)
class ArrayTemplate:
    """A template for a Tensor of class ``kind``, or for an NDArray if that is None, on a slot."""

    slot: BufferSlot
    like: View
    device: BackendDevice
    kind: type[Tensor] | None = None
    requires_grad: bool = False

    def get(self, values: Sequence[Any]) -> Any:
        """Return a new object on the slot's current buffer."""
        array = wrap(self.slot.view(self.like), self.device)
        return array if self.kind is None else self.kind.make_const(array, self.requires_grad)


def current_value(source: Any, values: Sequence[Any]) -> Any:
    """Return what a Location or an ArrayTemplate stands for; any other value is a constant."""
    return source.get(values) if isinstance(source, (Location, ArrayTemplate)) else source


@dataclass(eq=False)
class HostCall:
    """A call of a host step; Locations and ArrayTemplates stand for arrays in its arguments.

    ``changes_state``: it may write to arrays of the Python state.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    changes_state: bool = False

    def run(self, values: list[Any]) -> None:
        """Call the function and append its result to ``values``."""
        args = [current_value(given, values) for given in self.args]
        options = {name: current_value(given, values) for name, given in self.options.items()}
        values.append(self.function(*args, **options))


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
    """The result of the step, in which ArrayTemplates and Locations stand for values."""
    constants: list[Call] = field(default_factory=list)
    """Calls that run again only if a parameter changes; replays keep their results."""
    parameters: list[InputBinding] = field(default_factory=list)
    """The bindings of parameters that constants read."""

    def calls(self) -> list[Call]:
        """Return the calls of all segments in order."""
        return [call for part in self.segments for call in part.calls]

    def temporaries(self) -> list[BufferSlot]:
        """Return the temporaries used by calls, with ``first_use`` and ``last_use`` set."""
        self.note_uses()
        return [slot for slot in self.slots if slot.temporary and slot.first_use]

    def new_slot(self, shape: Shape, dtype: DType, constant: bool = False) -> View:
        """Return a view of a new temporary; a ``constant`` one keeps its contents for replays."""
        number = max(slot.number for slot in self.slots) + 1
        slot = BufferSlot(number, product(shape), dtype, constant=constant)
        self.slots.append(slot)
        return View(slot, shape, compact_strides(shape), 0, dtype)

    def note_uses(self) -> None:
        """Set ``first_use`` and ``last_use`` of all slots."""
        for slot in self.slots:
            slot.first_use = slot.last_use = 0
        for number, call in enumerate(self.calls(), start=1):
            for view, _ in call.views():
                slot = view.handle
                slot.first_use, slot.last_use = slot.first_use or number, number

    def segment_uses(self) -> tuple[dict[BufferSlot, int], dict[BufferSlot, int]]:
        """Return the indices of the first and of the last segment that uses each slot."""
        uses = [
            (view.handle, index)
            for index, part in enumerate(self.segments)
            for call in part.calls
            for view, _ in call.views()
        ]
        return dict(reversed(uses)), dict(uses)

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
    lines += [f"{location.label} = {_source_text(made)}" for location, made in part.writes]
    if part.host is not None:
        given = ", ".join(map(_source_text, [*part.host.args, *part.host.options.values()]))
        lines.append(f"host: {part.host.function.__qualname__} {given}".strip())
    return lines


def _source_text(value: Any) -> str:
    """Return the origin of a value, or a plain value itself, as text."""
    if isinstance(value, ArrayTemplate):
        return f"%{value.slot.number}"
    if isinstance(value, Location):
        return value.label
    return repr(value) if isinstance(value, (*PLAIN_TYPES, tuple)) else type(value).__name__


def exchanges_messages(segments: Sequence[Segment]) -> bool:
    """Return True if a host step exchanges messages with other ranks."""
    hosts = [part.host for part in segments if part.host is not None]
    return any(host.function.__module__.startswith(DISTRIBUTED) for host in hosts)
