"""Rows of the op table: arithmetic, functions of one tensor, selections, reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, ShapeError, UnknownNameError
from tests.op_row import NUMBERS, Failure, OpRow, apart, bad_axis, normal, positive, refused

S = (3, 4)
ERF = np.vectorize(math.erf, otypes=[float])


def unbroadcastable(name: str, call: Any) -> Failure:
    return refused(
        lambda a, b: call(a, b),
        f"{name}: shapes must broadcast (equal or 1 from the right), got (3, 4) and (3,)",
        (3, 4),
        (3,),
    )


def not_a_number(name: str, call: Any) -> Failure:
    return refused(lambda a: call(a, "two"), f"{name} must be a real", (3,), error=DTypeError)


def not_one_element(name: str, call: Any) -> Failure:
    return refused(lambda a: call(a, np.ones(2)), f"{name}: the scalar must have one", (3,))


def empty_axis(name: str, call: Any) -> Failure:
    return refused(lambda a: call(a), f"{name}: there must be at least one element", (0, 4))


def binary(name: str, oracle: Any, inputs: Any = normal, **options: Any) -> list[OpRow]:
    """Return the rows of an op with two broadcasting operands."""
    call = getattr(ops, name)
    rows = [OpRow(name, call, oracle, inputs(S, S), failures=(unbroadcastable(name, call),))]
    rows += [
        OpRow(name, call, oracle, inputs(left, right), case, resize=False)
        for case, left, right in (
            ("row", S, (4,)),
            ("column", (3, 1), S),
            ("outer", (3, 1), (1, 4)),
            ("scalar", (), S),
            ("empty", (0, 4), (1, 4)),
        )
    ]
    return [replaced(row, **options) for row in rows]


def replaced(row: OpRow, **options: Any) -> OpRow:
    return OpRow(**{**row.__dict__, **options})


def scalar(name: str, number: float, oracle: Any, inputs: Any = normal, **more: Any) -> OpRow:
    """Return the row of an op with a tensor and a number."""
    call = getattr(ops, name)
    return OpRow(
        name,
        lambda a: call(a, number),
        lambda a: oracle(a, number),
        inputs(S),
        str(number),
        failures=(not_a_number(f"{name}: the scalar", call), not_one_element(name, call)),
        **more,
    )


def unary(name: str, oracle: Any, inputs: Any = normal, **options: Any) -> OpRow:
    return OpRow(name, getattr(ops, name), oracle, inputs(S), **options)


def sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


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
            failures=(
                Failure(
                    lambda t: ops.divide(t(np.ones(2)), t(np.ones(2)), "up"),
                    ValueError,
                    "divide: rounding_mode must be None, 'floor' or 'trunc', got 'up'",
                ),
                Failure(
                    lambda t: ops.divide(t(np.ones(2)).astype("int32"), 0, "trunc"),
                    ZeroDivisionError,
                    "divide: integers must not be divided by 0",
                ),
            ),
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
        failures=tuple(
            Failure(
                lambda t, shapes=shapes: ops.elementwise.BiasReLU()(
                    *(t(np.ones(s)) for s in shapes)
                ),
                ShapeError,
                f"relu: bias must have one value for each of a's last axis, got {shapes[0]} "
                f"and {shapes[1]}",
            )
            for shapes in (((3, 4), (3,)), ((3, 4), (4, 1)), ((), (1,)))
        ),
    ),
    unary("leaky_relu", lambda a: np.where(a > 0, a, 0.01 * a), apart),
    OpRow(
        "leaky_relu",
        lambda a: ops.leaky_relu(a, 0.3),
        lambda a: np.where(a > 0, a, 0.3 * a),
        apart(S),
        "slope",
    ),
    unary("log_sigmoid", lambda a: -np.log1p(np.exp(-a))),
    unary("softplus", lambda a: np.log1p(np.exp(a))),
    unary("silu", lambda a: a * sigmoid(a)),
    unary("elu", lambda a: np.where(a > 0, a, np.expm1(a)), apart),
    OpRow(
        "elu",
        lambda a: ops.elu(a, 1.5),
        lambda a: np.where(a > 0, a, 1.5 * np.expm1(a)),
        apart(S),
        "alpha",
        failures=(not_a_number("elu: alpha", ops.elu),),
    ),
    unary("hardswish", lambda a: a * np.clip(a + 3, 0, 6) / 6),
    OpRow(
        "hardswish",
        ops.hardswish,
        lambda a: a * np.clip(a + 3, 0, 6) / 6,
        lambda random: (apart(S)(random)[0] * 7,),
        "beyond 3",
    ),
    unary("erf", ERF),
    unary("normal_cdf", lambda a: 0.5 + 0.5 * ERF(a / math.sqrt(2))),
    unary("gelu", lambda a: a * (0.5 + 0.5 * ERF(a / math.sqrt(2)))),
    OpRow(
        "gelu",
        lambda a: ops.gelu(a, approximate="tanh"),
        gelu_tanh,
        normal(S),
        "tanh",
        failures=(
            refused(
                lambda a: ops.gelu(a, approximate="erf"),
                "gelu: approximate must be 'none' or 'tanh', got 'erf'",
                (2,),
                error=UnknownNameError,
            ),
        ),
    ),
    OpRow(
        "astype",
        lambda a: ops.astype(a, "float64"),
        lambda a: a,
        normal(S),
        dtypes=NUMBERS,
        out_dtype="float64",
        rtol=1e-6,
    ),
    OpRow(
        "to_device",
        lambda a: ops.to_device(a, a.device),
        lambda a: a,
        normal(S),
        dtypes=NUMBERS,
        failures=(
            refused(
                lambda a: ops.to_device(a, "gpu0"),
                "unknown device 'gpu0'",
                (2,),
                error=UnknownNameError,
            ),
        ),
    ),
    OpRow(
        "astype",
        lambda a: ops.astype(a, "int64"),
        np.trunc,
        normal(S),
        "to integer",
        dtypes=NUMBERS,
        out_dtype="int64",
        order=0,
    ),
]


def comparison(name: str) -> OpRow:
    """Return the row of a comparison, on a coarse grid, so that equal numbers occur."""
    call, oracle = getattr(ops, name), getattr(np, name)
    return OpRow(
        name,
        call,
        oracle,
        lambda random: tuple(random.integers(0, 3, (2, *S)).astype(float)),
        dtypes=NUMBERS,
        out_dtype="bool",
        order=0,
        failures=(unbroadcastable(name, call),),
    )


SELECTION = [
    *binary("maximum", np.maximum, apart, dtypes=NUMBERS),
    *binary("minimum", np.minimum, apart, dtypes=NUMBERS),
    OpRow("clip", lambda a: ops.clip(a, -0.2, 0.3), lambda a: np.clip(a, -0.2, 0.3), apart(S)),
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
    OpRow(
        "where",
        ops.where,
        np.where,
        lambda random: (random.random(S) < 0.5, *normal(S, S)(random)),
        dtypes=NUMBERS,
        failures=(
            Failure(
                lambda t: ops.where(t(np.ones(3) > 0), t(np.ones(3)), t(np.ones(2))),
                ShapeError,
                "where: shapes must broadcast",
            ),
        ),
    ),
    OpRow(
        "where",
        ops.where,
        np.where,
        lambda random: (random.random((4,)) < 0.5, *normal((3, 1), ())(random)),
        "broadcast",
        resize=False,
    ),
    *(
        comparison(name)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    ),
]


def reduction(name: str, oracle: Any, inputs: Any = normal, **options: Any) -> list[OpRow]:
    """Return rows that reduce over all axes, one, a negative one and several, with keepdims too."""
    call = getattr(ops, name)
    cases: list[tuple[str, Any, bool]] = [
        ("all", None, False),
        ("axis", 1, False),
        ("negative", -1, True),
        ("tuple", (0, 2), False),
        ("kept", (1, -1), True),
        ("none of them", (), False),
    ]
    failures = [bad_axis(name, lambda a: call(a, axes=2))]
    if not options.get("empty", True):
        failures.append(empty_axis(name, call))
    return [
        OpRow(
            name,
            lambda a, axes=axes, kept=kept: call(a, axes=axes, keepdims=kept),
            lambda a, axes=axes, kept=kept: oracle(a, axis=axes, keepdims=kept),
            inputs((3, 4, 2)),
            case,
            failures=tuple(failures),
            **options,
        )
        for case, axes, kept in cases
    ]


REDUCTIONS = [
    *reduction("summation", np.sum),
    *reduction("mean", np.mean, empty=False),
    *reduction("var", np.var, empty=False),
    OpRow(
        "var",
        lambda a: ops.var(a, axes=1, correction=1),
        lambda a: np.var(a, axis=1, ddof=1),
        normal((3, 4)),
        "correction",
        failures=(
            refused(
                lambda a: ops.var(a, axes=1, correction=1),
                "var: there must be more than correction=1 elements",
                (3, 1),
            ),
        ),
    ),
    *reduction("max", np.max, apart, dtypes=NUMBERS, empty=False),
    *reduction("min", np.min, apart, dtypes=NUMBERS, empty=False),
]
