"""Intercept backend calls while a step is recorded.

Each function of a Backend instance is replaced by a wrapper that calls it and notifies the tracer.
The wrappers exist only during a recording, so eager code pays nothing. A call from another thread
is no part of the recording.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..backends.base import OPTIONAL, REQUIRED, Backend
from ..contexts import context
from ..host_steps import Recorder, current

READS = ("download", "export")
"""Backend functions that give values to the host."""
UPLOADS = ("upload", "adopt")
"""Backend functions that take values from the host."""
PACKAGE = os.path.dirname(os.path.dirname(__file__))


class Observer(Recorder, Protocol):
    """A receiver of intercepted calls."""

    def called(self, backend: Backend, name: str, args: Any, options: Any) -> bool:
        """Record a call before it runs; return True if it is deferred."""

    def used(self, name: str, args: Any, options: Any) -> None:
        """Run the deferred calls if a call outside the recording depends on them."""

    def allocated(self, handle: Any, size: int, dtype: Any) -> None:
        """Record a new buffer of ``size`` elements."""


@context
def intercept(observer: Observer, backends: Sequence[Backend]) -> Iterator[None]:
    """Report this thread's calls of ``backends`` to ``observer`` inside the context."""
    wrapped = [(backend, _functions(backend)) for backend in backends]
    for backend, names in wrapped:
        vars(backend).update({name: _wrapper(observer, backend, name) for name in names})
    current.recorder = observer
    try:
        yield
    finally:
        current.recorder = None
        for backend, names in wrapped:
            for name in names:
                vars(backend).pop(name, None)


def _functions(backend: Backend) -> set[str]:
    """Return the names of a backend's functions, without kernels that it does not have."""
    own = {name for base in type(backend).__mro__ if base is not Backend for name in vars(base)}
    return own.intersection((*REQUIRED, *OPTIONAL)).union(READS, UPLOADS, ["allocate"])


def _wrapper(observer: Observer, backend: Backend, name: str) -> Any:
    function = getattr(backend, name)

    def call(*args: Any, **options: Any) -> Any:
        if current.recorder is not observer:
            observer.used(name, args, options)
            return function(*args, **options)
        if observer.called(backend, name, args, options):
            return None
        current.recorder = None  # functions of the backend that it calls are part of this one
        try:
            result = function(*args, **options)
        finally:
            current.recorder = observer
        if name == "allocate":
            observer.allocated(result, *args, **options)
        return result

    return call


def place_in_program() -> str:
    """Return the file and line of the running user code."""
    frame: Any = inspect.currentframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}"
