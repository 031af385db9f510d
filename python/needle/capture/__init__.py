"""Capture training steps: record a step's kernel calls once and then replay them.

``step = needle.capture(train_step, state=[model, optimizer])``. A replay runs neither autograd nor
op dispatch, and its result is bit-identical to that of the eager step. ARCHITECTURE.md explains the
design under "Capture". A step that cannot be replayed correctly runs eagerly, and a
``CaptureWarning`` gives the reason once.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, overload

from ..array_namespace import BACKEND
from ..autograd.graph import recording
from ..errors import warn_caller
from ..host_steps import current
from ..nn.module import Module
from .checking import replay_and_compare
from .guards import StaleRecordingError
from .passes import Options, byte_count
from .program import Program
from .signature import CaptureError, CaptureWarning, function_name, signature
from .state import check_state, labelled
from .tracer import StepCall, Tracer

__all__ = ["CaptureError", "CaptureWarning", "Captured", "capture"]

P = ParamSpec("P")
R = TypeVar("R")

MAX_UNUSED_RECORDINGS = 8
"""Number of consecutive recordings without a replay after which a step runs eagerly for good."""
_recording_lock = threading.RLock()


class Captured(Generic[P, R]):
    """A function whose calls are recorded and replayed, called like the function itself.

    ``recordings`` and ``replays`` are counters. ``programs`` lists the recordings, the most
    recently used one last; ``print`` a recording to see its kernel calls.
    """

    def __init__(self, function: Callable[P, R], state: Any, options: Options) -> None:
        self.function, self.options = function, options
        self.recordings = self.replays = 0
        owner = getattr(function, "__self__", function)
        self._roots = [(type(owner).__name__, owner)] if isinstance(owner, Module) else []
        self._roots += labelled(state)
        self.programs: list[Program] = []
        # Signatures that run eagerly, with the objects that they identify by id.
        self._refused: dict[Any, list[Any]] = {}
        self._unused_recordings = 0
        self._lock = threading.Lock()
        """Held while ``programs`` is changed, since several threads may call the function."""
        self._eager = BACKEND != "nd"
        self._warned: set[str] = set()
        functools.update_wrapper(self, function)

    def explain(self, verbose: bool = False) -> str:
        """Return a report of each recording: what each pass did, and the calls and memory left.

        The memory is the peak size of live temporaries. ``verbose`` adds the calls as they
        were recorded and after each pass.
        """
        return "\n\n".join(program.explain(verbose) for program in self.programs)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "capture: a captured function cannot be copied or pickled, because its recordings "
            "belong to its own state; copy the model and the step, and capture the copy"
        )

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundMethod(self, instance)

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """Replay a recording that matches the arguments, or run the function and record it."""
        return self._call(args, options, always_check=False)

    def check(self, *args: P.args, **options: P.kwargs) -> R:
        """Call the function, and compare the replay of this call with the step itself.

        Raises CaptureError if they differ. The state is then that of the step itself.
        """
        return self._call(args, options, always_check=True)

    def _call(self, args: Any, keywords: Any, always_check: bool) -> R:
        if BACKEND != "nd":
            self._warn(f"NEEDLE_BACKEND={BACKEND} makes no kernel calls that could be recorded")
        if self._eager or current.recorder is not None:
            return self.function(*args, **keywords)
        leaves: list[Any] = []
        given = signature(args, leaves)
        key = (recording.on, given, signature(keywords, leaves) if keywords else None)
        call = StepCall(
            self.function, args, keywords, key, leaves, self._roots, self.options, always_check
        )
        try:
            return self._replay(call)
        except StaleRecordingError as stale:
            reason = stale
        if key in self._refused:
            return self.function(*args, **keywords)
        return self._record(reason, call)

    def _replay(self, call: StepCall) -> R:
        """Replay the most recent recording that matches; raise StaleRecordingError if none does."""
        reason: StaleRecordingError | None = None
        for program in reversed(self.programs):
            if program.key != call.key:
                continue
            number = program.calls + 1
            due = call.always_check or (self.options.check and number & (number - 1) == 0)
            try:
                if due and program.repeatable:
                    result: R = self._checked(program, call)
                else:
                    result = program.run(call.leaves)
            except StaleRecordingError as stale:
                reason = stale
                continue
            if program in self.programs[:-1]:
                self._keep(program)
            self._unused_recordings = 0
            self.replays += 1
            return result
        raise reason or StaleRecordingError(
            "no call repeats the arguments of an earlier one; pass numbers as Tensors"
        )

    def _keep(self, program: Program) -> None:
        """Make a program the most recently used one; the least recently used ones go."""
        with self._lock:
            others = [other for other in self.programs if other is not program]
            self.programs = [*others, program][-self.options.recordings :]

    def _checked(self, program: Program, call: StepCall) -> R:
        """Return the result of the step itself after comparing a replay with it."""
        with _recording_lock:
            result: R
            result, difference, refused = replay_and_compare(program, call)
        if difference is not None:
            self._stop()
            reason = (
                f"{difference} differs between the step and its replay though arguments and state "
                "are equal, so the step reads something outside of them; pass it as an argument or "
                "add it to state=[...]"
            )
            if program.calls > 2 or call.always_check:
                raise CaptureError(
                    f"capture: {function_name(self.function)}: results may be stale since call "
                    f"{program.checked} of {program.calls} of this recording: {reason}"
                )
            self._warn(reason)
        elif refused is not None:
            self._refuse(call, refused)
            with self._lock:
                self.programs = [other for other in self.programs if other.key != call.key]
        program.checked = program.calls
        return result

    def _record(self, stale: Exception, call: StepCall) -> R:
        if self._unused_recordings == MAX_UNUSED_RECORDINGS:
            self._stop()
            self._warn(f"every call would need a new recording: {stale}")
            return self.function(*call.args, **call.keywords)
        tried = self.recordings
        with _recording_lock:
            if self.recordings > tried:  # another thread may have recorded the step by now
                with contextlib.suppress(StaleRecordingError):
                    return self._replay(call)
            tracer = Tracer(call)
            result: R = tracer.run()
            if tracer.refusal is not None:
                self._refuse(call, tracer.refusal)
                return result
            self._unused_recordings += 1
            self.recordings += 1
            self._keep(tracer.program())
        return result

    def _stop(self) -> None:
        """Run the function eagerly from now on, and free the memory of its recordings."""
        self._eager = True
        self.programs = []
        self._refused = {}

    def _refuse(self, call: StepCall, reason: str) -> None:
        """Warn, and run calls like this one eagerly from now on."""
        self._warn(reason)
        self._refused[call.key] = call.objects
        self._unused_recordings += 1

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            warn_caller(
                f"capture: {function_name(self.function)} is not replayed, it runs eagerly: "
                f"{reason}",
                CaptureWarning,
            )


class BoundMethod(functools.partial[Any]):
    """A captured method of an object, with the attributes of the captured function."""

    func: Captured[Any, Any]

    def check(self, *args: Any, **options: Any) -> Any:
        """Call the method, and compare the replay of this call with the method itself."""
        return self.func.check(*self.args, *args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.func, name)


@overload
def capture(
    function: Callable[P, R],
    *,
    state: Any = ...,
    recordings: int = ...,
    graphs: bool = ...,
    memory: int | str | None = ...,
    exact: bool = ...,
    check: bool = ...,
) -> Captured[P, R]: ...


@overload
def capture(
    *,
    state: Any = ...,
    recordings: int = ...,
    graphs: bool = ...,
    memory: int | str | None = ...,
    exact: bool = ...,
    check: bool = ...,
) -> Callable[[Callable[P, R]], Captured[P, R]]: ...


def capture(
    function: Any = None,
    *,
    state: Any = (),
    recordings: int = 8,
    graphs: bool = True,
    memory: int | str | None = None,
    exact: bool = True,
    check: bool = True,
) -> Any:
    """Return ``function`` as a callable that records its first call and replays later ones.

    Without ``function``, return a decorator. state: the modules, optimisers, schedules, averages,
    generators and tensors that the step reads or changes, or collections of these. If ``function``
    is a module or a method of one, the module need not be listed. Arguments and state are the
    inputs of a recording. Everything else that Python computes is a constant of it.

    A recording matches calls whose Tensors, NDArrays and NumPy arrays have the same shapes,
    strides, dtypes and devices, whose other arguments are equal plain values or identical objects,
    and with equal attributes of the objects in ``state``. At most ``recordings`` of them are kept.
    Results, ``.grad`` and buffers are constants in new memory at every call.

    graphs: on a device with graphs (CUDA), launch all kernels between two host steps as one graph.
    memory: the limit on the intermediate values of a replay, in bytes, as text such as "800MB", or
    "least". To meet it, cheap kernels are called again instead of keeping their results. If that
    does not suffice, the first call raises ValueError with the smallest possible limit. exact: with
    False, all calls may round differently, to save passes over memory. In inference, batch norm is
    folded into the convolution before it, within a relative error of about 1e-5. In training on
    CUDA, batch norm takes its moments from that convolution. check: at calls 2, 4, 8, 16 and so on
    of each recording, also run the step itself from a copy of the state and compare both to the
    bit.

    Raises TypeError if ``function`` is not callable or ``state`` holds anything else, ValueError if
    ``recordings`` is below 1 or ``memory`` is not a number of bytes. A call raises CaptureError if
    the step reads an array that is neither an argument nor part of the state, if data of the host
    enters it, or if a check after the second call finds a difference. If the check of the second
    call does, a CaptureWarning says so, and the function runs eagerly from then on.
    """
    if recordings < 1:
        raise ValueError(
            f"capture: recordings must be at least 1, got {recordings}; leave it out to keep 8"
        )
    check_state(state)
    options = Options(byte_count(memory), exact, graphs=graphs, recordings=recordings, check=check)

    def captured(step: Any) -> Any:
        if not callable(step):
            raise TypeError(
                f"capture: the argument must be callable, got {type(step).__name__}; pass the step "
                "itself, not its result"
            )
        return Captured(step, state, options)

    return captured if function is None else captured(function)
