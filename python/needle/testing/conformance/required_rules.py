"""Cases of the rules of docs/backend.md that ordinary values do not touch. Called by ``required``.

Integers at the ends of their range, negative exponents, scalars of other types, signed zeros, small
results, operands in the same memory, and 16 axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...backends.base import BINARY_COMPARE, Scalar
from ...dtypes import COMPUTE_DTYPES, DType, bool_
from .case import PAIRS, Case, as_tuple, kernel
from .placement import HostArray
from .values import (
    FLOATS,
    INTEGERS,
    SUMMED,
    TRANSCENDENTAL,
    converted,
    in_float64,
    large_values,
    numpy_function,
    result_of,
    scalars_of,
    values,
)


def rule_cases() -> Iterator[Case]:
    """Yield the cases of every rule."""
    yield from _wrapping()
    yield from _integer_powers()
    yield from _scalars()
    yield from _conversions()
    yield from _signed_zeros()
    yield from _small_results()
    yield from _shared_operands()
    yield from _sixteen_axes()


def unary_case(name: str, label: str, host: HostArray, oracle: Any, **options: Any) -> Case:
    """Return a case of ``unary``."""
    call = kernel("unary", name=name)
    return Case(f"unary.{name}", label, (host,), oracle, call, **options)


def binary_case(
    name: str, label: str, a: HostArray, b: HostArray, oracle: Any, **options: Any
) -> Case:
    """Return a case of ``binary``."""
    return Case(f"binary.{name}", label, (a, b), oracle, kernel("binary", name=name), **options)


def scalar_cases(
    name: str, pair: Sequence[HostArray], scalar: Scalar, function: Any, **options: Any
) -> Iterator[Case]:
    """Yield cases of ``binary`` with a scalar in place of each operand of ``pair``.

    function: the oracle of two arrays.
    """
    for place, host in enumerate(reversed(pair)):

        def oracle(a: HostArray, left: bool = place == 0) -> tuple[HostArray, ...]:
            other = np.full_like(a, converted(scalar, a.dtype))
            return as_tuple(function(other, a) if left else function(a, other))

        def call(backend: Any, ins: Any, outs: Any, left: bool = place == 0) -> None:
            operands = (scalar, ins[0]) if left else (ins[0], scalar)
            backend.binary(name, *operands, outs[0])

        label = f"{host.dtype} with scalar {scalar!r} on the {'right' if place else 'left'}"
        yield Case(f"binary.{name}", label, (host,), oracle, call, **options)


def _all_pairs(pool: HostArray) -> tuple[HostArray, HostArray]:
    a, b = np.meshgrid(pool, pool)
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


# ---- integers ------------------------------------------------------------------------------------


def _ends(dtype: DType) -> HostArray:
    """Return the integers at the ends of the range and around 0."""
    info = np.iinfo(dtype)
    ends = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, 3]
    return np.array([*ends, -1] if info.min else ends, dtype)


def _wrapping() -> Iterator[Case]:
    """Yield cases in which integers wrap around."""
    for dtype in INTEGERS:
        pool = _ends(dtype)
        a, b = _all_pairs(pool)
        for name in ("negative", "abs", "square", "sign", "bitwise_invert"):
            oracle = result_of(numpy_function(name))
            yield unary_case(name, f"{dtype} at the ends of its range", pool, oracle)
        names = "add subtract multiply floor_divide remainder maximum minimum".split()
        for name in (*names, *BINARY_COMPARE):
            label = f"{dtype} at the ends of its range"
            yield binary_case(name, label, a, b, result_of(numpy_function(name)))
        if dtype in SUMMED:
            yield from _wrapping_sums(dtype, pool)


def _wrapping_sums(dtype: DType, pool: HostArray) -> Iterator[Case]:
    host = np.stack([np.resize(pool[i:], 5) for i in range(len(pool))])
    for name in ("sum", "prod"):
        function = partial(numpy_function(name), axis=1, keepdims=True, dtype=dtype)
        oracle, call = result_of(function), kernel("reduce", name=name)
        yield Case(f"reduce.{name}", f"{dtype} wraps around", (host,), oracle, call)
    a, b = np.resize(pool, (4, 5)), np.resize(pool[::-1], (5, 3))
    oracle = result_of(np.matmul)
    yield Case("matmul", f"{dtype} wraps around", (a, b), oracle, kernel("matmul"))


def _integer_powers() -> Iterator[Case]:
    """Yield powers of integers: those that wrap, and the truncated ones of negative exponents."""
    for dtype in INTEGERS:
        signed = dtype.kind == "i"
        bases = np.array([0, 1, 2, 3, 7, 100, *([-1, -2, -3, -100] if signed else [])], dtype)
        exponents = np.array([0, 1, 2, 5, 33, *([-1, -2, -3, -64] if signed else [])], dtype)
        a, b = (np.ascontiguousarray(each) for each in np.meshgrid(bases, exponents))
        label = f"{dtype} with negative exponents" if signed else f"{dtype} wraps around"
        yield binary_case("power", label, a, b, result_of(_true_power), pairs=PAIRS)
        for exponent in (-1, -2) if signed else ():
            yield from scalar_cases("power", (exponents, bases), exponent, _true_power)


def _true_power(a: HostArray, b: HostArray) -> HostArray:
    """Return a**b from Python's integers: truncated toward 0 for b < 0, 0 for a = 0."""

    def one(base: int, exponent: int) -> int:
        if exponent >= 0:
            exact: int = base**exponent
            return exact
        return 0 if abs(base) != 1 else base if exponent % 2 else 1

    bits = 8 * a.dtype.itemsize
    exact = [one(x, y) % (1 << bits) for x, y in zip(a.ravel().tolist(), b.ravel().tolist())]
    unsigned = np.array(exact, np.uint64).astype(f"uint{bits}")
    return unsigned.view(a.dtype).reshape(a.shape)


