"""Engines: they prepare batches in the calling thread, in threads, or in worker processes.

engine.py is their interface; inline.py, threads.py and processes.py are the three engines. The
other files belong to processes.py: the work queue, the slots for batches, the processes. A file is
imported when its engine is first used. loader/ makes engines by name.
"""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import unknown_name
from ..batching.pipeline import Pipeline
from .engine import Engine

_CLASSES = {"inline": "InlineEngine", "processes": "ProcessEngine", "threads": "ThreadsEngine"}
_OPTIONS = {"processes": ("pin",)}


def engine_names() -> list[str]:
    """Return the names that ``make_engine`` takes."""
    return list(_CLASSES)


def is_picklable(pipeline: Pipeline) -> bool:
    """Return True if a pipeline can be pickled for worker processes."""
    try:
        importlib.import_module(".pickling", __name__).dumps(pipeline, [])
    except Exception:
        return False
    return True


def make_engine(
    name: str, pipeline: Pipeline, *, workers: int, prefetch: int, **options: Any
) -> Engine:
    """Return an engine of this name, with those of the options that it has.

    Raises UnknownNameError for any other name.
    """
    if name not in _CLASSES:
        raise unknown_name("engine", name, engine_names())
    engine = getattr(importlib.import_module(f".{name}", __name__), _CLASSES[name])
    chosen = {key: options[key] for key in _OPTIONS.get(name, ()) if key in options}
    made: Engine = engine(pipeline, workers=workers, prefetch=prefetch, **chosen)
    return made
