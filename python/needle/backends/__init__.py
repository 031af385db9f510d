"""The registry of backends: names to ``Backend`` instances, loaded at first use.

Backends come from three places: the built-in rows below, ``register(name, backend)`` calls, and
installed packages that declare an entry point in the group ``needle.backends`` (value
``"module:factory"``). The kernels themselves are in the modules that the rows name. Called by the
array floor (``needle.device("name")``) and by the conformance suite.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import DeviceError, unknown_name
from .base import Backend, View, provides

__all__ = ["Backend", "View", "available", "get", "loaded", "names", "provides", "register", "why"]

GROUP = "needle.backends"

Factory = Callable[[], Backend]

# Named as entry points are, so that nothing is imported before a name is asked for.
BUILT_IN = {
    "cpu": "needle.backends.native:load",
    "cpu_numpy": "needle.backends.numpy_backend:NumpyBackend",
    "cuda": "needle.backends.cuda:load",
}

_NUMBERED = re.compile(r"(cuda):([0-9]{1,4})")
"""One of several devices of a built-in backend, such as the second GPU, ``cuda:1``."""

_registered: dict[str, Backend | Factory] = {}
_loaded: dict[str, Backend] = {}
_lock = threading.RLock()


def register(name: str, backend: Backend | Factory) -> None:
    """Makes ``backend`` (an instance, a class or a function without arguments) known as ``name``.

    A name that is already taken is replaced, so that a notebook cell can be run again; arrays that
    exist keep the backend they were made with. The factory runs at the first ``get``; it raises
    DeviceError when the device cannot be used here.
    """
    with _lock:
        _registered[name] = backend
        _loaded.pop(name, None)


def get(name: str) -> Backend:
    """The backend called ``name``, loaded at first use; the same object every time.

    Raises UnknownNameError for a name nobody registered, DeviceError (what is missing and how to
    get it) for one that is known but cannot be used here.
    """
    loaded = _loaded.get(name)
    if loaded is not None:
        return loaded
    with _lock:
        if name not in _loaded:
            _loaded[name] = _load(name)
        return _loaded[name]


def loaded() -> list[Backend]:
    """The backends that are in use, those of arrays under a replaced name not among them."""
    return list(_loaded.values())


def names() -> list[str]:
    """Every known name, built-in ones first, whether usable here or not."""
    return list(dict.fromkeys([*BUILT_IN, *_registered, *_installed()]))


def available(name: str) -> bool:
    """Whether ``get(name)`` would succeed; UnknownNameError for a name nobody registered."""
    return why(name) is None


def why(name: str) -> str | None:
    """The reason why the backend ``name`` cannot be used here, or None when it can."""
    try:
        get(name)
    except DeviceError as error:
        return str(error)
    return None


def _load(name: str) -> Backend:
    find = _finder(name)
    try:
        made = find()
        backend = made if isinstance(made, Backend) else made()
    except DeviceError:
        raise
    except (ImportError, AttributeError, OSError) as error:
        raise DeviceError(
            f"{name}: the backend must be importable, got {type(error).__name__}: {error}; "
            "install what is missing, or reinstall the package that provides this backend"
        ) from error
    if not isinstance(backend, Backend):
        raise DeviceError(
            f"{name}: a backend must be an instance of needle.backends.Backend, "
            f"got {type(backend).__name__}; register an instance, a subclass or a factory"
        )
    return backend


def _finder(name: str) -> Callable[[], Backend | Factory]:
    """What imports the backend's module, where it has one, and gives the instance or factory."""
    if name in _registered:
        return lambda: _registered[name]
    if name in BUILT_IN:
        return lambda: _built_in(name)
    if (numbered := _NUMBERED.fullmatch(name)) is not None:
        return lambda: partial(_built_in(numbered[1]), int(numbered[2]))
    installed = _installed()
    if name not in installed:
        raise unknown_name("device", name, names())
    return installed[name]


def _built_in(name: str) -> Any:
    module, _, factory = BUILT_IN[name].partition(":")
    return getattr(importlib.import_module(module), factory)


def _installed() -> dict[str, Callable[[], Any]]:
    """The loaders of the backends that installed packages declare."""
    # Imported here: it takes a tenth of the time that ``import needle`` takes, and few ask.
    from importlib.metadata import entry_points

    return {point.name: point.load for point in entry_points(group=GROUP)}
