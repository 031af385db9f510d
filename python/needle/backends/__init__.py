"""The registry of backends: a dict from names to ``Backend`` instances, loaded at first use.

Backends have three sources: the built-in rows below, calls of ``register(name, backend)``, and
installed packages with an entry point in the group ``needle.backends`` (``"module:factory"``). The
kernels are in the modules that the rows name. ``needle.device("name")`` and the conformance suite
call this file.
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

# Module and attribute, as in an entry point: a backend is imported when it is first used.
BUILT_IN = {
    "cpu": "needle.backends.native:load",
    "cpu_numpy": "needle.backends.numpy_backend:NumpyBackend",
    "cuda": "needle.backends.cuda:load",
    "webgpu": "needle.backends.webgpu:load",
}

_NUMBERED = re.compile(r"(cuda|webgpu):([0-9]{1,4})")
"""Matches one of several devices of a built-in backend, such as ``cuda:1``, the second GPU."""

_registered: dict[str, Backend | Factory] = {}
_loaded: dict[str, Backend] = {}
_lock = threading.RLock()


def register(name: str, backend: Backend | Factory) -> None:
    """Register ``backend`` (an instance, a class or a function without arguments) as ``name``.

    A name that exists is replaced, so that a notebook cell can be run again; existing arrays keep
    their backend. The factory runs at the first ``get``; it raises DeviceError if the device cannot
    be used here.
    """
    with _lock:
        _registered[name] = backend
        _loaded.pop(name, None)


def get(name: str) -> Backend:
    """Return the backend called ``name``, loaded at first use; the same object every time.

    Raises UnknownNameError for a name that is not registered, and DeviceError, which says what is
    missing and how to get it, for a backend that cannot be used here.
    """
    loaded = _loaded.get(name)
    if loaded is not None:
        return loaded
    with _lock:
        if name not in _loaded:
            _loaded[name] = _load(name)
        return _loaded[name]


def loaded() -> list[Backend]:
    """Return the loaded backends, except those that a later registration has replaced."""
    return list(_loaded.values())


def names() -> list[str]:
    """Return every registered name, built-in ones first, usable here or not."""
    return list(dict.fromkeys([*BUILT_IN, *_registered, *_installed()]))


def available(name: str) -> bool:
    """Return True if ``get(name)`` succeeds; UnknownNameError for a name that is not registered."""
    return why(name) is None


def why(name: str) -> str | None:
    """Return the reason why the backend ``name`` cannot be used here, or None if it can."""
    try:
        get(name)
    except DeviceError as error:
        return str(error)
    return None


def _load(name: str) -> Backend:
    try:
        made = _found(name)
        backend = made if isinstance(made, Backend) else made()
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


def _found(name: str) -> Backend | Factory:
    """Return a backend's instance or factory; import its module."""
    if name in _registered:
        return _registered[name]
    numbered = _NUMBERED.fullmatch(name)
    family = numbered[1] if numbered else name
    if family in BUILT_IN:
        module, _, factory = BUILT_IN[family].partition(":")
        load: Any = getattr(importlib.import_module(module), factory)
        return partial(load, int(numbered[2])) if numbered else load
    installed = _installed()
    if name not in installed:
        raise unknown_name("device", name, names())
    found: Backend | Factory = installed[name]()
    return found


def _installed() -> dict[str, Callable[[], Any]]:
    """Return the loaders of the backends that installed packages declare."""
    # Imported late: it takes a tenth of the time of ``import needle``, and few programs need it.
    from importlib.metadata import entry_points

    return {point.name: point.load for point in entry_points(group=GROUP)}
