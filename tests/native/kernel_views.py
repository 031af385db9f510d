"""Views on the compiled module's buffers in many layouts, for the tests of single kernels.

Each layout stores the same values differently: permuted, sliced, reversed, broadcast, with an
offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from needle import backends
from needle.backends import View

backend: Any = backends.get("cpu")
module = backend.module

ISAS = module.available_isas()
FLOATS = ("float32", "float64")
INTEGERS = ("uint8", "int32", "int64")
NUMBERS = INTEGERS + FLOATS
DTYPES = ("bool", *NUMBERS)
LAYOUTS = ("compact", "permuted", "sliced", "reversed", "offset")


def view_of(a: np.ndarray, layout: str = "compact") -> View:
    """Return a view with ``a``'s values, stored in its buffer in this layout."""
    shape, ndim = a.shape, a.ndim
    if layout == "compact":
        base = a
    elif layout == "permuted":
        base = a.transpose(tuple(reversed(range(ndim)))).copy()
    elif layout == "sliced":
        base = np.zeros(tuple(2 * n + 1 for n in shape), a.dtype)
        base[tuple(slice(1, None, 2) for _ in shape)] = a
    elif layout == "reversed":
        base = np.flip(a).copy()
    else:
        base = np.concatenate([np.zeros(3, a.dtype), a.reshape(-1)])
    handle = backend.allocate(base.size, a.dtype)
    np.frombuffer(handle, a.dtype)[:] = base.reshape(-1) if base.size else []
    item = max(1, a.itemsize)
    rows = tuple(s // item for s in np.empty(base.shape, a.dtype).strides)
    if layout == "permuted":
        return View(handle, shape, tuple(reversed(rows)), 0, a.dtype)
    if layout == "sliced":
        return View(handle, shape, tuple(2 * s for s in rows), sum(rows), a.dtype)
    if layout == "reversed":
        return View(handle, shape, tuple(-s for s in rows), max(0, base.size - 1), a.dtype)
    compact = tuple(s // item for s in np.empty(shape, a.dtype).strides)
    return View(handle, shape, compact, 3 if layout == "offset" else 0, a.dtype)


def empty_view(shape: tuple[int, ...], dtype: Any, layout: str = "compact") -> View:
    """Return a view to write to, with its buffer full of a value that no test expects."""
    return view_of(np.full(shape, 93, dtype), layout)


def numpy_of(view: View) -> np.ndarray:
    """Return the view's values."""
    return backend.download(view)
