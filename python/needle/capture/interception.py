"""Interception of backend calls while a step is recorded.

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
from ..host_steps import current

READS = ("download", "export")
"""Backend functions that give values to the host."""
UPLOADS = ("upload", "adopt")
"""Backend functions that take values from the host."""
KERNELS = [n for n in (*REQUIRED, *OPTIONAL) if n not in {*READS, *UPLOADS, "allocate"}]
PACKAGE = os.path.dirname(os.path.dirname(__file__))


class Observer(Protocol):
    """A receiver of intercepted calls."""

    def host(self, function: Any, args: Any, options: Any, changes_state: bool) -> Any:
        """Call the function of a host step, and record the call."""

    def read_option(self, holder: dict[str, Any], name: str) -> None:
        """Record that the step depends on an option of an optimiser."""

    def called(self, backend: Backend, name: str, args: Any, options: Any) -> bool:
        """Record a kernel call before it runs; return True if it is deferred."""

    def used(self, name: str, args: Any, options: Any) -> None:
        """Run the deferred calls if a call outside the recording depends on them."""

    def allocated(self, handle: Any, size: int, dtype: Any) -> None:
        """Record a new buffer of ``size`` elements."""

    def uploaded(self) -> None:
        """Raise CaptureError, since data enters that a replay would not renew."""

    def refuse(self, reason: str) -> None:
        """Record that the step does something that a replay cannot repeat."""


@context
def intercept(observer: Observer, backends: Sequence[Backend]) -> Iterator[None]:
    """Report this thread's calls of ``backends`` to ``observer`` inside the context."""
    wrappers = [(backend, _wrappers(observer, backend)) for backend in backends]
    for backend, functions in wrappers:
        vars(backend).update(functions)
    current.recorder = observer
    try:
        yield
    finally:
        current.recorder = None
        for backend, functions in wrappers:
            for name in functions:
                vars(backend).pop(name, None)


def _wrappers(observer: Observer, backend: Backend) -> dict[str, Any]:
    own = {name for base in type(backend).__mro__ if base is not Backend for name in vars(base)}
    kernels = {name: _kernel(observer, backend, name) for name in KERNELS if name in own}
    transfers = {name: _transfer(observer, backend, name) for name in (*READS, *UPLOADS)}
    return {**kernels, **transfers, "allocate": _allocate(observer, backend)}


def _kernel(observer: Observer, backend: Backend, name: str) -> Any:
    kernel = getattr(backend, name)

    def call(*args: Any, **options: Any) -> Any:
        if current.recorder is not observer:
            observer.used(name, args, options)
            return kernel(*args, **options)
        if observer.called(backend, name, args, options):
            return None
        current.recorder = None  # backend functions called within a kernel are part of that kernel
        try:
            return kernel(*args, **options)
        finally:
            current.recorder = observer

    return call


def _transfer(observer: Observer, backend: Backend, name: str) -> Any:
    function = getattr(backend, name)

    def call(*args: Any, **options: Any) -> Any:
        if current.recorder is not observer:
            observer.used(name, args, options)
        elif name in READS:
            observer.refuse(
                "the step reads the values of an array, as numpy(), item(), bool() and x[mask] do, "
                f"{place_in_program()}"
            )
        else:
            observer.uploaded()
        return function(*args, **options)

    return call


def _allocate(observer: Observer, backend: Backend) -> Any:
    allocate = backend.allocate

    def call(size: int, dtype: Any) -> Any:
        handle = allocate(size, dtype)
        if current.recorder is observer:
            observer.allocated(handle, size, dtype)
        return handle

    return call


def place_in_program() -> str:
    """Return the file and line of the running user code."""
    frame: Any = inspect.currentframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}"
