"""``BackendDevice``, functions that return the known devices, and the default device.

A device makes arrays of ``BackendDevice.array_type``, which ``array`` sets.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from .. import backends
from ..backends.base import OPTIONAL, REQUIRED, SERVICES, Backend
from ..contexts import Decorator, uninterrupted
from ..errors import DeviceError, UnknownNameError
from ..torch_names import PointingFunction

DTypeLike = Any

INTERFACE = frozenset((*REQUIRED, *OPTIONAL, *SERVICES))
"""The functions of every backend; on a disabled device they raise DeviceError with the reason."""


class BackendDevice:
    """A device: its ``name`` and its backend ``mod`` (None if the backend cannot be used here).

    Devices compare, hash and pickle by name. Other attributes are the backend's, such as
    ``device.memory_stats()`` and ``device.empty_cache()``.
    """

    array_type: ClassVar[Any]

    backend: Backend
    """The backend; DeviceError, with the reason, when this device cannot be used."""

    def __init__(self, name: str, mod: Backend | None, reason: str | None = None) -> None:
        self.name = name
        self.mod = mod
        self._reason = reason
        if mod is not None:
            self.backend = mod  # an attribute, because every kernel call reads it

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, BackendDevice) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{self.name}()"

    def __getattr__(self, name: str) -> Any:
        if name == "backend" and "mod" in vars(self):
            raise DeviceError(self.why() or f"{self.name}: this device has no backend")
        # copy and pickle look up attributes before __init__ has set ``mod``.
        if self.__dict__.get("mod") is None and (name not in INTERFACE or "mod" not in vars(self)):
            raise AttributeError(f"device {self.__dict__.get('name')!r} has no attribute {name!r}")
        return getattr(self.backend, name)

    def __copy__(self) -> BackendDevice:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> BackendDevice:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.name,)

    def enabled(self) -> bool:
        """Return True if arrays can be made on this device."""
        return self.mod is not None

    def why(self) -> str | None:
        """Return the reason why this device cannot be used, or None if it can."""
        if self.mod is not None:
            return None
        return self._reason or f"{self.name}: this device has no backend; register one by this name"

    def randn(self, *shape: int, dtype: DTypeLike = "float32") -> Any:
        """Return standard normal numbers from the host's global ``np.random`` stream."""
        return self._make(np.random.randn(*shape), dtype)

    def rand(self, *shape: int, dtype: DTypeLike = "float32") -> Any:
        """Return uniform numbers in [0, 1) from the host's global ``np.random`` stream."""
        return self._make(np.random.rand(*shape), dtype)

    def one_hot(self, n: int, i: Any, dtype: DTypeLike = "float32") -> Any:
        """Return an array of shape ``i.shape + (n,)``: 1 in column ``i``, 0 elsewhere."""
        return self._make(np.eye(n)[np.asarray(i).astype(np.int64)], dtype)

    def empty(self, shape: Any, dtype: DTypeLike = "float32") -> Any:
        """Return an array with undefined contents."""
        return self.array_type.make(shape, device=self, dtype=dtype)

    def full(self, shape: Any, fill_value: Any, dtype: DTypeLike = "float32") -> Any:
        """Return an array of one value."""
        array = self.empty(shape, dtype)
        array.assign(fill_value, new=True)
        return array

    def zeros(self, *shape: Any, dtype: DTypeLike = "float32") -> Any:
        """Return an array of zeros; the shape is one tuple or several ints."""
        return self.full(shape[0] if len(shape) == 1 else shape, 0, dtype)

    def ones(self, *shape: Any, dtype: DTypeLike = "float32") -> Any:
        """Return an array of ones; the shape is one tuple or several ints."""
        return self.full(shape[0] if len(shape) == 1 else shape, 1, dtype)

    def _make(self, source: Any, dtype: DTypeLike) -> Any:
        return self.array_type(source, device=self, dtype=dtype)


Device = BackendDevice


def device(name: str | BackendDevice | None = None) -> BackendDevice:
    """Return the device called ``name``; a device is returned as is, None means the default.

    A known device that cannot be used here is returned disabled (``why()`` returns the reason).
    UnknownNameError, which lists the known names, is raised for any other name.
    """
    if isinstance(name, BackendDevice):
        return name
    if name is None:
        return default_device()
    name = str(name).removesuffix("()")
    try:
        backend = backends.get(name)
    except DeviceError as error:
        return BackendDevice(name, None, str(error))
    known = _latest.get(name)
    if known is None or known.mod is not backend:
        known = _latest[name] = BackendDevice(name, backend)
    return known


_latest: dict[str, BackendDevice] = {}
"""The device last made for each name. Operations on one device compare identities first."""


