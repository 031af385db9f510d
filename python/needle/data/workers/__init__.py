"""Engines, which prepare batches in the calling thread, in threads or in worker processes.

engine.py defines their interface; inline.py, threads.py and processes.py are the three engines.
The other files implement the work queue, the ring buffer and the worker processes for
processes.py. The file of an engine is imported when the engine is first used. loader/ creates
engines by name.
"""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import unknown_name
from ..batching.pipeline import Pipeline
from .engine import Engine

_CLASSES = {"inline": "InlineEngine", "processes": "ProcessEngine", "threads": "ThreadsEngine"}


def engine_names() -> list[str]:
    """Return the names that ``make_engine`` accepts."""
    return list(_CLASSES)


def is_picklable(pipeline: Pipeline) -> bool:
    """Return True if a pipeline can be pickled for worker processes."""
    try:
        importlib.import_module(".pickling", __name__).dumps(pipeline, [])
    except Exception:
        return False
    return True


def make_engine(
    name: str, pipeline: Pipeline, *, workers: int, prefetch: int, pin: Any = None
) -> Engine:
    """Return a new engine. pin: of processes, see ``ProcessEngine``; the others need none.

    Raises UnknownNameError if there is no engine of this name.
    """
    if name not in _CLASSES:
        raise unknown_name("engine", name, engine_names())
    engine = getattr(importlib.import_module(f".{name}", __name__), _CLASSES[name])
    options = {"pin": pin} if name == "processes" else {}
    made: Engine = engine(pipeline, workers=workers, prefetch=prefetch, **options)
    return made
