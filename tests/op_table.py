"""The op table: one row or more an op. ``op_table_nn`` has those of convolution, norms and losses.

Adding an op means adding a row here; ``ops/test_op_table`` fails for an op without one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.op_table_nn import NN_ROWS

from needle import ops
from needle.errors import DTypeError, ShapeError, UnknownNameError
from tests.op_row import NUMBERS, Failure, OpRow, apart, normal, positive

S = (3, 4)
ERF = np.vectorize(math.erf, otypes=[float])


def unbroadcastable(name: str, call: Any) -> Failure:
    return Failure(
        lambda t: call(t(np.ones((3, 4))), t(np.ones(3))),
        ShapeError,
        f"{name}: shapes must broadcast (equal or 1 from the right), got (3, 4) and (3,)",
    )


def bad_axis(name: str, call: Any) -> Failure:
    return Failure(
        lambda t: call(t(np.ones((3, 4)))),
        ShapeError,
        f"{name}: axis 2 is out of range for 2 dimensions",
    )


def not_a_number(name: str, call: Any) -> Failure:
    return Failure(
        lambda t: call(t(np.ones(3)), "two"), DTypeError, f"{name}: the scalar must be a real"
    )


def not_one_element(name: str, call: Any) -> Failure:
    return Failure(
        lambda t: call(t(np.ones(3)), np.ones(2)), ShapeError, f"{name}: the scalar must have one"
    )


def empty_axis(name: str, call: Any) -> Failure:
    return Failure(
        lambda t: call(t(np.ones((0, 4)))), ShapeError, f"{name}: needs at least one element"
    )


def binary(name: str, oracle: Any, inputs: Any = normal, **options: Any) -> list[OpRow]:
    """Rows of an op with two broadcasting operands."""
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
    """The row of an op with a tensor and a number."""
    call = getattr(ops, name)
    return OpRow(
        name,
        lambda a: call(a, number),
        lambda a: oracle(a, number),
        inputs(S),
        str(number),
        failures=(not_a_number(name, call), not_one_element(name, call)),
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
    *binary("divide", np.divide, positive),
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
    OpRow(
        "fused_add_scalars",
        lambda a: ops.fused_add_scalars(a, 1.5, -4),
        lambda a: a + 1.5 - 4,
        normal(S),
    ),
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
    unary("leaky_relu", lambda a: np.where(a > 0, a, 0.01 * a), apart),
    OpRow(
        "leaky_relu",
        lambda a: ops.leaky_relu(a, 0.3),
        lambda a: np.where(a > 0, a, 0.3 * a),
        apart(S),
        "slope",
    ),
    unary("erf", ERF),
    unary("gelu", lambda a: a * (0.5 + 0.5 * ERF(a / math.sqrt(2)))),
    OpRow(
        "gelu",
        lambda a: ops.gelu(a, approximate="tanh"),
        gelu_tanh,
        normal(S),
        "tanh",
        failures=(
            Failure(
                lambda t: ops.gelu(t(np.ones(2)), approximate="erf"),
                UnknownNameError,
                "gelu: approximate must be 'none' or 'tanh', got 'erf'",
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
    """Numbers on a coarse grid, so that equal ones occur."""
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
    OpRow("clip", lambda a: ops.clip(a, low=0), lambda a: np.maximum(a, 0), apart(S), "low"),
    OpRow("clip", lambda a: ops.clip(a, high=0), lambda a: np.minimum(a, 0), apart(S), "high"),
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
    """Rows over axes: none given, one, a negative one, several, all kept."""
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
            Failure(
                lambda t: ops.var(t(np.ones((3, 1))), axes=1, correction=1),
                ShapeError,
                "var: needs more than correction=1 elements",
            ),
        ),
    ),
    *reduction("max", np.max, apart, dtypes=NUMBERS, empty=False),
    *reduction("min", np.min, apart, dtypes=NUMBERS, empty=False),
]


def np_dilate(a: Any, axes: tuple[int, ...], dilation: int) -> Any:
    for axis in axes:
        shape = list(a.shape)
        shape[axis] *= dilation + 1
        out = np.zeros(shape, a.dtype)
        out[(slice(None),) * axis + (slice(None, None, dilation + 1),)] = a
        a = out
    return a


SHAPES = [
    OpRow(
        "broadcast_to",
        lambda a: ops.broadcast_to(a, (2, 3, 4)),
        lambda a: np.broadcast_to(a, (2, 3, 4)),
        normal((3, 1)),
        dtypes=NUMBERS,
        resize=False,
        failures=(
            Failure(
                lambda t: ops.broadcast_to(t(np.ones((3, 4))), (3, 5)),
                ShapeError,
                "broadcast_to: ",
            ),
            Failure(
                lambda t: ops.broadcast_to(t(np.ones((3, 4))), (3, 1)),
                ShapeError,
                "broadcast_to: every axis must be equal or of size 1 from the right, got shape "
                "(3, 4) for target (3, 1)",
            ),
        ),
    ),
    OpRow(
        "reshape",
        lambda a: ops.reshape(a, (2, -1)),
        lambda a: a.reshape(2, -1),
        normal(S),
        dtypes=NUMBERS,
        resize=False,
        failures=(
            Failure(
                lambda t: ops.reshape(t(np.ones((3, 4))), (5, 2)),
                ShapeError,
                "reshape: the number of elements must stay 12, got shape (3, 4) to (5, 2)",
            ),
        ),
    ),
    OpRow("expand_dims", lambda a: ops.expand_dims(a, -1), lambda a: a[..., None], normal(S)),
    OpRow(
        "squeeze",
        lambda a: ops.squeeze(a, 1),
        lambda a: a[:, 0],
        normal((3, 1, 2)),
        failures=(
            Failure(
                lambda t: ops.squeeze(t(np.ones((3, 4))), 1),
                ShapeError,
                "squeeze: the axes must have size 1, got axes (1,) of shape (3, 4)",
            ),
        ),
    ),
    OpRow("squeeze", ops.squeeze, np.squeeze, normal((1, 3, 1)), "all", resize=False),
    OpRow(
        "permute",
        lambda a: ops.permute(a, (2, 0, -2)),
        lambda a: a.transpose(2, 0, 1),
        normal((3, 4, 2)),
        dtypes=NUMBERS,
        failures=(
            Failure(
                lambda t: ops.permute(t(np.ones((3, 4))), (0,)),
                ShapeError,
                "permute: every axis must be named once, got (0,) for 2 dimensions",
            ),
            Failure(
                lambda t: ops.permute(t(np.ones((3, 4))), (0, 0)), ShapeError, "permute: axes must"
            ),
        ),
    ),
    OpRow("transpose", ops.transpose, lambda a: a.swapaxes(-1, -2), normal((3, 4, 2))),
    OpRow(
        "transpose",
        lambda a: ops.transpose(a, axes=(0, -1)),
        lambda a: a.swapaxes(0, -1),
        normal((3, 4, 2)),
        "axes",
        failures=(
            Failure(
                lambda t: ops.transpose(t(np.ones((3, 4))), (0, 1, 1)), ShapeError, "transpose: "
            ),
            Failure(
                lambda t: ops.transpose(t(np.ones(3))),
                ShapeError,
                "transpose: axis -2 is out of range for 1 dimensions",
            ),
        ),
    ),
    OpRow("flip", lambda a: ops.flip(a, (0, -1)), lambda a: np.flip(a, (0, -1)), normal((3, 2, 4))),
    OpRow(
        "flip",
        ops.flip,
        np.flip,
        normal(S),
        "all",
        failures=(bad_axis("flip", lambda a: ops.flip(a, 2)),),
    ),
    OpRow(
        "dilate",
        lambda a: ops.dilate(a, (0, 1), 2),
        lambda a: np_dilate(a, (0, 1), 2),
        normal((3, 4, 2)),
        dtypes=NUMBERS,
        failures=(
            Failure(
                lambda t: ops.dilate(t(np.ones(3)), 0, -1),
                ShapeError,
                "dilate: dilation must be at least 0, got -1",
            ),
        ),
    ),
    OpRow(
        "dilate",
        lambda a: ops.dilate(a, (1, 9), 1),
        lambda a: np_dilate(a, (1,), 1),
        normal(S),
        "axes beyond",
    ),
    OpRow("dilate", lambda a: ops.dilate(a, (0, 1), 0), lambda a: a, normal(S), "nothing"),
    OpRow(
        "undilate",
        lambda a: ops.undilate(a, (1,), 1),
        lambda a: a[:, ::2],
        normal(S),
        failures=(
            Failure(
                lambda t: ops.undilate(t(np.ones((3, 4))), (0,), 1),
                ShapeError,
                "undilate: the sizes along the axes must be multiples of 2, got shape (3, 4)",
            ),
        ),
    ),
    OpRow(
        "stack",
        lambda a, b, c: ops.stack([a, b, c], axis=1),
        lambda a, b, c: np.stack([a, b, c], 1),
        normal(S, S, S),
        dtypes=NUMBERS,
        failures=(
            Failure(
                lambda t: ops.stack([t(np.ones(3)), t(np.ones(2))], 0),
                ShapeError,
                "stack: needs one tensor or more, all of one shape, got shapes [(2,), (3,)]",
            ),
        ),
    ),
    OpRow(
        "split",
        lambda a: ops.split(a, 1),
        lambda a: tuple(a[:, i] for i in range(4)),
        normal((3, 4, 2)),
        dtypes=NUMBERS,
        failures=(bad_axis("split", lambda a: ops.split(a, 2)),),
    ),
    OpRow("make_tuple", ops.make_tuple, lambda *a: a, normal(S, (3,))),
    OpRow(
        "tuple_get_item",
        lambda a: ops.tuple_get_item(ops.split(a, 1), 2),
        lambda a: a[:, 2],
        normal(S),
    ),
    OpRow(
        "concatenate",
        lambda a, b: ops.concatenate([a, b], axis=-1),
        lambda a, b: np.concatenate([a, b], -1),
        normal(S, (3, 2)),
        dtypes=NUMBERS,
        failures=(
            Failure(
                lambda t: ops.concatenate([t(np.ones((3, 4))), t(np.ones((2, 4)))], axis=1),
                ShapeError,
                "concatenate: shapes must agree except along axis 1, got [(3, 4), (2, 4)]",
            ),
            Failure(lambda t: ops.concatenate([]), ShapeError, "concatenate: needs one tensor"),
        ),
    ),
]


def matmul(case: str, left: tuple[int, ...], right: tuple[int, ...], **more: Any) -> OpRow:
    return OpRow("matmul", ops.matmul, np.matmul, normal(left, right), case, resize=False, **more)


def mismatch(left: tuple[int, ...], right: tuple[int, ...], message: str) -> Failure:
    return Failure(lambda t: ops.matmul(t(np.ones(left)), t(np.ones(right))), ShapeError, message)


LINALG = [
    matmul(
        "",
        (3, 4),
        (4, 2),
        failures=(
            mismatch((2, 3), (4, 5), "matmul: inner dimensions must agree, got (2, 3) @ (4, 5)"),
            mismatch((2, 3, 4), (3, 4, 5), "matmul: shapes must broadcast"),
            mismatch((), (3, 4), "matmul: inner dimensions must agree, got () @ (3, 4)"),
        ),
    ),
    matmul("batch", (2, 3, 4), (2, 4, 2)),
    matmul("added batch", (5, 2, 3, 4), (4, 2)),
    matmul("repeated batch", (1, 3, 4), (2, 4, 2)),
    matmul("vectors", (4,), (4,)),
    matmul("row", (4,), (2, 4, 3)),
    matmul("column", (2, 3, 4), (4,)),
    matmul("no inner", (3, 0), (0, 2)),
    matmul("empty", (0, 4), (4, 2)),
    matmul("ones", (1, 1), (1, 1)),
    OpRow(
        "matmul_reversed",
        ops.matmul_reversed,
        lambda a, b: b @ a,
        normal((4, 2), (3, 4)),
        resize=False,
    ),
]

PICKED = np.array([[0, 2, 2], [1, -1, 0]])
MASK = np.array([[True, False, True, True]] * 2 + [[False, True, False, False]])


def picking(case: str, index: Any, **more: Any) -> OpRow:
    return OpRow(
        "getitem", lambda a: a[index], lambda a: a[index], normal(S), case, resize=False, **more
    )


INDEXING = [
    picking("int", 1, dtypes=NUMBERS),
    picking("negative", (-1, slice(None, None, -2))),
    picking("slices", (slice(1, None), slice(None, None, 3))),
    picking("newaxis", (..., None, 2)),
    picking("empty", (slice(2, 2),)),
    picking("list", [2, 0, 2], dtypes=NUMBERS),
    picking("array", (PICKED,)),
    picking("arrays", (PICKED, np.array([0, 3, 1]))),
    picking("array and slice", (slice(None), np.array([3, 3, 0]))),
    picking(
        "mask",
        (MASK,),
        failures=(
            Failure(
                lambda t: t(np.ones(3))[t(np.ones(3))],
                DTypeError,
                "getitem: an index array must be integer or bool, got float",
            ),
        ),
    ),
    OpRow(
        "scatter_add",
        lambda a: ops.scatter_add(a, (PICKED,), (4, 2)),
        lambda a: np_scatter_add(a, PICKED, (4, 2)),
        normal((2, 3, 2)),
        resize=False,
    ),
    OpRow(
        "scatter_add",
        lambda a: ops.scatter_add(a, (slice(None, None, 2), 1), (5, 3)),
        lambda a: np_scatter_add(a, (slice(None, None, 2), 1), (5, 3)),
        normal((3,)),
        "slices",
        resize=False,
    ),
    OpRow(
        "embedding",
        lambda weight: ops.embedding(weight, PICKED % 3),
        lambda weight: weight[PICKED % 3],
        normal((3, 4)),
        resize=False,
        failures=(
            Failure(
                lambda t: ops.embedding(t(np.ones((3, 2))), [0, 3]),
                ShapeError,
                "embedding: ids must be in [0, 3), got 3",
            ),
            Failure(
                lambda t: ops.embedding(t(np.ones((3, 2))), [0.5]),
                DTypeError,
                "embedding: ids must be integers, got float64",
            ),
            Failure(
                lambda t: ops.embedding(t(np.ones(3)), [0]),
                ShapeError,
                "embedding: weight must be (V, E), got shape (3,)",
            ),
        ),
    ),
]


def np_scatter_add(a: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape)
    np.add.at(out, index, a)
    return out


ROWS: list[OpRow] = [
    *ARITHMETIC,
    *ELEMENTWISE,
    *SELECTION,
    *REDUCTIONS,
    *SHAPES,
    *LINALG,
    *INDEXING,
    *NN_ROWS,
]
