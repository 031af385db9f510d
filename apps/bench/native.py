"""The compiled CPU kernels that a benchmark ran with, for the heading of its page."""

from __future__ import annotations

import importlib
from typing import Any


def kernels() -> str:
    """Return which instruction set the compiled kernels use here."""
    return f"{native.isa} kernels" if (native := _native()) else "C++ kernels not built"


def threads() -> int:
    """Return the number of threads of the compiled kernels."""
    return native.num_threads() if (native := _native()) else 1


def _native() -> Any:
    try:
        return importlib.import_module("needle.backend_ndarray.ndarray_backend_cpu")
    except ImportError:
        return None
