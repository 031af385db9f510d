"""Rows of the op table: padding, repetition, diagonals, order, elements by position, products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, IndexingError, UnknownNameError
from tests.op_row import NUMBERS, OpRow, S, alike, apart, bad_axis, called, normal, refused, wrong

T = (3, 4, 2)
ORDER_NAMES = ("argmax", "argmin", "argsort")


PADS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
PADDING = [
    called(
        "pad",
        lambda a: np.pad(a, ((0, 0), (1, 2)), constant_values=3),
        normal(S),
        ((0, 0), (1, 2)),
        options={"value": 3},
        dtypes=NUMBERS,
    ),
    called(
        "pad",
        lambda a: np.pad(a[:, :, 1:], ((0, 0), (0, 1), (0, 2))),
        normal((3, 4, 3)),
        (-1, 2, 0, 1),
        case="flat and cutting",
    ),
    *[
        called(
            "pad",
            lambda a, m=name: np.pad(a, ((0, 0), (2, 3), (1, 0)), mode=m),
            normal(T),
            ((0, 0), (2, 3), (1, 0)),
            mode,
            case=mode,
            dtypes=NUMBERS,
        )
        for mode, name in PADS.items()
    ],
]

REPETITION = [
    alike("roll", np.roll, normal(T), (1, -5), (-1, 1), dtypes=NUMBERS),
    alike("roll", np.roll, normal(S), 5, case="all"),
    alike("tile", np.tile, normal(S), (2, 1, 3), dtypes=NUMBERS),
    called("repeat", lambda a: np.tile(a, (3, 2)), normal(S), 3, 2),
    alike("repeat_interleave", np.repeat, normal(S), [2, 0, 1, 3], 1, dtypes=NUMBERS),
    alike("repeat_interleave", np.repeat, normal(S), 3, case="all"),
]


def matrix(name: str, oracle: Any, shape: Any, *args: int, **more: Any) -> OpRow:
    case = " ".join(map(str, (shape, *args)))
    return alike(name, oracle, normal(shape), *args, case=case, resize=False, **more)


TRIANGLES = [
    *[
        matrix(name, oracle, shape, k)
        for name, oracle in [("tril", np.tril), ("triu", np.triu)]
        for k, shape in [(0, (2, 3, 4)), (-1, (4, 3)), (2, (0, 3))]
    ],
    alike("tril", np.tril, normal((2, 3, 3)), dtypes=NUMBERS),
    matrix("diagonal", np.diagonal, (3, 4, 2)),
    *[matrix("diagonal", np.diagonal, (3, 2, 4), k, -1, 0) for k in (1, -2, 7)],
    *[matrix("diag", np.diag, s, k) for k, s in [(0, (3,)), (2, (3,)), (-1, (2,)), (1, (3, 4))]],
    alike("diag", np.diag, normal((3,))),
    alike("trace", np.trace, normal((3, 3))),
]

ZEROS = np.array([[1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]])
CUMULATIVE = [
    alike("cumsum", np.cumsum, normal(T), 1),
    called(
        "cumsum",
        lambda a: np.cumsum(a[..., ::-1], -1)[..., ::-1],
        normal((3, 7)),
        -1,
        options={"reverse": True},
        case="reverse",
    ),
    alike("cumprod", np.cumprod, normal((3, 6)), -1),
    *[
        called(
            "prod",
            lambda a, i=axes, k=keepdims: np.prod(a, i, keepdims=k),
            normal(T),
            axes,
            keepdims,
            case=f"axes {axes} keepdims {keepdims}",
        )
        for axes, keepdims in [(None, False), (1, True), ((0, -1), False)]
    ],
    OpRow(
        "prod",
        lambda a: ops.prod(a * ZEROS, 1),
        lambda a: np.prod(a * ZEROS, 1),
        normal(S),
        "with one zero and with two",
        dtypes=("float64",),
        resize=False,
    ),
]


def np_norm(a: Any, p: float, axis: Any, keepdims: bool) -> Any:
    if p == 0:
        return (a != 0).sum(axis, keepdims=keepdims)
    if math.isinf(p):
        return (np.max if p > 0 else np.min)(np.abs(a), axis, keepdims=keepdims)
    return (np.abs(a) ** p).sum(axis, keepdims=keepdims) ** (1 / p)


def np_cosine_similarity(a: Any, b: Any, axis: int, eps: float) -> Any:
    lengths = [np.maximum(np_norm(each, 2, axis, False), eps) for each in (a, b)]
    return (a * b).sum(axis) / lengths[0] / lengths[1]


NORMS = [
    *[
        alike(
            "norm",
            np_norm,
            apart(T),
            p,
            (0, -1),
            True,
            case=f"p {p}",
            order=2 if p else 1,
            empty=p >= 1 and p != math.inf,
        )
        for p in (0, 0.5, 1, 2, 3, -1, math.inf, -math.inf)
    ],
    called("norm", lambda a: np_norm(a, 2, None, False), normal(T)),
    *[
        called(
            "normalize",
            lambda a, p=p, axis=axis: a / np.maximum(np_norm(a, p, axis, True), 1.5),
            normal(T),
            p,
            axis,
            1.5,
            case=f"p {p} axis {axis}",
        )
        for p, axis in ((2, 1), (1, 0), (3, -1))
    ],
    called("normalize", lambda a: a, lambda r: (np.zeros(S),), options={"eps": 1.0}, case="zeros"),
    alike(
        "cosine_similarity",
        np_cosine_similarity,
        normal((2, 3, 4), (3, 4)),
        -1,
        0.5,
        resize=False,
    ),
    *[
        called(
            "std",
            lambda a, c=correction: np.std(a, 1, ddof=c),
            normal(S),
            1,
            options={"correction": correction},
            case=f"{correction}",
        )
        for correction in (0, 1)
    ],
]

ORDERED = [
    *[
        alike(
            name,
            getattr(np, name),
            apart(T),
            axis,
            case=f"{axis}",
            dtypes=NUMBERS,
            out_dtype="int64",
            order=0,
            empty=axis == 1,
        )
        for name in ORDER_NAMES
        for axis in (1, *((None,) if name != "argsort" else ()))
    ],
    *[
        OpRow(
            "sort",
            lambda a, d=descending: ops.sort(a, 1, d).values,
            lambda a, d=descending: -np.sort(-a, 1) if d else np.sort(a, 1),
            apart(T),
            f"descending {descending}",
            dtypes=NUMBERS,
        )
        for descending in (False, True)
    ],
    OpRow("topk", lambda a: ops.topk(a, 2).values, lambda a: -np.sort(-a, -1)[..., :2], apart(S)),
    OpRow(
        "topk",
        lambda a: ops.topk(a, 2, 1, largest=False)[1],
        lambda a: np.argsort(a, 1)[:, :2],
        apart(S),
        "smallest",
        out_dtype="int64",
        order=0,
    ),
]

INDEX = np.array([[2, 0, 0], [3, 3, 1]])
MASK = np.array([True, False, False, True])


def np_scatter(a: Any, src: Any, add: bool) -> Any:
    out = a.copy()
    for i, j in np.ndindex(INDEX.shape):
        out[i, INDEX[i, j]] = src[i, j] + (out[i, INDEX[i, j]] if add else 0)
    return out


GROUPS = [0, 2, 1, 1, 2, 0, 2]
POSITIONS = [
    called(
        "gather",
        lambda a: np.take_along_axis(a[:2], INDEX, 1),
        normal(S),
        1,
        INDEX,
        dtypes=NUMBERS,
        resize=False,
    ),
    *[
        OpRow(
            "scatter",
            lambda a, b, r=reduce: ops.scatter(a, 1, INDEX, b, r),
            lambda a, b, r=reduce: np_scatter(a, b, r == "add"),
            normal(S, S),
            str(reduce),
            resize=False,
        )
        for reduce in (None, "add")
    ],
    *[
        OpRow(
            "confusion_matrix",
            lambda a, n=size: ops.confusion_matrix(a.argmax(1), GROUPS, n),
            lambda a, n=size: np.histogram2d(GROUPS, a.argmax(1), np.arange((n or 3) + 1) - 0.5)[0],
            lambda random: (np.eye(3)[random.integers(0, 3, 7)],),
            f"{size}",
            dtypes=NUMBERS,
            out_dtype="int64",
            order=0,
            resize=False,
        )
        for size in (None, 4)
    ],
    called("index_select", lambda a: a[:, [3, 0, 0]], normal(T), 1, [3, 0, 0], dtypes=NUMBERS),
    called("masked_fill", lambda a: np.where(MASK, 2, a), normal(S), MASK, 2, dtypes=NUMBERS),
]

EINSUM = [
    OpRow(
        "einsum",
        lambda *a, s=subscripts: ops.einsum(s, *a),
        lambda *a, s=subscripts: np.einsum(s, *a),
        normal(*shapes),
        subscripts,
        resize=False,
    )
    for subscripts, shapes in [
        ("ij,jk->ik", ((3, 4), (4, 2))),
        ("bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4))),
        ("...ij,...jk", ((2, 1, 3, 2), (3, 2, 4))),
        ("iij->j", ((3, 3, 2),)),
        ("ab,bc,cd->da", ((2, 3), (3, 2), (2, 4))),
        ("i,j,i->ij", ((3,), (2,), (3,))),
    ]
]


def between_steps(random: np.random.Generator) -> tuple[Any, ...]:
    """Return an input away from integers and half-integers."""
    return (random.integers(-6, 6, S) / 2 + random.uniform(0.05, 0.45, S),)


ROUNDING = [
    alike(name, getattr(np, name), between_steps, dtypes=NUMBERS, order=1)
    for name in ("floor", "ceil", "round", "trunc", "sign")
]


def special(random: np.random.Generator) -> tuple[Any, ...]:
    return (random.choice([0.0, -1.0, 2.5, np.nan, np.inf, -np.inf], S),)


def two_truths(random: np.random.Generator) -> tuple[Any, ...]:
    return random.integers(0, 2, S) * 1.0, random.integers(0, 2, S) * 2.0


CHECKS = [
    alike(name, getattr(np, name), inputs, out_dtype="bool", order=0)
    for names, inputs in (
        ("isnan isinf isfinite logical_not", special),
        ("logical_and logical_or", two_truths),
    )
    for name in names.split()
]

FLAT = [
    called(
        "flatten",
        lambda a: a.reshape(a.shape[0], 8, 3),
        normal((3, 4, 2, 3)),
        1,
        -2,
        dtypes=NUMBERS,
    ),
    called("flatten", np.ravel, normal(S), case="all"),
    called("permute", np.transpose, normal(S), 1, 0, case="by numbers"),
    OpRow("transpose", lambda a: a.transpose(0, 1), np.transpose, normal(S), "by numbers"),
]

POSITION_ROWS = [
    *CHECKS,
    *FLAT,
    *PADDING,
    *REPETITION,
    *TRIANGLES,
    *CUMULATIVE,
    *NORMS,
    *ORDERED,
    *POSITIONS,
    *EINSUM,
    *ROUNDING,
]

POSITION_FAILURES = [
    *[wrong("pad", "widths must be pairs for every", w) for w in ((1, 2, 3), ((1, 1),), (1,) * 6)],
    wrong("pad", "no size may become negative", (-3, -2)),
    wrong("pad", "mode 'reflect' can add at most 3 elements to an axis of", (0, 4), "reflect"),
    wrong("pad", "mode must be 'constant', ", (0, 1), "edge", error=UnknownNameError),
    wrong("roll", "there must be one shift for each", (1, 2), 0),
    bad_axis("roll", 1, 2),
    wrong("tile", "repetitions must be at least 0", -1),
    wrong("repeat", "there must be a number of repetitions for each axis", 3),
    wrong("repeat_interleave", "repeats must be one number or 4 numbers, none negative", [1, 2], 1),
    wrong("tril", "the tensor must have at least 2 axes", on=((3,),)),
    wrong("diag", "the tensor must be a", on=(T,)),
    wrong("trace", "the tensor must be a matrix", on=(T,)),
    *[bad_axis(name, 2) for name in ("cumsum", "cumprod", "prod", *ORDER_NAMES, "sort", "flatten")],
    wrong("norm", "p must be a number", "nuc", error=UnknownNameError),
    wrong("norm", "there must be at least one element", math.inf, on=((0, 2),)),
    refused(lambda a: ops.normalize(a, axis=2), "norm: axis 2 is out of range for 2 dimensions"),
    wrong("cosine_similarity", "shapes must broadcast", on=(S, (2, 4))),
    wrong("std", "there must be more than correction=4", 1, correction=4),
    wrong("topk", "k must be in [0, 4]", 5),
    wrong(
        "gather",
        "the index must be in [0, 3), got 3; correct it, or axis 0",
        0,
        INDEX,
        error=IndexingError,
    ),
    wrong("gather", "the index must have as many axes", 0, [0]),
    wrong("gather", "the index must be integers", 0, [[0.5]], error=DTypeError),
    refused(lambda a: ops.scatter(a, 1, INDEX, a[:1]), "scatter: src must have as"),
    wrong("scatter", "reduce must be None or 'add'", 1, INDEX, 0.0, "max", error=ValueError),
    refused(lambda a: ops.confusion_matrix(a, a), "predicted must be", error=DTypeError),
    refused(lambda a: ops.confusion_matrix(a.argmax(1), [0]), "have the same shape"),
    wrong("confusion_matrix", "sizes must not be negative", [], [], -1, on=()),
    wrong("confusion_matrix", "num_classes must be an int", [0], [0], 1.5, on=(), error=DTypeError),
    *[
        wrong(
            "confusion_matrix",
            f"classes must be in [0, 2), got {class_}",
            [1, 0],
            given,
            2,
            on=(),
            error=IndexingError,
        )
        for class_, given in ((2, [0, 2]), (-1, [-1, 0]))
    ],
    wrong(
        "index_select",
        "the index must be in [0, 4), got 4; correct it, or axis 1",
        1,
        [4],
        error=IndexingError,
    ),
    wrong("index_select", "the index must have", 1, [[0]]),
    refused(lambda a: ops.masked_fill(a, MASK, a), "masked_fill: the value"),
    *[
        refused(lambda a, s=subscripts, n=count: ops.einsum(s, *[a] * n), f"einsum: {message}")
        for subscripts, count, message in (
            ("ij", 2, "there must be 1 operands"),
            ("ij,jk", 2, "a label must have the same size"),
            ("i", 1, "each axis needs a label"),
            ("ij->ik", 1, "the labels of the result must"),
        )
    ],
    wrong("flatten", "start must not be after end", 1, 0),
]
