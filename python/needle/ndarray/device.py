"""BackendDevice: a backend under its name, and the functions that give the known devices.

Arrays are made through ``BackendDevice.array_type``, which ``array`` sets, so that this file stays
below it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .. import backends
from ..backends.base import OPTIONAL, REQUIRED, SERVICES, Backend
from ..errors import DeviceError, UnknownNameError

DTypeLike = Any

INTERFACE = frozenset((*REQUIRED, *OPTIONAL, *SERVICES))
"""What every device has; asking a disabled one for it is told why it is disabled."""


class BackendDevice:
    """A place for arrays: ``name`` and the backend ``mod`` (None when it cannot be used here).

    Devices compare, hash and pickle by name. Unknown attributes are the backend's, such as
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
            self.backend = mod  # an attribute: every kernel call reads it

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, BackendDevice) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{self.name}()"

    def __getattr__(self, name: str) -> Any:
        if name == "backend" and "mod" in vars(self):
            raise DeviceError(self.why() or f"{self.name}: this device has no backend")
        # Through __dict__: copy and pickle ask for attributes before ``mod`` exists.
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
        """Whether arrays can be made on this device."""
        return self.mod is not None

    def why(self) -> str | None:
        """The reason why this device cannot be used, or None when it can."""
        if self.mod is not None:
            return None
        return self._reason or f"{self.name}: this device has no backend; register one by this name"

    def randn(self, *shape: int, dtype: DTypeLike = "float32") -> Any:
        """Standard normal numbers from the host's global ``np.random`` stream."""
        return self._make(np.random.randn(*shape), dtype)

    def rand(self, *shape: int, dtype: DTypeLike = "float32") -> Any:
        """Uniform numbers in [0, 1) from the host's global ``np.random`` stream."""
        return self._make(np.random.rand(*shape), dtype)

    def one_hot(self, n: int, i: Any, dtype: DTypeLike = "float32") -> Any:
        """``i``'s shape + (n,): 1 in column ``i``, 0 elsewhere."""
        return self._make(np.eye(n)[np.asarray(i).astype(np.int64)], dtype)

    def empty(self, shape: Any, dtype: DTypeLike = "float32") -> Any:
        """An array with undefined contents."""
        return self.array_type.make(shape, device=self, dtype=dtype)

    def full(self, shape: Any, fill_value: Any, dtype: DTypeLike = "float32") -> Any:
        """An array of one value."""
        array = self.empty(shape, dtype)
        array.fill(fill_value)
        return array

    def zeros(self, *shape: Any, dtype: DTypeLike = "float32") -> Any:
        """An array of zeros; the shape as one tuple or as ints."""
        return self.full(shape[0] if len(shape) == 1 else shape, 0, dtype)

    def ones(self, *shape: Any, dtype: DTypeLike = "float32") -> Any:
        """An array of ones; the shape as one tuple or as ints."""
        return self.full(shape[0] if len(shape) == 1 else shape, 1, dtype)

    def _make(self, source: Any, dtype: DTypeLike) -> Any:
        return self.array_type(source, device=self, dtype=dtype)


Device = BackendDevice


def device(name: str | BackendDevice | None = None) -> BackendDevice:
    """The device of that name; a device is returned as it is, None means the default.

    A device that is known but cannot be used here is returned disabled (``why()`` tells the
    reason); UnknownNameError lists the known names for any other.
    """
    if isinstance(name, BackendDevice):
        return name
    if name is None:
        return default_device()
    name = str(name).removesuffix("()")
    try:
        return BackendDevice(name, backends.get(name))
    except DeviceError as error:
        return BackendDevice(name, None, str(error))


def _restore(name: str) -> BackendDevice:
    """Unpickles a device; one whose backend is not registered in this process is disabled."""
    try:
        return device(name)
    except UnknownNameError as error:
        return BackendDevice(name, None, str(error))


def cpu() -> BackendDevice:
    """The native C++ backend; disabled, with ``why()``, where the compiled module is missing."""
    return device("cpu")


def cuda(index: int = 0) -> BackendDevice:
    """A GPU, the first unless told otherwise; disabled, with ``why()``, where there is none."""
    return device(f"cuda:{index}" if index else "cuda")


def cpu_numpy() -> BackendDevice:
    """The NumPy backend, always there."""
    return device("cpu_numpy")


def default_device() -> BackendDevice:
    """Where arrays go when no device is named: ``cpu_numpy()``."""
    return cpu_numpy()


def all_devices() -> list[BackendDevice]:
    """cpu, cuda, cpu_numpy and every other registered backend, usable here or not."""
    first = ["cpu", "cuda", "cpu_numpy"]
    return [device(name) for name in dict.fromkeys(first + backends.names())]