# ---- scalars and conversions ---------------------------------------------------------------------


def _scalars() -> Iterator[Case]:
    """Yield calls with a scalar that is converted to the dtype of the call first."""
    for dtype in COMPUTE_DTYPES:
        host = values((3, 5), dtype)
        names = ("less", "logical_and") if dtype == np.bool_ else ("add", "less", "multiply")
        for scalar in scalars_of(dtype):
            for name in names:
                yield from scalar_cases(name, (host, host), scalar, numpy_function(name))


def _conversions() -> Iterator[Case]:
    """Yield lossy casts: integers keep their low bits, floats truncate, NaN becomes True."""
    wide = [2**40 + 300, -(2**40) - 5, 2**31, -(2**31) - 1, 255, 256, -1, 0]
    tiny = [0.0, -0.0, 1e-45, -1e-45, np.nan, np.inf, -np.inf, 0.9]
    cut = [1.9, -1.9, 0.99, -0.99, 100.5, -100.5, 2.0**30, -(2.0**30)]
    for pool, source, targets in (
        (wide, "int64", COMPUTE_DTYPES),
        (wide[4:], "int32", COMPUTE_DTYPES),
        (tiny, "float32", (bool_, *FLOATS)),
        (tiny, "float64", (bool_, *FLOATS)),
        (cut, "float32", SUMMED),
        (cut, "float64", SUMMED),
    ):
        host = np.array(pool, np.float64 if "float" in source else np.int64).astype(source)
        for target in targets:

            def oracle(a: HostArray, target: DType = target) -> tuple[HostArray, ...]:
                return (a.astype(target),)

            zeros = host.dtype.kind == target.kind == "f"
            label = f"{source} to {target}, values that are cut"
            yield Case("copy", label, (host,), oracle, kernel("copy"), signed_zeros=zeros)


# ---- floats --------------------------------------------------------------------------------------

_ZEROS = (0.0, -0.0, 0.3, -0.3, -1.0, 2.0, np.inf, -np.inf)


def _signed_zeros() -> Iterator[Case]:
    """Yield functions that must return the right signed zero."""
    unary = "negative abs sqrt sin tan asin atan sinh tanh asinh atanh expm1 log1p erf".split()
    unary += "floor ceil trunc round square".split()
    for dtype in FLOATS:
        pool = np.array(_ZEROS, dtype)
        for name in unary:
            oracle = in_float64(numpy_function(name))
            yield unary_case(
                name, f"{dtype} zeros", pool, oracle, tolerance=TRANSCENDENTAL, signed_zeros=True
            )
        a, b = _all_pairs(pool)
        for name in "add subtract multiply divide remainder power atan2".split():
            oracle = in_float64(numpy_function(name))
            slack = TRANSCENDENTAL if name in ("power", "atan2") else 0.0
            if name == "remainder":  # NumPy's remainder in the dtype itself
                oracle = result_of(np.remainder)
            yield binary_case(
                name, f"{dtype} zeros", a, b, oracle, tolerance=slack, signed_zeros=True
            )
        yield from _zeros_in_memory(dtype, pool)


def _zeros_in_memory(dtype: DType, pool: HostArray) -> Iterator[Case]:
    def upload(backend: Any, ins: Any, outs: Any) -> None:
        source = pool.copy()
        backend.upload(source, outs[0])
        source[...] = 5  # the buffer must be a copy of the host array

    same = result_of(lambda a: a)
    yield Case("copy", f"{dtype} zeros", (pool,), same, kernel("copy"), signed_zeros=True)
    yield Case("upload", f"{dtype} zeros", (), lambda: (pool,), upload, signed_zeros=True)


