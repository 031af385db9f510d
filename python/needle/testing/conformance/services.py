"""Check the services ``adopt`` and ``export``, which may share host memory or decline.

Called by ``run``. The other services have no result to compare, so they are only called.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends.base import Backend, View
from .case import Mismatch, compare
from .placement import Placed
from .report import Row


def _adopt(backend: Backend, row: Row) -> None:
    for dtype in ("float32", "int64", "bool"):
        host = np.arange(6).astype(dtype)
        handle = backend.adopt(host)
        if handle is None:
            return
        row.cases += 1
        host[2] = 9  # a later write is visible in shared memory
        view = View(handle, (2, 3), (3, 1), 0, host.dtype)
        compare(host.reshape(2, 3), backend.download(view), 0.0)


def _export(backend: Backend, row: Row) -> None:
    for layout in ("compact", "permuted", "sliced", "negative"):
        host = np.arange(6, dtype=np.float32).reshape(2, 3)
        placed = Placed(backend, host, layout)
        shared = backend.export(placed.view)
        if shared is None:
            return
        row.cases += 1
        backend.fill(placed.view, 4.0)
        backend.synchronize()
        compare(np.full_like(host, 4.0), np.array(shared), 0.0)


def _memory_stats(backend: Backend, row: Row) -> None:
    row.cases += 1
    stats = backend.memory_stats()
    backend.empty_cache()
    if not all(isinstance(value, int) for value in stats.values()):
        raise Mismatch(f"memory_stats must map names to ints, got {stats}")


SERVICE_ROWS: dict[str, Callable[[Backend, Row], None]]
SERVICE_ROWS = {"adopt": _adopt, "export": _export, "memory_stats": _memory_stats}


def check_service(backend: Backend, name: str) -> Row:
    """Return the row of one service."""
    row = Row(name)
    try:
        SERVICE_ROWS[name](backend, row)
    except Exception as error:
        row.cases = max(row.cases, 1)
        row.failures.append(f"{type(error).__name__}: {error}")
    return row
