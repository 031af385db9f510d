"""Interception of backend calls while a step is recorded.

Each function of a Backend instance is replaced by a wrapper that calls it and notifies the tracer.
The wrappers exist only during a recording, so eager code pays nothing. Calls from other threads are
not reported.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..autograd import Value
from ..backends.base import OPTIONAL, REQUIRED, Backend
from ..host_steps import current

HOST_TRANSFERS = {
    "download": "the step reads the values of an array",
    "export": "the step shares an array with NumPy",
    "upload": "the step uploads data from the host",
    "adopt": "the step uses an array over host memory",
}
"""Backend functions that copy values to or from the host, with the phrase for the warning."""
KERNELS = [name for name in (*REQUIRED, *OPTIONAL) if name not in {*HOST_TRANSFERS, "allocate"}]
PACKAGE = os.path.dirname(os.path.dirname(__file__))


class Observer(Protocol):
    """A receiver of intercepted calls."""

    def host(self, function: Any, args: Any, options: Any, changes_state: bool) -> Any:
        """Call the function of a host step, and record the call."""

    def called(self, backend: Backend, name: str, args: Any, options: Any) -> bool:
        """Record a kernel call before it runs; return True if it is deferred."""

    def used(self, name: str, args: Any, options: Any) -> None:
        """Run the deferred calls if a call outside the recording depends on them."""

    def allocated(self, handle: Any, size: int, dtype: Any) -> None:
        """Record a new buffer of ``size`` elements."""

    def read_grad(self, tensor: Value) -> None:
        """Record that the step reads a ``.grad`` that it has not assigned."""

    def refuse(self, reason: str) -> None:
        """Record that the step does something that a replay cannot repeat."""


@contextlib.contextmanager
def intercept(observer: Observer, backends: Sequence[Backend]) -> Iterator[None]:
    """Report this thread's calls of ``backends`` to ``observer`` inside the context."""
    wrappers = [(backend, _wrappers(observer, backend)) for backend in backends]
    for backend, functions in wrappers:
        vars(backend).update(functions)
    current.recorder = observer
    Value.grad = _WatchedGrad(observer)
    try:
        yield
    finally:
        current.recorder = None
        Value.grad = None
        for backend, functions in wrappers:
            for name in functions:
                vars(backend).pop(name, None)


class _WatchedGrad:
    """A descriptor of ``grad`` in a recording, which reports reads before the first assignment.

    It does not change the values that other threads read and write.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.assigned: set[int] = set()
        """Ids of tensors instead of references, which would keep the step's results alive."""

    def __get__(self, tensor: Value | None, kind: Any = None) -> Any:
        if tensor is None:
            return None
        if current.recorder is self.observer and id(tensor) not in self.assigned:
            self.observer.read_grad(tensor)
        return vars(tensor).get("grad")

    def __set__(self, tensor: Value, grad: Any) -> None:
        if current.recorder is self.observer:
            self.assigned.add(id(tensor))
        vars(tensor)["grad"] = grad


def _wrappers(observer: Observer, backend: Backend) -> dict[str, Any]:
    own = {name for base in type(backend).__mro__ if base is not Backend for name in vars(base)}
    kernels = {name: _kernel(observer, backend, name) for name in KERNELS if name in own}
    looks = {name: _transfer(observer, backend, name) for name in HOST_TRANSFERS}
    return {**kernels, **looks, "allocate": _allocate(observer, backend)}


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
        if current.recorder is observer:
            observer.refuse(f"{HOST_TRANSFERS[name]}, {_caller()}")
        else:
            observer.used(name, args, options)
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


def _caller() -> str:
    """Return the file and line of the running user code."""
    frame: Any = inspect.currentframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno}"


class HostNumber(float):
    """The float returned by a host step, which a step may return but not compute with."""

    __hash__ = float.__hash__


def _refused(name: str) -> Any:
    plain = getattr(float, name)

    def operator(self: float, *others: Any) -> Any:
        recorder: Any = current.recorder
        if recorder is not None:
            recorder.refuse(f"the step computes with a number of a host step, {_caller()}")
        return plain(self, *others)

    return operator


for _name in (
    *("abs", "add", "bool", "divmod", "eq", "float", "floordiv", "format", "ge", "gt", "int"),
    *("le", "lt", "mod", "mul", "ne", "neg", "pow", "radd", "repr", "rfloordiv", "rmul", "rpow"),
    *("round", "rsub", "rtruediv", "sub", "truediv", "trunc"),
):
    setattr(HostNumber, f"__{_name}__", _refused(f"__{_name}__"))
