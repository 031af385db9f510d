"""Listening at the seam between arrays and backends, for as long as a step is recorded.

Each function of a backend is shadowed, on the one Backend instance, by one that calls it and tells
the recorder; so there is no cost where nothing is recorded. Other threads are not listened to.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..backends.base import OPTIONAL, REQUIRED, Backend
from ..host_steps import current

LOOKS = {
    "download": "the values of an array are read",
    "export": "an array is shared with NumPy",
    "upload": "data from the host is uploaded",
    "adopt": "memory of the host is adopted",
}
"""Functions by which values cross to or from the host, and what to say of them."""
KERNELS = [name for name in (*REQUIRED, *OPTIONAL) if name not in {*LOOKS, "allocate"}]
PACKAGE = os.path.dirname(os.path.dirname(__file__))


class Listener(Protocol):
    """Who is told."""

    def host(self, function: Any, args: Any, options: Any, changes_state: bool) -> Any:
        """Of a host step: it calls the function."""

    def called(self, backend: Backend, kernel: Any, name: str, args: Any, options: Any) -> None:
        """Of a kernel, before it runs."""

    def allocated(self, handle: Any, size: int, dtype: Any) -> None:
        """Of a new buffer."""

    def refuse(self, reason: str) -> None:
        """Of what no replay can repeat."""


@contextlib.contextmanager
def listening(listener: Listener, backends: Sequence[Backend]) -> Iterator[None]:
    """Shadows the functions of ``backends``; this thread's calls are told to ``listener``."""
    shadows = [(backend, _shadows(listener, backend)) for backend in backends]
    for backend, functions in shadows:
        vars(backend).update(functions)
    current.recorder = listener
    try:
        yield
    finally:
        current.recorder = None
        for backend, functions in shadows:
            for name in functions:
                vars(backend).pop(name, None)


def _shadows(listener: Listener, backend: Backend) -> dict[str, Any]:
    own = {name for base in type(backend).__mro__ if base is not Backend for name in vars(base)}
    kernels = {name: _kernel(listener, backend, name) for name in KERNELS if name in own}
    looks = {name: _look(listener, backend, name) for name in LOOKS}
    return {**kernels, **looks, "allocate": _allocate(listener, backend)}


def _kernel(listener: Listener, backend: Backend, name: str) -> Any:
    kernel = getattr(backend, name)

    def call(*args: Any, **options: Any) -> Any:
        if current.recorder is listener:
            listener.called(backend, kernel, name, args, options)
        return kernel(*args, **options)

    return call


def _look(listener: Listener, backend: Backend, name: str) -> Any:
    function = getattr(backend, name)

    def call(*args: Any, **options: Any) -> Any:
        if current.recorder is listener:
            listener.refuse(f"{LOOKS[name]}, {_caller()}")
        return function(*args, **options)

    return call


def _allocate(listener: Listener, backend: Backend) -> Any:
    allocate = backend.allocate

    def call(size: int, dtype: Any) -> Any:
        handle = allocate(size, dtype)
        if current.recorder is listener:
            listener.allocated(handle, size, dtype)
        return handle

    return call


def _caller() -> str:
    """The line of the user's code that is running."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}"


class HostNumber(float):
    """What a host step returned: a step may hand it on, but must not compute with it."""

    __hash__ = float.__hash__


def _noticed(name: str) -> Any:
    plain = getattr(float, name)

    def operator(self: float, *others: Any) -> Any:
        recorder: Any = current.recorder
        if recorder is not None:
            recorder.refuse(f"a number of a host step is used, {_caller()}")
        return plain(self, *others)

    return operator


for _name in (
    *("abs", "add", "bool", "divmod", "eq", "float", "floordiv", "format", "ge", "gt", "int"),
    *("le", "lt", "mod", "mul", "ne", "neg", "pow", "radd", "repr", "rfloordiv", "rmul", "rpow"),
    *("round", "rsub", "rtruediv", "sub", "truediv", "trunc"),
):
    setattr(HostNumber, f"__{_name}__", _noticed(f"__{_name}__"))
