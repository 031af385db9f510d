"""Host steps: functions that a captured training step calls again at every replay.

What they do cannot be a list of kernel calls: they draw random numbers, look at labels, upload
host data, or (optimisers, schedules) compute with numbers that change from step to step. Floors
above mark them with ``host_step``; ``needle.capture`` sets ``current.recorder`` while it records.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")


class Recorder(Protocol):
    """Who records the step that runs in this thread."""

    def host(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        changes_state: bool,
    ) -> Any:
        """Calls ``function`` and notes that a replay has to call it again."""


class _Current(threading.local):
    recorder: Recorder | None = None


current = _Current()


@overload
def host_step(function: Callable[P, R]) -> Callable[P, R]: ...


@overload
def host_step(*, changes_state: bool) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def host_step(function: Callable[..., Any] | None = None, *, changes_state: bool = False) -> Any:
    """Decorator: outside of a recording the function is as it was.

    ``changes_state``: it gives parameters, buffers or gradients of a model other arrays.
    """

    def mark(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def call(*args: Any, **options: Any) -> Any:
            recorder = current.recorder
            if recorder is None:
                return inner(*args, **options)
            return recorder.host(inner, args, options, changes_state)

        return call

    return mark if function is None else mark(function)
