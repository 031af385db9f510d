"""unary, binary and where against NumPy: every operation, dtype, layout and kind of operand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kernel_views import DTYPES, FLOATS, INTEGERS, LAYOUTS, NUMBERS, empty_view, numpy_of, view_of

from needle.backends import base

ORACLES = {"erf": np.vectorize(math.erf), "bitwise_invert": np.invert, "round": np.rint}
SHAPE = (3, 4, 5)
OUT_LAYOUT = dict(zip(LAYOUTS, LAYOUTS[1:] + LAYOUTS[:1], strict=True))


def values(dtype: str, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Return small values of every sign of the dtype; integers include zeros and repetitions."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype in FLOATS:
        return (random.standard_normal(shape) * 2).astype(dtype)
    return random.integers(0 if dtype == "uint8" else -9, 10, shape).astype(dtype)


def unary_dtypes(name: str) -> tuple[str, ...]:
    if name in base.UNARY_NUMERIC:
        return NUMBERS
    if name == "logical_not":
        return DTYPES
    return ("bool", *INTEGERS) if name in base.UNARY_INTEGER else FLOATS


def binary_dtypes(name: str) -> tuple[str, ...]:
    if name in ("divide", *base.BINARY_FLOAT):
        return FLOATS
    if name in base.BINARY_NUMERIC:
        return NUMBERS
    return ("bool", *INTEGERS) if name in base.BINARY_INTEGER else DTYPES


def agree(got: np.ndarray, want: np.ndarray, note: str) -> None:
    """Assert equality: for float32 up to a few units in the last place, else (almost) exactly."""
    relative = 5e-7 if got.dtype == np.float32 else 1e-14
    np.testing.assert_allclose(got, want, rtol=relative, atol=relative, err_msg=note)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", base.UNARY)
def test_unary(kernels: Any, name: str) -> None:
    oracle = ORACLES.get(name) or getattr(np, name)
    for dtype in unary_dtypes(name):
        a = values(dtype)
        want = oracle(a.astype("float64") if dtype == "float32" else a)
        for layout in LAYOUTS:
            out_dtype = "bool" if name in base.UNARY_TO_BOOL else dtype
            out = empty_view(SHAPE, out_dtype, OUT_LAYOUT[layout])
            kernels.unary(name, view_of(a, layout), out)
            agree(numpy_of(out), want, f"{dtype} {layout}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", base.BINARY)
def test_binary(kernels: Any, name: str) -> None:
    for dtype in binary_dtypes(name):
        a, b = values(dtype), values(dtype, 1)
        if name == "power" and dtype in INTEGERS:
            b = np.abs(b)  # a negative integer exponent is an error, raised above the kernels
        scalar = b[1, 2, 3]
        out_dtype = "bool" if name in base.BINARY_LOGICAL + base.BINARY_COMPARE else dtype
        for layout in LAYOUTS:
            x, y = view_of(a, layout), view_of(b, layout)
            for left, right, want in (
                (x, y, getattr(np, name)(a, b)),
                (x, scalar.item(), getattr(np, name)(a, scalar)),
                (scalar.item(), y, getattr(np, name)(scalar, b)),
            ):
                out = empty_view(SHAPE, out_dtype, OUT_LAYOUT[layout])
                kernels.binary(name, left, right, out)
                agree(numpy_of(out), want, f"{dtype} {layout}")


def test_an_unknown_operation_lists_the_known_ones(kernels: Any) -> None:
    view = view_of(values("float32"))
    with pytest.raises(ValueError, match="unknown operation 'cube'; known: exp, expm1"):
        kernels.unary("cube", view, view)
    with pytest.raises(ValueError, match="does not take this dtype"):
        kernels.unary("exp", view_of(values("int32")), empty_view(SHAPE, "int32"))


@pytest.mark.parametrize("scalar", [300, -1, 2**70])
def test_a_scalar_outside_an_integer_dtype_is_an_error(kernels: Any, scalar: int) -> None:
    view = view_of(values("uint8"))
    with pytest.raises(OverflowError, match="does not fit uint8"):
        kernels.binary("add", view, scalar, view)
