"""Recorded kernel calls, with slots in place of buffers in their arguments.

``tracer`` makes calls, ``passes`` rewrite them, and a ``CallList`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

from ..backends.base import Backend, Epilogue, EpilogueGrad, View
from .buffers import BufferSlot

WRITTEN = {
    *("out", "x_grad", "weight_grad", "bias_grad", "residual_grad"),
    *("outs", "velocities", "firsts", "seconds"),
}
"""Names of the kernel parameters and ``EpilogueGrad`` fields that are written."""
STATISTICS = {
    "batch_norm": {"mean", "var"},
    "batch_norm_of_moments": {"mean", "var"},
    "conv2d_moments": {"moments"},
    "layer_norm": {"mean", "var"},
}
"""More parameters that certain kernels write, for their gradients or other kernels to read."""


@dataclass(frozen=True, eq=False)
class Call:
    """A call of the backend's kernel ``name``; the handle of a View in ``args`` is a slot.

    Calls are immutable: a pass replaces a call by another one.
    """

    name: str
    args: tuple[Any, ...]

    def views(self) -> Iterator[tuple[View, bool]]:
        """Yield (view, True if the kernel writes it) in the order of the arguments."""
        for argument, written in zip(self.args, writes(self.name), strict=True):
            yield from _views(argument, written)

    @property
    def reads(self) -> list[BufferSlot]:
        """The slots of views that the kernel only reads."""
        return [view.handle for view, written in self.views() if not written]

    @property
    def writes(self) -> list[BufferSlot]:
        """The slots of views that the kernel writes, and perhaps reads as well."""
        return [view.handle for view, written in self.views() if written]

    def with_views(self, change: Callable[[View], Any]) -> Call:
        """Return the call with each view replaced by ``change(view)``."""
        return Call(self.name, tuple(_changed(argument, change) for argument in self.args))

    def with_slots(self, others: dict[BufferSlot, BufferSlot]) -> Call:
        """Return the call with slots replaced as ``others`` maps them."""
        return self.with_views(lambda v: v._replace(handle=others.get(v.handle, v.handle)))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.with_views(_Text).args))})"


@cache
def parameters(name: str) -> tuple[str, ...]:
    """Return the names of the arguments of a backend kernel."""
    return tuple(signature(getattr(Backend, name)).parameters)[1:]


@cache
def writes(name: str) -> tuple[bool, ...]:
    """Return for each argument of a backend kernel whether the kernel writes it."""
    written = WRITTEN | STATISTICS.get(name, set())
    return tuple(parameter in written for parameter in parameters(name))


def _views(argument: Any, written: bool) -> Iterator[tuple[View, bool]]:
    if isinstance(argument, View):
        yield argument, written
    elif isinstance(argument, Epilogue | EpilogueGrad):
        for field, value in argument._asdict().items():
            yield from _views(value, field in WRITTEN)
    elif isinstance(argument, tuple | list):
        for inner in argument:
            yield from _views(inner, written)


def _changed(argument: Any, change: Callable[[View], Any]) -> Any:
    if isinstance(argument, View):
        return change(argument)
    if isinstance(argument, Epilogue | EpilogueGrad):
        return argument._replace(**{n: _changed(v, change) for n, v in argument._asdict().items()})
    if isinstance(argument, tuple | list) and any(isinstance(inner, View) for inner in argument):
        return tuple(_changed(inner, change) for inner in argument)
    return tuple(argument) if isinstance(argument, list) else argument


def _placed(view: View) -> View:
    slot: BufferSlot = view.handle
    return slot.view(view)


class CallList:
    """Calls that are ready to run on the current buffers of ``slots``, those of their views.

    The backend runs them natively if it can (``Backend.prepare_calls``).
    """

    def __init__(self, backend: Backend, calls: Sequence[Call]) -> None:
        self.slots = [*dict.fromkeys(view.handle for call in calls for view, _ in call.views())]
        self._calls = [(getattr(backend, call.name), call) for call in calls]
        self._stay = [all(v.handle.temporary for v, _ in call.views()) for call in calls]
        """True for calls on temporaries alone, whose places do not change."""
        self._args: list[list[Any] | None] = [None] * len(calls)
        """The arguments of the calls that stay, from the first run on."""
        numbers = {slot: number for number, slot in enumerate(self.slots)}
        self._run_native = backend.prepare_calls(
            [
                (kernel, call.with_views(lambda v: v._replace(handle=numbers[v.handle])).args)
                for kernel, call in self._calls
            ]
        )

    def __len__(self) -> int:
        return len(self._calls)

    def run(self) -> None:
        """Call the kernels in order, with the current buffers of the slots."""
        if self._run_native is not None:
            self._run_native(tuple([slot.place for slot in self.slots]))
            return
        for number, (kernel, call) in enumerate(self._calls):
            args = self._args[number]
            if args is None:
                args = [_changed(argument, _placed) for argument in call.args]
                if self._stay[number]:
                    self._args[number] = args
            kernel(*args)

    def forget(self) -> None:
        """Forget the places of temporaries, whose memory is about to be freed."""
        self._args = [None] * len(self._args)


class _Text:
    """The text of a view in a list of calls."""

    def __init__(self, view: View) -> None:
        self.text = f"%{view.handle.number}{list(view.shape)}"

    def __repr__(self) -> str:
        return self.text
