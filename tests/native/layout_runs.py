"""Runs one kernel on its operands in every layout and returns what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from kernel_views import LAYOUTS, empty_view, numpy_of, view_of

Shape = tuple[int, ...]


def results(
    call: Callable[..., None],
    inputs: Sequence[np.ndarray],
    outs: Sequence[tuple[Shape, Any]],
    *settings: Any,
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield (layout, outputs) of ``call(*inputs, *outs, *settings)``; outputs differ in layout."""
    for i, layout in enumerate(LAYOUTS):
        views = [view_of(np.asarray(a), layout) for a in inputs]
        written = [empty_view(s, np.dtype(d), LAYOUTS[(i + 1) % len(LAYOUTS)]) for s, d in outs]
        call(*views, *written, *settings)
        for view, a in zip(views, inputs, strict=True):
            np.testing.assert_array_equal(numpy_of(view), a, err_msg="an input was modified")
        yield layout, [numpy_of(v) for v in written]


def close(got: np.ndarray, want: np.ndarray, float32: float, note: str = "") -> None:
    """Assert equality up to ``float32`` (or 1e-12 for float64) relative to the largest wanted
    value.
    """
    tolerance = float32 if got.dtype == np.float32 else 1e-12
    finite = np.abs(np.where(np.isfinite(want), want, 0))
    scale = max(1.0, float(np.max(finite, initial=0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale, err_msg=note)


def same_for_any_threads(module: Any, call: Callable[[], Sequence[np.ndarray]]) -> None:
    """Assert bitwise equality with one, two, three and eight threads."""
    before, found = module.num_threads(), []
    for threads in (1, 2, 3, 8):
        module.set_num_threads(threads)
        found.append([a.tobytes() for a in call()])
    module.set_num_threads(before)
    assert len(set(map(tuple, found))) == 1
