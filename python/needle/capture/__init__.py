"""``step = needle.capture(train_step)``: record the kernel calls of a step once, replay them.

A replay runs neither autograd nor op dispatch, and is bit-identical to the eager step. Explained
in ARCHITECTURE.md, "Capture". Whatever cannot be replayed rightly runs eagerly, and a warning
says why, once.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from .. import backends
from ..array_namespace import BACKEND
from ..graph import recording
from ..host_steps import current
from .outcome import CaptureWarning, signature
from .program import Program, StaleRecordingError
from .recorder import Recorder, RefusedError

__all__ = ["CaptureWarning", "Captured", "capture"]

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 8
"""After so many recordings in a row that fitted no later call, a step runs eagerly for good."""
_one_at_a_time = threading.RLock()


@dataclass
class _Known:
    """What is known of calls of one signature. Objects that count by identity are kept alive."""

    objects: list[Any]
    programs: list[Program] = field(default_factory=list)
    refused: bool = False


class Captured(Generic[P, R]):
    """A function whose calls are recorded and replayed; call it like the function itself.

    ``recordings`` and ``replays`` count; ``programs`` are the recordings, the latest used last
    (``print`` one to see its kernel calls).
    """

    def __init__(self, function: Callable[P, R], kept: int, as_graphs: bool) -> None:
        self.function, self.kept, self.as_graphs = function, kept, as_graphs
        self.recordings = self.replays = 0
        self._known: OrderedDict[Any, _Known] = OrderedDict()
        self._in_vain = 0
        self._warned: set[str] = set()
        functools.update_wrapper(self, function)

    @property
    def programs(self) -> list[Program]:
        """The recordings that there are."""
        return [program for known in self._known.values() for program in known.programs]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        if BACKEND != "nd":
            self._warn(f"NEEDLE_BACKEND={BACKEND} has no kernel calls to record")
        if BACKEND != "nd" or current.recorder is not None or self._in_vain > PATIENCE:
            return self.function(*args, **options)
        leaves: list[Any] = []
        key = (recording.on, signature(args, leaves), signature(options, leaves))
        known = self._known.get(key)
        if known is None:
            known = _Known([leaf for leaf in leaves if not hasattr(leaf, "dtype")])
            self._known[key] = known
        if known.refused:
            return self.function(*args, **options)
        reason = None
        for program in reversed(known.programs):
            try:
                result: R = self._replay(program, leaves)
            except StaleRecordingError as stale:
                reason = stale
            else:
                self._known.move_to_end(key)
                return result
        return self._record(known, reason, leaves, args, options)

    def _replay(self, program: Program, leaves: list[Any]) -> Any:
        result = program.run(leaves)
        self._in_vain = 0
        self.replays += 1
        return result

    def _record(
        self, known: _Known, stale: Exception | None, leaves: list[Any], args: Any, options: Any
    ) -> R:
        self._in_vain += 1
        if self._in_vain > PATIENCE:
            why = (
                stale or "no call's arguments are those of an earlier one; pass numbers as Tensors"
            )
            self._warn(f"it would have to be recorded anew at every call, since {why}")
            self._known.clear()
            return self.function(*args, **options)
        with _one_at_a_time:
            recorder = Recorder(self.function, leaves)
            result: R = recorder.run(backends.loaded(), args, options)
            try:
                result, program = recorder.program(result, self.as_graphs)
            except RefusedError as refused:
                self._warn(str(refused), now=refused.now)
                known.refused = not refused.now
                self._in_vain -= refused.now
                return result
        self.recordings += 1
        known.programs.append(program)
        self._forget_the_oldest()
        return result

    def _forget_the_oldest(self) -> None:
        while len(self.programs) > self.kept:
            key = next(iter(self._known))
            del self._known[key].programs[:1]
            if not self._known[key].programs:
                del self._known[key]

    def _warn(self, reason: str, now: bool = False) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            name = getattr(self.function, "__qualname__", repr(self.function))
            extent = "this call ran" if now else "it runs"
            warnings.warn(
                f"capture: {name} is not replayed, {extent} eagerly: {reason}",
                CaptureWarning,
                stacklevel=4,
            )


def capture(
    function: Callable[P, R], *, recordings: int = 8, graphs: bool = True
) -> Captured[P, R]:
    """``function`` as one that records itself at the first call and replays later ones.

    A recording fits calls whose Tensors, NDArrays and NumPy arrays have the same shapes, strides,
    dtypes and devices, and whose other arguments are equal (objects: the same); ``recordings`` of
    them are kept. Results, ``.grad`` and buffers are constants, in new buffers at every call.
    ``graphs``: where the device has graphs (CUDA), the kernels between two host steps are launched
    as one.
    """
    if not callable(function):
        raise TypeError(f"capture: a function is needed, got {type(function).__name__}")
    if recordings < 1:
        raise ValueError(f"capture: recordings must be at least 1, got {recordings}")
    return Captured(function, recordings, graphs)