def _restore(name: str) -> BackendDevice:
    """Unpickle a device; it is disabled if its backend is not registered in this process."""
    try:
        return device(name)
    except UnknownNameError as error:
        return BackendDevice(name, None, str(error))


def cpu() -> BackendDevice:
    """Return the C++ backend's device; it is disabled if the compiled module is missing."""
    return device("cpu")


@PointingFunction
def cuda(index: int = 0) -> BackendDevice:
    """Return a GPU, by default the first; it is disabled if it does not exist (see ``why()``)."""
    return device(f"cuda:{index}" if index else "cuda")


def webgpu(index: int = 0) -> BackendDevice:
    """Return a WebGPU adapter, by default the best; it is disabled if it does not exist."""
    return device(f"webgpu:{index}" if index else "webgpu")


def cpu_numpy() -> BackendDevice:
    """Return the device of the NumPy backend, which is always usable."""
    return device("cpu_numpy")


def all_devices() -> list[BackendDevice]:
    """Return cpu, cuda, cpu_numpy and every other registered device, usable here or not."""
    first = ["cpu", "cuda", "cpu_numpy"]
    return [device(name) for name in dict.fromkeys(first + backends.names())]


def usable_device(where: Any = None) -> BackendDevice:
    """Return ``device(where)``; raise DeviceError, with the reason, if it cannot be used here."""
    found = default_device() if where is None else device(where)
    found.backend  # noqa: B018 - raises the error
    return found


# ---- the default device ----------------------------------------------------------------------


def default_device() -> BackendDevice:
    """Return the device of arrays that are made without ``device=``.

    That is ``cpu()`` where the compiled module is usable, else ``cpu_numpy()``, unless
    ``set_default_device`` has chosen another.
    """
    chosen = (_context.choice or set_default_device.latest).where
    return device(automatic_device() if chosen is None else chosen)


@lru_cache(None)
def automatic_device() -> str:
    """Return the name of the host's best device, which is determined once per process."""
    return "cpu" if backends.available("cpu") else "cpu_numpy"


class _Choice:
    """A choice of the default device: a device or its name, or None for the automatic choice.

    ``before``: set when the choice belongs to a context; the choice that the context replaces.
    """

    __slots__ = ("before", "where")

    def __init__(self, where: str | BackendDevice | None) -> None:
        self.where = where
        self.before: _Choice | None = None


class _Context(threading.local):
    choice: _Choice | None = None


_context = _Context()
_choosing = threading.Lock()


class set_default_device(Decorator):
    """Make ``where`` (a device or its name) the default device; None restores the automatic choice.

    The setting takes effect at the call and applies to the whole process. As a context manager it
    applies to this thread alone, and the previous default device is restored at exit, even after an
    exception:

    >>> with set_default_device("cpu_numpy"):
    ...     default_device()
    cpu_numpy()

    As a decorator it applies while the function runs.

    A call inside the context, without its own ``with``, applies until the context ends. Between the
    call and the entry of ``with`` the setting applies to the process: other threads can see it, and
    a Ctrl-C at this moment leaves it set.

    Raises UnknownNameError for an unknown name and DeviceError for a device that cannot be used
    here; the default device is then unchanged.
    """

    latest: ClassVar[_Choice] = _Choice(None)
    """The choice of the process."""

    def __init__(self, where: str | BackendDevice | None) -> None:
        if where is not None:
            usable_device(where)
        self._choice, self._outer = _Choice(where), _context.choice
        if self._outer is not None:
            _context.choice = self._choice
            return
        with _choosing:
            self._former: _Choice | None = set_default_device.latest
            set_default_device.latest = self._choice

    def __call__(self, function: Any) -> Any:
        """Return the function inside the context; nothing else keeps the device."""
        if self._outer is None:
            self._leave_process()
        elif _context.choice is self._choice:  # else the context it was made in has ended
            _context.choice = self._outer
        return super().__call__(function)

    def _recreate_cm(self) -> set_default_device:
        made = object.__new__(set_default_device)  # __init__ would set the process's default
        made._choice, made._outer, made._former = _Choice(self._choice.where), _context.choice, None
        return made

    @uninterrupted
    def __enter__(self) -> BackendDevice:
        if self._outer is None:
            self._leave_process()
        _context.choice = self._choice
        return default_device()

    @uninterrupted
    def __exit__(self, *error: object) -> None:
        _context.choice = self._outer

    def _leave_process(self) -> None:
        """Remove this choice from the process's choices; others may have been made since."""
        with _choosing:
            self._choice.before = self._former
            while (before := set_default_device.latest.before) is not None:
                set_default_device.latest = before
