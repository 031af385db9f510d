"""Capture of training steps, which records a step's kernel calls once and then replays them.

``step = needle.capture(train_step)``. A replay runs neither autograd nor op dispatch, and its
result is bit-identical to that of the eager step. ARCHITECTURE.md explains the design under
"Capture". A step that cannot be replayed correctly runs eagerly, and a ``CaptureWarning`` gives the
reason once.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from .. import backends
from ..array_namespace import BACKEND
from ..autograd import Tensor
from ..autograd.graph import recording
from ..host_steps import current
from ..ndarray import NDArray
from .passes import Options, byte_count
from .program import Program
from .recorded import StaleRecordingError
from .signature import CaptureWarning, signature
from .tracer import RefusedError, Tracer

__all__ = ["CaptureWarning", "Captured", "capture"]

P = ParamSpec("P")
R = TypeVar("R")

ARRAYS = (Tensor, NDArray, np.ndarray)
"""Argument types that a key does not identify by id."""
MAX_UNUSED_RECORDINGS = 8
"""Number of consecutive recordings without a replay after which a step runs eagerly for good."""
_recording_lock = threading.RLock()


@dataclass
class _CacheEntry:
    """The recordings of one call signature, with the objects that its key identifies by id."""

    objects: list[Any]
    programs: list[Program] = field(default_factory=list)
    refused: bool = False


class Captured(Generic[P, R]):
    """A function whose calls are recorded and replayed, called like the function itself.

    ``recordings`` and ``replays`` are counters. ``programs`` lists the recordings, the most
    recently used one last; ``print`` a recording to see its kernel calls.
    """

    def __init__(
        self, function: Callable[P, R], kept: int, as_graphs: bool, options: Options
    ) -> None:
        self.function, self.kept, self.as_graphs = function, kept, as_graphs
        self.options = options
        self.recordings = self.replays = 0
        self._cache: OrderedDict[Any, _CacheEntry] = OrderedDict()
        self._unused_recordings = 0
        self._warned: set[str] = set()
        functools.update_wrapper(self, function)

    @property
    def programs(self) -> list[Program]:
        """The recordings kept, the most recently used one last."""
        return [program for entry in list(self._cache.values()) for program in entry.programs]

    def explain(self, verbose: bool = False) -> str:
        """Return a report of each recording: what each pass did, and the calls and memory left.

        The memory is the peak of the bytes of live temporaries. ``verbose`` adds the calls as they
        were recorded and after each pass.
        """
        return "\n\n".join(program.explain(verbose) for program in self.programs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """Replay a recording that matches the arguments, or run the function and record it."""
        if BACKEND != "nd":
            self._warn(f"NEEDLE_BACKEND={BACKEND} makes no kernel calls that could be recorded")
        if (
            BACKEND != "nd"
            or current.recorder is not None
            or self._unused_recordings > MAX_UNUSED_RECORDINGS
        ):
            return self.function(*args, **options)
        leaves: list[Any] = []
        key = (recording.on, signature(args, leaves), signature(options, leaves))
        entry = self._cache.get(key)
        if entry is None:
            objects = [leaf for leaf in leaves if not isinstance(leaf, ARRAYS)]
            entry = self._cache.setdefault(key, _CacheEntry(objects))
        if entry.refused:
            return self.function(*args, **options)
        try:
            return self._replay(key, entry, leaves)
        except StaleRecordingError as stale:
            return self._record(key, entry, stale, leaves, args, options)

    def _replay(self, key: Any, entry: _CacheEntry, leaves: list[Any]) -> R:
        """Replay the most recent recording that matches; raise StaleRecordingError if none does."""
        reason = StaleRecordingError(
            "no call repeats the arguments of an earlier one; pass numbers as Tensors"
        )
        for program in reversed(entry.programs):
            try:
                result: R = program.run(leaves)
            except StaleRecordingError as stale:
                reason = stale
            else:
                try:
                    self._cache.move_to_end(key)
                except KeyError:  # another thread has evicted it
                    self._cache[key] = entry
                self._unused_recordings = 0
                self.replays += 1
                return result
        raise reason

    def _record(
        self,
        key: Any,
        entry: _CacheEntry,
        stale: Exception,
        leaves: list[Any],
        args: Any,
        options: Any,
    ) -> R:
        if self._unused_recordings == MAX_UNUSED_RECORDINGS:
            self._unused_recordings += 1
            self._warn(f"every call would need a new recording: {stale}")
            self._cache.clear()
            return self.function(*args, **options)
        tried = len(entry.programs)
        with _recording_lock:
            if len(entry.programs) > tried:  # another thread has recorded the step by now
                with contextlib.suppress(StaleRecordingError):
                    return self._replay(key, entry, leaves)
            chosen = replace(self.options, inference=not recording.on)
            tracer = Tracer(self.function, leaves, chosen)
            try:
                result: R = tracer.run(backends.loaded(), args, options)
            except BaseException:
                if not entry.programs:
                    self._cache.pop(key, None)
                raise
            try:
                result, program = tracer.program(result, self.as_graphs)
            except RefusedError as refused:
                self._warn(str(refused), this_call_only=refused.this_call_only)
                entry.refused = not refused.this_call_only
                self._unused_recordings += entry.refused
                return result
            self._unused_recordings += 1
            self.recordings += 1
            entry.programs.append(program)
            self._cache[key] = entry
            self._evict()
        return result

    def _evict(self) -> None:
        while len(self.programs) > self.kept:
            key = next(iter(self._cache))
            del self._cache[key].programs[:1]
            if not self._cache[key].programs:
                del self._cache[key]

    def _warn(self, reason: str, this_call_only: bool = False) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            name = getattr(self.function, "__qualname__", repr(self.function))
            extent = "this call ran" if this_call_only else "it runs"
            warnings.warn(
                f"capture: {name} is not replayed, {extent} eagerly: {reason}",
                CaptureWarning,
                stacklevel=4,
            )


def capture(
    function: Callable[P, R],
    *,
    recordings: int = 8,
    graphs: bool = True,
    memory: int | str | None = None,
    exact: bool = True,
) -> Captured[P, R]:
    """Return ``function`` as a callable that records its first call and replays later ones.

    A recording matches calls whose Tensors, NDArrays and NumPy arrays have the same shapes,
    strides, dtypes and devices, and whose other arguments are equal plain values or identical
    objects. At most ``recordings`` of them are kept. Results, ``.grad`` and buffers are constants
    in new memory at every call.

    graphs: on a device with graphs (CUDA), launch all kernels between two host steps as one graph.
    memory: the limit on the intermediate values of a replay, in bytes, as text such as "800MB", or
    "least". To meet it, cheap kernels are called again instead of keeping their results. If that
    does not suffice, the first call raises ValueError with the smallest possible limit. exact: with
    False, all calls may round differently, to save passes over memory. In inference, batch norm is
    folded into the convolution before it, within a relative error of about 1e-5. In training on
    CUDA, batch norm takes its moments from that convolution.

    Raises TypeError if ``function`` is not callable, ValueError if ``recordings`` is below 1 or
    ``memory`` is not a number of bytes.
    """
    if not callable(function):
        raise TypeError(
            f"capture: the argument must be callable, got {type(function).__name__}; pass the step "
            "itself, not its result"
        )
    if recordings < 1:
        raise ValueError(
            f"capture: recordings must be at least 1, got {recordings}; leave it out for 8"
        )
    return Captured(function, recordings, graphs, Options(byte_count(memory), exact))
