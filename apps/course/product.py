"""``python -m apps.course.product MODULE SIZE``: print a compiled backend's seconds for a product.

The product is that of two square matrices; the time is the best of several. ``rates`` starts a
process for each number of threads; the tests of part 9 load their module here too.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import numpy as np

from needle.backends import Backend, View
from needle.backends.native import backend_of

ROUNDS = 5


def backend_in(module: Path) -> Backend:
    """Return the backend with the compiled functions of this module."""
    spec = importlib.util.spec_from_file_location("course._kernels", module)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return backend_of(loaded)


def seconds(backend: Backend, size: int) -> float:
    """Return the shortest time of ROUNDS products of two float32 (size, size) matrices."""
    dtype = np.dtype("float32")

    def matrix(values: float) -> View:
        view = View(backend.allocate(size * size, dtype), (size, size), (size, 1), 0, dtype)
        backend.fill(view, values)
        return view

    a, b, out = matrix(0.5), matrix(2.0), matrix(0.0)
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        backend.matmul(a, b, out)
        taken.append(time.perf_counter() - begun)
    return min(taken)


if __name__ == "__main__":
    print(seconds(backend_in(Path(sys.argv[1])), int(sys.argv[2])))
