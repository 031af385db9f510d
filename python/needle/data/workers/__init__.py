"""Where batches are prepared: in the caller's thread, in threads, or in worker processes.

An engine's file is imported when one is first asked for; another package's registers here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ...errors import unknown_name
from .engine import Engine

_FILES = {
    "inline": ("inline", "InlineEngine"),
    "threads": ("threads", "ThreadsEngine"),
    "processes": ("processes", "ProcessEngine"),
}
_registered: dict[str, Callable[..., Engine]] = {}
_OWN_OPTIONS = {"processes": ("start_method", "restart_workers", "pin")}


def engine_names() -> list[str]:
    """The names that ``make_engine`` knows."""
    return sorted({*_FILES, *_registered})


def register_engine(name: str, make: Callable[..., Engine]) -> None:
    """``DataLoader(engine=name)`` makes its engine by ``make(pipeline, workers=, prefetch=)``."""
    _registered[name] = make


def make_engine(name: str, pipeline: Any, *, workers: int, prefetch: int, **own: Any) -> Engine:
    """An engine of this name; of ``own`` it gets the options that concern it.

    UnknownNameError for a name that nobody registered.
    """
    options = {key: own[key] for key in _OWN_OPTIONS.get(name, ()) if key in own}
    return _find(name)(pipeline, workers=workers, prefetch=prefetch, **options)


def _find(name: str) -> Callable[..., Engine]:
    if name in _registered:
        return _registered[name]
    if name not in _FILES:
        raise unknown_name("engine", name, engine_names())
    file, class_name = _FILES[name]
    found: Callable[..., Engine] = getattr(
        importlib.import_module(f".{file}", __name__), class_name
    )
    return found
