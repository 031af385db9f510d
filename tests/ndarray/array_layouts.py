"""Arrays of every memory layout, each with an equal NumPy array: rows for the table tests."""

from collections.abc import Callable
from typing import Any

import numpy as np

from needle import ndarray as nd

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
FLOATS = DTYPES[:2]


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Return small values of both signs (if the dtype has them), none of them 0 except False."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    magnitude = rng.uniform(0.3, 4.0, shape) if dtype.startswith("f") else rng.integers(1, 6, shape)
    sign = 1 if dtype == "uint8" else rng.choice([-1, 1], shape)
    return np.asarray(magnitude * sign).astype(dtype)


Take = Callable[[Any], Any]

LAYOUTS: dict[str, tuple[tuple[int, ...], Take, Take]] = {
    # name: (shape of the whole, a view of an NDArray, the same view of a NumPy array)
    "compact": ((3, 4), lambda a: a, lambda a: a),
    "permuted": ((4, 2, 3), lambda a: a.permute((2, 0, 1)), lambda a: a.transpose(2, 0, 1)),
    "sliced": ((5, 9), lambda a: a[1:4, ::2], lambda a: a[1:4, ::2]),
    "negative": ((4, 5), lambda a: a[::-1, ::-2], lambda a: a[::-1, ::-2]),
    "broadcast": (
        (3, 1),
        lambda a: a.broadcast_to((2, 3, 4)),
        lambda a: np.broadcast_to(a, (2, 3, 4)),
    ),
    "offset": ((6, 4), lambda a: a[3:], lambda a: a[3:]),
    "size-1": ((1, 4, 1), lambda a: a[:, 2:3], lambda a: a[:, 2:3]),
    "size-0": ((3, 0), lambda a: a, lambda a: a),
    "0-d": ((2,), lambda a: a[1], lambda a: a[1]),
    "vector": ((70,), lambda a: a, lambda a: a),
}


def case(layout: str, dtype: str, device: Any, seed: int = 0) -> tuple[nd.NDArray, Any]:
    """Return (NDArray view, NumPy array of the same values)."""
    shape, view, host_view = LAYOUTS[layout]
    whole = values(shape, dtype, seed)
    return view(nd.asarray(whole, device=device)), host_view(whole)


def check(result: nd.NDArray, expected: Any, rtol: float = 1e-5) -> None:
    """Assert equal shape and values; integer and bool results must be exact."""
    assert isinstance(result, nd.NDArray)
    expected = np.asarray(expected)
    assert result.shape == expected.shape
    if result.dtype.kind == "f":
        tight = 1e-12 if result.dtype == "float64" else rtol
        np.testing.assert_allclose(result.numpy(), expected, rtol=tight, atol=tight)
    else:
        np.testing.assert_array_equal(result.numpy(), expected)
