"""Cases of rules in docs/backend.md that ordinary values do not exercise. Called by ``required``.

They have integers at the ends of their range, negative exponents, scalars of other types, signed
zeros, small results, operands in the same memory, and 16 axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from ...backends.base import BINARY_COMPARE, Scalar
from ...dtypes import COMPUTE_DTYPES, DType, bool_
from .case import PAIRS, Case
from .placement import HostArray
from .values import (
    FLOATS,
    INTEGERS,
    SUMMED,
    TRANSCENDENTAL,
    all_pairs,
    converted,
    in_float64,
    large_values,
    numpy_function,
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


def scalar_cases(
    name: str, pair: Sequence[HostArray], scalar: Scalar, function: Any, **options: Any
) -> Iterator[Case]:
    """Yield cases of ``binary`` with a scalar in place of either operand in ``pair``.

    function: the oracle of two arrays.
    """
    for side, host in zip(("left", "right"), reversed(pair), strict=True):

        def ordered(a: Any, other: Any, side: str = side) -> tuple[Any, Any]:
            return (other, a) if side == "left" else (a, other)

        def oracle(a: HostArray, ordered: Any = ordered) -> Any:
            return function(*ordered(a, np.full_like(a, converted(scalar, a.dtype))))

        def call(backend: Any, ins: Any, outs: Any, ordered: Any = ordered) -> None:
            backend.binary(name, *ordered(ins[0], scalar), outs[0])

        label = f"{host.dtype} with scalar {scalar!r} on the {side}"
        yield Case(f"binary.{name}", label, (host,), oracle, call=call, **options)


# ---- integers ------------------------------------------------------------------------------------


def _ends(dtype: DType) -> HostArray:
    """Return integers at both ends of the range and around 0."""
    info = np.iinfo(dtype)
    ends = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, 3]
    return np.array([*ends, -1] if info.min else ends, dtype)


def _wrapping() -> Iterator[Case]:
    """Yield cases in which integers wrap around."""
    for dtype in INTEGERS:
        pool = _ends(dtype)
        label = f"{dtype} at the ends of its range"
        for name in ("negative", "abs", "square", "sign", "bitwise_invert"):
            yield Case(f"unary.{name}", label, (pool,), numpy_function(name))
        names = "add subtract multiply floor_divide remainder maximum minimum".split()
        for name in (*names, *BINARY_COMPARE):
            yield Case(f"binary.{name}", label, all_pairs(pool), numpy_function(name))
        if dtype in SUMMED:
            yield from _wrapping_sums(dtype, pool)


def _wrapping_sums(dtype: DType, pool: HostArray) -> Iterator[Case]:
    host, label = np.stack([np.resize(pool[i:], 5) for i in range(len(pool))]), f"{dtype} wraps"
    for name in ("sum", "prod"):
        oracle = partial(numpy_function(name), axis=1, keepdims=True, dtype=dtype)
        yield Case(f"reduce.{name}", label, (host,), oracle)
    yield Case("matmul", label, (np.resize(pool, (4, 5)), np.resize(pool[::-1], (5, 3))), np.matmul)


def _integer_powers() -> Iterator[Case]:
    """Yield integer powers: those that wrap, and truncated ones with negative exponents."""
    for dtype in INTEGERS:
        signed = dtype.kind == "i"
        bases = np.array([0, 1, 2, 3, 7, 100, *([-1, -2, -3, -100] if signed else [])], dtype)
        exponents = np.array([0, 1, 2, 5, 33, *([-1, -2, -3, -64] if signed else [])], dtype)
        label, pairs = f"{dtype} wraps, or is truncated", PAIRS
        yield Case("binary.power", label, all_pairs(bases, exponents), _true_power, pairs=pairs)


def _true_power(a: HostArray, b: HostArray) -> HostArray:
    """Return a**b computed with Python integers; if b < 0, truncated toward 0, and 0 for a = 0."""

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
    """Yield calls with a scalar that must first be converted to the dtype of the call."""
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
            zeros = host.dtype.kind == target.kind == "f"
            label = f"{source} to {target}, values that are cut"
            cast = methodcaller("astype", target)
            yield Case("copy", label, (host,), cast, signed_zeros=zeros)


# ---- floats --------------------------------------------------------------------------------------

_ZEROS = (0.0, -0.0, 0.3, -0.3, -1.0, 2.0, np.inf, -np.inf)


def _signed_zeros() -> Iterator[Case]:
    """Yield functions that must return the right signed zero."""
    unary = "negative abs sqrt sin tan asin atan sinh tanh asinh atanh expm1 log1p erf".split()
    unary += "floor ceil trunc round square".split()
    binary = "add subtract multiply divide remainder power atan2".split()
    for dtype in FLOATS:
        pool, label = np.array(_ZEROS, dtype), f"{dtype} zeros"
        case = partial(Case, signed_zeros=True)
        for name in unary:
            oracle = in_float64(numpy_function(name))
            yield case(f"unary.{name}", label, (pool,), oracle, tolerance=TRANSCENDENTAL)
        for name in binary:
            # NumPy's remainder, computed in the dtype itself
            oracle = np.remainder if name == "remainder" else in_float64(numpy_function(name))
            slack = TRANSCENDENTAL if name in ("power", "atan2") else 0.0
            yield case(f"binary.{name}", label, all_pairs(pool), oracle, tolerance=slack)
        yield case("copy", label, (pool,), np.copy)
        yield case("upload", label, (), partial(np.copy, pool), call=partial(_upload, pool))


def _upload(host: HostArray, backend: Any, ins: Any, outs: Any) -> None:
    source = host.copy()
    backend.upload(source, outs[0])
    source[...] = 5  # the buffer must be a copy of the host array


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
    """Yield functions at arguments where a naive formula would cancel."""
    for dtype in FLOATS:
        tiny = float(np.finfo(dtype).tiny)
        for name, pool in _SMALL.items():
            inputs, oracle = (np.array(pool, dtype),), in_float64(numpy_function(name))
            case = partial(Case, f"unary.{name}", f"{dtype} small results", inputs, oracle)
            yield case(tolerance=TRANSCENDENTAL, absolute=tiny)


# ---- memory and axes -----------------------------------------------------------------------------


def _shared_operands() -> Iterator[Case]:
    """Yield calls that write to their second operand, and calls with overlapping inputs."""
    for dtype in COMPUTE_DTYPES:
        pair = large_values((3, 4), dtype), large_values((4, 3), dtype).T.copy()
        for name in ("logical_xor", "less") if dtype == np.bool_ else ("subtract", "maximum"):
            label = f"{dtype} in place of the second operand"
            case = partial(Case, f"binary.{name}", label, pair, numpy_function(name))
            yield case(in_place=True, target=1, pairs=PAIRS[:5])
            yield from _with_its_transpose(name, large_values((4, 4), dtype))
        inputs = (values((3, 4), np.dtype(bool)), *pair)
        for target in (0, 1, 2) if dtype == np.bool_ else (1, 2):
            label = f"{dtype} in place of operand {target}"
            yield Case("where", label, inputs, np.where, in_place=True, target=target)


def _with_its_transpose(name: str, host: HostArray) -> Iterator[Case]:
    def turned(backend: Any, ins: Any, outs: Any) -> None:
        backend.binary(name, ins[0], ins[0]._replace(strides=ins[0].strides[::-1]), outs[0])

    def same(backend: Any, ins: Any, outs: Any) -> None:
        backend.binary(name, ins[0], ins[0], outs[0])

    def alone(a: HostArray) -> Any:
        return getattr(np, name)(a, a)

    row, dtype = f"binary.{name}", host.dtype
    label = f"{dtype} with its own transpose"
    yield Case(row, label, (host,), lambda a: getattr(np, name)(a, a.T), call=turned)
    yield Case(row, f"{dtype} with itself", (host,), alone, call=same)
    if alone(host).dtype == dtype:
        yield Case(row, f"{dtype} with itself in place", (host,), alone, in_place=True, call=same)


def _sixteen_axes() -> Iterator[Case]:
    """Yield one call of each function with arrays of 16 axes."""
    shape = (1, 2, 1, 1, 3, 1, 1, 2, 1, 1, 1, 2, 1, 1, 2, 1)
    dtype = np.dtype(np.float32)
    a, b = large_values(shape, dtype), large_values(shape[::-1], dtype).T.copy()
    condition = values(shape, np.dtype(bool))
    largest = partial(np.max, axis=(1, 7, 14), keepdims=True)
    # The guard elements of a sliced layout would take gigabytes.
    pairs = tuple(pair for pair in PAIRS if "sliced" not in pair)
    given: tuple[tuple[str, tuple[HostArray, ...], Any], ...] = (
        ("unary.negative", (a,), np.negative),
        ("binary.subtract", (a, b), np.subtract),
        ("copy", (a,), np.copy),
        ("where", (condition, a, b), np.where),
        ("reduce.max", (a,), largest),
    )
    for row, inputs, oracle in given:
        yield Case(row, "16 axes", inputs, oracle, pairs=pairs)
    left, right = large_values((*shape[:14], 2, 3), dtype), large_values((*shape[:14], 3, 2), dtype)
    yield Case("matmul", "16 axes", (left, right), in_float64(np.matmul), tolerance=2e-5)
