"""Rows of the op table: arithmetic, functions of one tensor, selections, reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, ShapeError, UnknownNameError
from tests.op_row import (
    NUMBERS,
    Failure,
    OpRow,
    S,
    alike,
    apart,
    bad_axis,
    called,
    normal,
    positive,
    refused,
    wrong,
)

ERF = np.vectorize(math.erf, otypes=[float])


def binary(name: str, oracle: Any, inputs: Any = normal, **fields: Any) -> list[OpRow]:
    """Return the rows of an op with two broadcasting operands."""
    return [
        alike(name, oracle, inputs(left, right), case=case, resize=case == "", **fields)
        for case, left, right in (
            ("", S, S),
            ("row", S, (4,)),
            ("column", (3, 1), S),
            ("outer", (3, 1), (1, 4)),
            ("scalar", (), S),
            ("empty", (0, 4), (1, 4)),
        )
    ]


def scalar(name: str, number: float, oracle: Any, inputs: Any = normal, **fields: Any) -> OpRow:
    """Return the row of an op with a tensor and a number."""
    return alike(name, oracle, inputs(S), number, case=str(number), **fields)


def unary(name: str, oracle: Any, inputs: Any = normal, *args: Any, **fields: Any) -> OpRow:
    return called(name, oracle, inputs(S), *args, **fields)


def sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def hardswish(a: Any) -> Any:
    return a * np.clip(a + 3, 0, 6) / 6


def gelu_tanh(a: Any) -> Any:
    return a / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))


ARITHMETIC = [
    *binary("add", np.add, dtypes=NUMBERS),
    *binary("multiply", np.multiply, dtypes=NUMBERS),
    unary("square", np.square, dtypes=NUMBERS),
    *binary("divide", np.divide, positive),
    *[
        OpRow(
            "divide",
            lambda a, b, mode=mode: a.div(b, rounding_mode=mode),
            oracle,
            lambda r, s=sign: (r.integers(-9, 9, S) + 0.3, r.integers(1, 4, (4,)) * s),
            f"{mode} {sign}",
            dtypes=NUMBERS,
            order=1,
            resize=False,
        )
        for mode, oracle in (("floor", np.floor_divide), ("trunc", lambda a, b: np.trunc(a / b)))
        for sign in (1.0, -1.0)
    ],
    *binary("power", np.power, positive),
    scalar("add_scalar", 1.5, np.add),
    scalar("add_scalar", 2, np.add, dtypes=NUMBERS),
    scalar("mul_scalar", -2.5, np.multiply),
    scalar("mul_scalar", 3, np.multiply, dtypes=NUMBERS),
    scalar("divide_scalar", -1.5, np.divide),
    scalar("power_scalar", 3, np.power),
    scalar("power_scalar", -1.5, np.power, positive),
    scalar("power_scalar", 0, np.power),
    scalar("power_scalar", 1, np.power),
    scalar("scalar_power", 2.5, lambda a, b: b**a),
    unary("negate", np.negative, dtypes=NUMBERS),
]

ELEMENTWISE = [
    unary("log", np.log, positive),
    unary("exp", np.exp),
    unary("sqrt", np.sqrt, positive),
    unary("abs", np.abs, apart, dtypes=NUMBERS),
    unary("sin", np.sin),
    unary("cos", np.cos),
    unary("tanh", np.tanh),
    unary("sigmoid", sigmoid),
    unary("relu", lambda a: np.maximum(a, 0), apart, dtypes=NUMBERS),
    OpRow(
        "relu",
        lambda a, bias: ops.elementwise.BiasReLU()(a, bias),
        lambda a, bias: np.maximum(a + bias, 0),
        apart(S, S[1:]),
        "of a sum with a bias",
        resize=False,
    ),
    unary("leaky_relu", lambda a: np.where(a > 0, a, 0.01 * a), apart),
    unary("leaky_relu", lambda a: np.where(a > 0, a, 0.3 * a), apart, 0.3, case="slope"),
    unary("log_sigmoid", lambda a: -np.log1p(np.exp(-a))),
    unary("softplus", lambda a: np.log1p(np.exp(a))),
    unary("silu", lambda a: a * sigmoid(a)),
    unary("elu", lambda a: np.where(a > 0, a, np.expm1(a)), apart),
    unary("elu", lambda a: np.where(a > 0, a, 1.5 * np.expm1(a)), apart, 1.5, case="alpha"),
    unary("hardswish", hardswish),
    called("hardswish", hardswish, lambda r: (apart(S)(r)[0] * 7,), case="beyond 3"),
    unary("erf", ERF),
    unary("normal_cdf", lambda a: 0.5 + 0.5 * ERF(a / math.sqrt(2))),
    unary("gelu", lambda a: a * (0.5 + 0.5 * ERF(a / math.sqrt(2)))),
    unary("gelu", gelu_tanh, options={"approximate": "tanh"}, case="tanh"),
    unary("astype", lambda a: a, normal, "float64", dtypes=NUMBERS, out_dtype="float64", rtol=1e-6),
    OpRow(
        "to_device",
        lambda a: ops.to_device(a, a.device),
        lambda a: a,
        normal(S),
        dtypes=NUMBERS,
    ),
    unary(
        "astype",
        np.trunc,
        normal,
        "int64",
        case="to integer",
        dtypes=NUMBERS,
        out_dtype="int64",
        order=0,
    ),
]


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def coarse(random: np.random.Generator) -> tuple[Any, ...]:
    """Return two inputs on a coarse grid, so that equal numbers occur."""
    return tuple(random.integers(0, 3, (2, *S)).astype(float))


SELECTION = [
    *binary("maximum", np.maximum, apart, dtypes=NUMBERS),
    *binary("minimum", np.minimum, apart, dtypes=NUMBERS),
    alike("clip", np.clip, apart(S), -0.2, 0.3),
    OpRow("clip", lambda a: ops.clip(a, min=0), lambda a: np.maximum(a, 0), apart(S), "low"),
    OpRow("clip", lambda a: a.clamp(max=0), lambda a: np.minimum(a, 0), apart(S), "high"),
    OpRow(
        "clip",
        lambda a, low, high: a.clamp(low, high),
        lambda a, low, high: np.minimum(np.maximum(a, low), high),
        apart(S, (1, 4), (4,)),
        "tensors",
        resize=False,
    ),
    OpRow(
        "clip",
        lambda a, low: ops.clip(a, low, 0.5),
        lambda a, low: np.minimum(np.maximum(a, low), 0.5),
        apart(S, (4,)),
        "tensor and number",
        resize=False,
    ),
    alike(
        "where",
        np.where,
        lambda random: (random.random(S) < 0.5, *normal(S, S)(random)),
        dtypes=NUMBERS,
    ),
    alike(
        "where",
        np.where,
        lambda random: (random.random((4,)) < 0.5, *normal((3, 1), ())(random)),
        case="broadcast",
        resize=False,
    ),
    *[
        alike(name, getattr(np, name), coarse, dtypes=NUMBERS, out_dtype="bool", order=0)
        for name in COMPARISONS
    ],
]


def reduction(name: str, oracle: Any, inputs: Any = normal, **fields: Any) -> list[OpRow]:
    """Return rows that reduce over all axes, one, a negative one or several, also with keepdims."""
    return [
        called(
            name,
            lambda a, axes=axes, kept=kept: oracle(a, axis=axes, keepdims=kept),
            inputs((3, 4, 2)),
            options={"axes": axes, "keepdims": kept},
            case=case,
            **fields,
        )
        for case, axes, kept in (
            ("all", None, False),
            ("axis", 1, False),
            ("negative", -1, True),
            ("tuple", (0, 2), False),
            ("kept", (1, -1), True),
            ("none of them", (), False),
        )
    ]


REDUCTIONS = [
    *reduction("summation", np.sum),
    *reduction("mean", np.mean, empty=False),
    *reduction("var", np.var, empty=False),
    called(
        "var",
        lambda a: np.var(a, axis=1, ddof=1),
        normal(S),
        options={"axes": 1, "correction": 1},
        case="correction",
    ),
    *reduction("max", np.max, apart, dtypes=NUMBERS, empty=False),
    *reduction("min", np.min, apart, dtypes=NUMBERS, empty=False),
]

TWO = (2,)
ELEMENTWISE_FAILURES = [
    *[
        wrong(
            name,
            "shapes must broadcast (equal or 1 from the right), got (3, 4) and (3,)",
            on=(S, (3,)),
        )
        for name in ("add", "multiply", "divide", "power", "maximum", "minimum", *COMPARISONS)
    ],
    wrong(
        "divide",
        "rounding_mode must be None, 'floor' or 'trunc', got 'up'",
        "up",
        on=(TWO, TWO),
        error=ValueError,
    ),
    Failure(
        lambda t: ops.divide(t(np.ones(2)).astype("int32"), 0, "trunc"),
        ZeroDivisionError,
        "divide: integers must not be divided by 0",
    ),
    *[
        failure
        for name in ("add_scalar", "mul_scalar", "divide_scalar", "power_scalar", "scalar_power")
        for failure in (
            wrong(name, "the scalar must be a real", "two", error=DTypeError),
            wrong(name, "the scalar must have one", np.ones(2)),
        )
    ],
    *[
        refused(
            lambda *a: ops.elementwise.BiasReLU()(*a),
            f"relu: bias must have one value for each element of a's last axis, got {a} and {bias}",
            a,
            bias,
        )
        for a, bias in ((S, (3,)), (S, (4, 1)), ((), (1,)))
    ],
    wrong("elu", "alpha must be a real", "two", error=DTypeError),
    wrong(
        "gelu",
        "approximate must be 'none' or 'tanh', got 'erf'",
        approximate="erf",
        error=UnknownNameError,
    ),
    refused(lambda a: ops.to_device(a, "gpu0"), "unknown device 'gpu0'", error=UnknownNameError),
    Failure(
        lambda t: ops.where(t(np.ones(3) > 0), t(np.ones(3)), t(np.ones(2))),
        ShapeError,
        "where: shapes must broadcast",
    ),
    *[bad_axis(name, axes=2) for name in ("summation", "mean", "var", "max", "min")],
    *[
        wrong(name, "there must be at least one element", on=((0, 4),))
        for name in ("mean", "var", "max", "min")
    ],
    wrong(
        "var", "there must be more than correction=1 elements", axes=1, correction=1, on=((3, 1),)
    ),
]
