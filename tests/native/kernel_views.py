"""Compact views on the compiled module's buffers, for the tests of single kernels."""

from typing import Any

import numpy as np

from needle import backends
from needle.backends import View
from needle.shapes import compact_strides

backend: Any = backends.get("cpu")


def view_of(a: np.ndarray) -> View:
    """Return a compact view with these values."""
    view = View(backend.allocate(a.size, a.dtype), a.shape, compact_strides(a.shape), 0, a.dtype)
    backend.upload(a, view)
    return view


def empty_view(shape: tuple[int, ...], dtype: Any) -> View:
    """Return a view to write to, full of a value that no test expects."""
    return view_of(np.full(shape, 93, dtype))


def numpy_of(view: View) -> np.ndarray:
    """Return the view's values."""
    return backend.download(view)
