"""Host steps: functions that a captured training step calls again at every replay.

A host step cannot be recorded as a list of kernel calls, because it draws random numbers, reads
labels, uploads host data, or (in optimisers and schedules) uses numbers that change from step to
step. Higher floors mark such functions with ``host_step``. ``needle.capture`` sets
``current.recorder`` while it records.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")


class Recorder(Protocol):
    """The object that records the step running in this thread."""

    def host(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        changes_state: bool,
    ) -> Any:
        """Call ``function`` and record that a replay has to call it again."""

    def read_option(self, holder: dict[str, Any], name: str) -> None:
        """Record that the step reads an option or a Counter, on which a replay then depends."""


class _Current(threading.local):
    recorder: Recorder | None = None


current = _Current()


class Counter:
    """An int attribute that host steps change; a captured step that reads it depends on it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._name not in vars(instance):
            raise AttributeError(
                f"{type(instance).__name__!r} object has no attribute {self._name!r}"
            )
        if current.recorder is not None:
            current.recorder.read_option(vars(instance), self._name)
        return vars(instance)[self._name]

    def __set__(self, instance: Any, count: int) -> None:
        vars(instance)[self._name] = count


@overload
def host_step(function: Callable[P, R]) -> Callable[P, R]: ...


@overload
def host_step(*, changes_state: bool) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def host_step(function: Callable[..., Any] | None = None, *, changes_state: bool = False) -> Any:
    """Mark a function as a host step; without a recording it behaves as before.

    ``changes_state``: the function assigns new arrays to parameters, buffers or gradients of a
    model.
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