_NEAR_ZERO = (1e-3, -1e-3, 3e-6, -3e-6, 1e-9, -1e-9, 1e-20, -1e-20)
_SMALL = {
    **dict.fromkeys("expm1 log1p sin tan asin atan sinh tanh asinh atanh".split(), _NEAR_ZERO),
    "exp": (-40.0, -80.0, -87.0),
    "log": (1.0001, 0.9999, 1.001),
    "acosh": (1.0001, 1.001),
    "sqrt": (1e-20, 1e-30),
    "square": (1e-10, 1e-15),
}
"""Arguments at which the result is small: it must be accurate relative to itself."""


def _small_results() -> Iterator[Case]:
    """Yield functions at arguments where a naive formula cancels."""
    for dtype in FLOATS:
        for name, pool in _SMALL.items():
            oracle = in_float64(numpy_function(name))
            yield unary_case(
                name,
                f"{dtype} small results",
                np.array(pool, dtype),
                oracle,
                tolerance=TRANSCENDENTAL,
                absolute=float(np.finfo(dtype).tiny),
            )


# ---- memory and axes -----------------------------------------------------------------------------


def _shared_operands() -> Iterator[Case]:
    """Yield calls whose output is the second operand, and calls with overlapping inputs."""
    for dtype in COMPUTE_DTYPES:
        a, b = large_values((3, 4), dtype), large_values((4, 3), dtype).T.copy()
        names = ("logical_xor", "less") if dtype == np.bool_ else ("subtract", "maximum")
        for name in names:
            if name == "subtract" and dtype.kind not in "iuf":
                continue
            yield binary_case(
                name,
                f"{dtype} in place of the second operand",
                a,
                b,
                result_of(numpy_function(name)),
                in_place=True,
                target=1,
                pairs=PAIRS[:5],
            )
            yield from _with_its_transpose(name, large_values((4, 4), dtype))
        yield from _where_in_place(dtype, a, b)


def _with_its_transpose(name: str, host: HostArray) -> Iterator[Case]:
    def call(backend: Any, ins: Any, outs: Any) -> None:
        turned = ins[0]._replace(strides=ins[0].strides[::-1])
        backend.binary(name, ins[0], turned, outs[0])

    def same(backend: Any, ins: Any, outs: Any) -> None:
        backend.binary(name, ins[0], ins[0], outs[0])

    function = getattr(np, name)
    row, label = f"binary.{name}", str(host.dtype)
    oracle, alone = result_of(lambda a: function(a, a.T)), result_of(lambda a: function(a, a))
    yield Case(row, f"{label} with its own transpose", (host,), oracle, call)
    yield Case(row, f"{label} with itself", (host,), alone, same)
    if alone(host)[0].dtype == host.dtype:
        yield Case(row, f"{label} with itself in place", (host,), alone, same, in_place=True)


def _where_in_place(dtype: DType, a: HostArray, b: HostArray) -> Iterator[Case]:
    inputs = (values((3, 4), np.dtype(bool)), a, b)
    for target in (0, 1, 2) if dtype == np.bool_ else (1, 2):
        label = f"{dtype} in place of operand {target}"
        oracle = result_of(np.where)
        yield Case("where", label, inputs, oracle, kernel("where"), in_place=True, target=target)


def _sixteen_axes() -> Iterator[Case]:
    """Yield one call of each function with arrays of 16 axes."""
    shape = (1, 2, 1, 1, 3, 1, 1, 2, 1, 1, 1, 2, 1, 1, 2, 1)
    dtype = np.dtype(np.float32)
    a, b = large_values(shape, dtype), large_values(shape[::-1], dtype).T.copy()
    condition = values(shape, np.dtype(bool))
    pairs = tuple(
        pair for pair in PAIRS if "sliced" not in pair
    )  # guard elements of these layouts would take gigabytes
    yield unary_case("negative", "16 axes", a, result_of(np.negative), pairs=pairs)
    yield binary_case("subtract", "16 axes", a, b, result_of(np.subtract), pairs=pairs)

    yield Case("copy", "16 axes", (a,), result_of(lambda a: a), kernel("copy"), pairs=pairs)
    yield Case(
        "where", "16 axes", (condition, a, b), result_of(np.where), kernel("where"), pairs=pairs
    )
    largest = result_of(lambda a: np.max(a, axis=(1, 7, 14), keepdims=True))
    yield Case("reduce.max", "16 axes", (a,), largest, kernel("reduce", name="max"), pairs=pairs)
    left, right = large_values((*shape[:14], 2, 3), dtype), large_values((*shape[:14], 3, 2), dtype)
    product = in_float64(np.matmul)
    yield Case("matmul", "16 axes", (left, right), product, kernel("matmul"), 2e-5)
