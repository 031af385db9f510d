"""argmax and argmin against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_views import DTYPES, FLOATS
from layout_runs import results

SHAPES = [(1,), (9,), (4, 33), (70, 5), (3, 4, 5), (2, 3, 4, 70), (0, 3)]
AXES = [(s, axis) for s in SHAPES for axis in range(len(s)) if s[axis]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("shape, axis", AXES, ids=str)
def test_first_extreme(
    kernels: Any, name: str, shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    a = np.random.default_rng(0).integers(0, 5, shape).astype(dtype)  # few values, so many ties
    want = getattr(np, name)(a, axis=axis, keepdims=True)
    for layout, (got,) in results(getattr(kernels, name), (a,), [(want.shape, "int64")], axis):
        np.testing.assert_array_equal(got, want, err_msg=layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_nan_wins(kernels: Any, name: str, dtype: str) -> None:
    inf, nan = np.inf, np.nan
    a = np.array([[inf, nan, 0, nan], [nan, 1, 2, -inf], [-inf, -inf, inf, inf], [nan] * 4], dtype)
    for axis in (0, 1):
        want = getattr(np, name)(a, axis=axis, keepdims=True)
        for layout, (got,) in results(getattr(kernels, name), (a,), [(want.shape, "int64")], axis):
            np.testing.assert_array_equal(got, want, err_msg=layout)
