"""Rows of the op table: padding, repetition, diagonals, order, elements by position, products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, IndexingError, UnknownNameError
from tests.op_row import NUMBERS, OpRow, apart, bad_axis, normal, refused

S = (3, 4)
T = (3, 4, 2)
ORDER_NAMES = ("argmax", "argmin", "argsort")


PADS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
PADDING = [
    OpRow(
        "pad",
        lambda a: ops.pad(a, ((0, 0), (1, 2)), value=3),
        lambda a: np.pad(a, ((0, 0), (1, 2)), constant_values=3),
        normal(S),
        dtypes=NUMBERS,
        failures=(
            refused(lambda a: ops.pad(a, (1, 2, 3)), "pad: widths must be pairs for every axis"),
            refused(lambda a: ops.pad(a, ((1, 1),)), "pad: widths must be pairs for every axis"),
            refused(lambda a: ops.pad(a, (1,) * 6), "pad: widths must be pairs for every axis"),
            refused(lambda a: ops.pad(a, (-3, -2)), "pad: no size may become negative"),
            refused(
                lambda a: ops.pad(a, (0, 4), "reflect"),
                "pad: mode 'reflect' can add at most 3 elements to an axis of size 4, got widths",
            ),
            refused(
                lambda a: ops.pad(a, (0, 1), "edge"),
                "pad: mode must be one of",
                error=UnknownNameError,
            ),
        ),
    ),
    OpRow(
        "pad",
        lambda a: ops.pad(a, (-1, 2, 0, 1)),
        lambda a: np.pad(a[:, :, 1:], ((0, 0), (0, 1), (0, 2))),
        normal((3, 4, 3)),
        "flat and cutting",
    ),
    *[
        OpRow(
            "pad",
            lambda a, m=mode: ops.pad(a, ((0, 0), (2, 3), (1, 0)), m),
            lambda a, m=name: np.pad(a, ((0, 0), (2, 3), (1, 0)), mode=m),
            normal(T),
            mode,
            dtypes=NUMBERS,
        )
        for mode, name in PADS.items()
    ],
]

REPETITION = [
    OpRow(
        "roll",
        lambda a: ops.roll(a, (1, -5), (-1, 1)),
        lambda a: np.roll(a, (1, -5), (-1, 1)),
        normal(T),
        dtypes=NUMBERS,
        failures=(
            refused(lambda a: ops.roll(a, (1, 2), 0), "roll: there must be one shift for each"),
            bad_axis("roll", lambda a: ops.roll(a, 1, 2)),
        ),
    ),
    OpRow("roll", lambda a: ops.roll(a, 5), lambda a: np.roll(a, 5), normal(S), "all"),
    OpRow(
        "tile",
        lambda a: ops.tile(a, (2, 1, 3)),
        lambda a: np.tile(a, (2, 1, 3)),
        normal(S),
        dtypes=NUMBERS,
        failures=(refused(lambda a: ops.tile(a, -1), "tile: repetitions must be at least 0"),),
    ),
    OpRow(
        "repeat",
        lambda a: ops.repeat(a, 3, 2),
        lambda a: np.tile(a, (3, 2)),
        normal(S),
        failures=(
            refused(lambda a: ops.repeat(a, 3), "repeat: there must be a repetition for each axis"),
        ),
    ),
    OpRow(
        "repeat_interleave",
        lambda a: ops.repeat_interleave(a, [2, 0, 1, 3], 1),
        lambda a: np.repeat(a, [2, 0, 1, 3], 1),
        normal(S),
        dtypes=NUMBERS,
        failures=(
            refused(
                lambda a: ops.repeat_interleave(a, [1, 2], 1),
                "repeat_interleave: repeats must be one number or 4, of at least 0",
            ),
        ),
    ),
    OpRow(
        "repeat_interleave",
        lambda a: ops.repeat_interleave(a, 3),
        lambda a: np.repeat(a, 3),
        normal(S),
        "all",
    ),
]


def matrix(name: str, case: str, call: Any, oracle: Any, shape: Any, **more: Any) -> OpRow:
    return OpRow(name, call, oracle, normal(shape), case, resize=False, **more)


TRIANGLES = [
    *[
        matrix(
            name, f"{k}", lambda a, k=k, f=ours: f(a, k), lambda a, k=k, f=oracle: f(a, k), shape
        )
        for name, ours, oracle in [("tril", ops.tril, np.tril), ("triu", ops.triu, np.triu)]
        for k, shape in [(0, (2, 3, 4)), (-1, (4, 3)), (2, (0, 3))]
    ],
    OpRow(
        "tril",
        ops.tril,
        np.tril,
        normal((2, 3, 3)),
        dtypes=NUMBERS,
        failures=(refused(ops.tril, "tril: the tensor must have at least 2 axes", (3,)),),
    ),
    matrix("diagonal", "", ops.diagonal, np.diagonal, (3, 4, 2)),
    *[
        matrix(
            "diagonal",
            f"{k}",
            lambda a, k=k: ops.diagonal(a, k, -1, 0),
            lambda a, k=k: np.diagonal(a, k, -1, 0),
            (3, 2, 4),
        )
        for k in (1, -2, 7)
    ],
    *[
        matrix(
            "diag",
            f"{shape} {k}",
            lambda a, k=k: ops.diag(a, k),
            lambda a, k=k: np.diag(a, k),
            shape,
        )
        for k, shape in [(0, (3,)), (2, (3,)), (-1, (2,)), (1, (3, 4))]
    ],
    OpRow(
        "diag",
        ops.diag,
        np.diag,
        normal((3,)),
        failures=(refused(ops.diag, "diag: the tensor must be a", T),),
    ),
    OpRow(
        "trace",
        ops.trace,
        np.trace,
        normal((3, 3)),
        failures=(refused(ops.trace, "trace: the tensor must be a matrix", T),),
    ),
]

ZEROS = np.array([[1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]])
CUMULATIVE = [
    OpRow(
        "cumsum",
        lambda a: ops.cumsum(a, 1),
        lambda a: np.cumsum(a, 1),
        normal(T),
        failures=(bad_axis("cumsum", lambda a: ops.cumsum(a, 2)),),
    ),
    OpRow(
        "cumsum",
        lambda a: ops.cumsum(a, -1, reverse=True),
        lambda a: np.cumsum(a[..., ::-1], -1)[..., ::-1],
        normal((3, 7)),
        "reverse",
    ),
    OpRow(
        "cumprod",
        lambda a: ops.cumprod(a, -1),
        lambda a: np.cumprod(a, -1),
        normal((3, 6)),
        failures=(bad_axis("cumprod", lambda a: ops.cumprod(a, 2)),),
    ),
    *[
        OpRow(
            "prod",
            lambda a, i=axes, k=keepdims: ops.prod(a, i, k),
            lambda a, i=axes, k=keepdims: np.prod(a, i, keepdims=k),
            normal(T),
            f"axes {axes} keepdims {keepdims}",
            failures=(bad_axis("prod", lambda a: ops.prod(a, 2)),),
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


NORMS = [
    *[
        OpRow(
            "norm",
            lambda a, p=p: ops.norm(a, p, (0, -1), True),
            lambda a, p=p: np_norm(a, p, (0, -1), True),
            apart(T),
            f"p {p}",
            order=2 if p else 1,
            empty=p >= 1 and p != math.inf,
        )
        for p in (0, 0.5, 1, 2, 3, -1, math.inf, -math.inf)
    ],
    OpRow(
        "norm",
        ops.norm,
        lambda a: np_norm(a, 2, None, False),
        normal(T),
        failures=(
            refused(
                lambda a: ops.norm(a, "nuc"), "norm: p must be a number", error=UnknownNameError
            ),
            refused(
                lambda a: ops.norm(a, math.inf), "norm: there must be at least one element", (0, 2)
            ),
        ),
    ),
    *[
        OpRow(
            "normalize",
            lambda a, p=p, axis=axis: ops.normalize(a, p, axis, 1.5),
            lambda a, p=p, axis=axis: a / np.maximum(np_norm(a, p, axis, True), 1.5),
            normal(T),
            f"p {p} axis {axis}",
            failures=(bad_axis("norm", lambda a: ops.normalize(a, axis=2)),),
        )
        for p, axis in ((2, 1), (1, 0), (3, -1))
    ],
    OpRow(
        "normalize",
        lambda a: ops.normalize(a, eps=1.0),
        lambda a: a,
        lambda random: (np.zeros(S),),
        "zeros",
    ),
    OpRow(
        "cosine_similarity",
        lambda a, b: ops.cosine_similarity(a, b, -1, 0.5),
        lambda a, b: (
            (a * b).sum(-1)
            / np.maximum(np_norm(a, 2, -1, False), 0.5)
            / np.maximum(np_norm(b, 2, -1, False), 0.5)
        ),
        normal((2, 3, 4), (3, 4)),
        resize=False,
        failures=(
            refused(ops.cosine_similarity, "cosine_similarity: shapes must broadcast", S, (2, 4)),
        ),
    ),
    *[
        OpRow(
            "std",
            lambda a, c=correction: ops.std(a, 1, correction=c),
            lambda a, c=correction: np.std(a, 1, ddof=c),
            normal(S),
            f"{correction}",
            failures=(
                refused(
                    lambda a: ops.std(a, 1, correction=4),
                    "std: there must be more than correction=4",
                ),
            ),
        )
        for correction in (0, 1)
    ],
]

ORDERED = [
    *[
        OpRow(
            name,
            lambda a, n=name, i=axis: getattr(ops, n)(a, i),
            lambda a, n=name, i=axis: getattr(np, n)(a, i),
            apart(T),
            f"{axis}",
            dtypes=NUMBERS,
            out_dtype="int64",
            order=0,
            empty=axis == 1,
            failures=(bad_axis(name, lambda a, n=name: getattr(ops, n)(a, 2)),),
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
            failures=(bad_axis("sort", lambda a: ops.sort(a, 2)),),
        )
        for descending in (False, True)
    ],
    OpRow(
        "topk",
        lambda a: ops.topk(a, 2).values,
        lambda a: -np.sort(-a, -1)[..., :2],
        apart(S),
        failures=(refused(lambda a: ops.topk(a, 5), "topk: k must be in [0, 4]"),),
    ),
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


def np_scatter(a: Any, src: Any, add: bool) -> Any:
    out = a.copy()
    for i, j in np.ndindex(INDEX.shape):
        out[i, INDEX[i, j]] = src[i, j] + (out[i, INDEX[i, j]] if add else 0)
    return out


GROUPS = [0, 2, 1, 1, 2, 0, 2]
POSITIONS = [
    OpRow(
        "gather",
        lambda a: ops.gather(a, 1, INDEX),
        lambda a: np.take_along_axis(a[:2], INDEX, 1),
        normal(S),
        dtypes=NUMBERS,
        resize=False,
        failures=(
            refused(
                lambda a: ops.gather(a, 0, INDEX),
                "gather: the index must be in [0, 3) for axis 0, got 3",
                error=IndexingError,
            ),
            refused(lambda a: ops.gather(a, 0, [0]), "gather: the index must have as many axes"),
            refused(
                lambda a: ops.gather(a, 0, [[0.5]]),
                "gather: the index must be integers",
                error=DTypeError,
            ),
        ),
    ),
    *[
        OpRow(
            "scatter",
            lambda a, b, r=reduce: ops.scatter(a, 1, INDEX, b, r),
            lambda a, b, r=reduce: np_scatter(a, b, r == "add"),
            normal(S, S),
            str(reduce),
            resize=False,
            failures=(
                refused(lambda a: ops.scatter(a, 1, INDEX, a[:1]), "scatter: src must have as"),
                refused(
                    lambda a: ops.scatter(a, 1, INDEX, 0.0, "max"),
                    "scatter: reduce must be None or 'add'",
                    error=ValueError,
                ),
            ),
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
            failures=(
                refused(
                    lambda a: ops.confusion_matrix(a, a), "predicted must be", error=DTypeError
                ),
                refused(lambda a: ops.confusion_matrix(a.argmax(1), [0]), "have one shape"),
                refused(lambda a: ops.confusion_matrix([], [], -1), "must not be negative"),
                refused(
                    lambda a: ops.confusion_matrix([0], [0], 1.5),
                    "num_classes must be an int",
                    error=DTypeError,
                ),
                *(
                    refused(
                        lambda a, wrong=wrong: ops.confusion_matrix([1, 0], wrong, 2),
                        f"classes must be in [0, 2), got {max(wrong, key=abs)}",
                        error=IndexingError,
                    )
                    for wrong in ([0, 2], [-1, 0])
                ),
            ),
        )
        for size in (None, 4)
    ],
    OpRow(
        "index_select",
        lambda a: ops.index_select(a, 1, [3, 0, 0]),
        lambda a: a[:, [3, 0, 0]],
        normal(T),
        dtypes=NUMBERS,
        failures=(
            refused(
                lambda a: ops.index_select(a, 1, [4]),
                "index_select: the index must be in [0, 4) for axis 1, got 4",
                error=IndexingError,
            ),
            refused(lambda a: ops.index_select(a, 1, [[0]]), "index_select: the index must have"),
        ),
    ),
    OpRow(
        "masked_fill",
        lambda a: ops.masked_fill(a, np.array([True, False, False, True]), 2),
        lambda a: np.where([True, False, False, True], 2, a),
        normal(S),
        dtypes=NUMBERS,
        failures=(
            refused(lambda a: ops.masked_fill(a, np.ones(4, bool), a), "masked_fill: the value"),
        ),
    ),
]

EINSUM = [
    OpRow(
        "einsum",
        lambda *a, s=subscripts: ops.einsum(s, *a),
        lambda *a, s=subscripts: np.einsum(s, *a),
        normal(*shapes),
        subscripts,
        resize=False,
        failures=(
            refused(lambda a: ops.einsum("ij", a, a), "einsum: there must be 1 operands"),
            refused(lambda a: ops.einsum("ij,jk", a, a), "einsum: a label needs one size"),
            refused(lambda a: ops.einsum("i", a), "einsum: each axis needs a label"),
            refused(lambda a: ops.einsum("ij->ik", a), "einsum: the labels of the result must"),
        ),
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


def between_steps(*shapes: Any) -> Any:
    """Return inputs away from integers and half-integers."""

    def make(random: np.random.Generator) -> tuple[Any, ...]:
        return tuple(random.integers(-6, 6, s) / 2 + random.uniform(0.05, 0.45, s) for s in shapes)

    return make


ROUNDING = [
    OpRow(name, getattr(ops, name), getattr(np, name), between_steps(S), dtypes=NUMBERS, order=1)
    for name in ("floor", "ceil", "round", "trunc", "sign")
]

CHECKS = [
    *[
        OpRow(
            name,
            lambda a, n=name: getattr(ops, n)(a),
            lambda a, n=name: getattr(np, n)(a),
            lambda random: (random.choice([0.0, -1.0, 2.5, np.nan, np.inf, -np.inf], S),),
            out_dtype="bool",
            order=0,
        )
        for name in ("isnan", "isinf", "isfinite", "logical_not")
    ],
    *[
        OpRow(
            name,
            lambda a, b, n=name: getattr(ops, n)(a, b),
            lambda a, b, n=name: getattr(np, n)(a, b),
            lambda random: (random.integers(0, 2, S) * 1.0, random.integers(0, 2, S) * 2.0),
            out_dtype="bool",
            order=0,
        )
        for name in ("logical_and", "logical_or")
    ],
]

FLAT = [
    OpRow(
        "flatten",
        lambda a: ops.flatten(a, 1, -2),
        lambda a: a.reshape(a.shape[0], 8, 3),
        normal((3, 4, 2, 3)),
        dtypes=NUMBERS,
        failures=(
            refused(lambda a: ops.flatten(a, 1, 0), "flatten: start must not be after end"),
            bad_axis("flatten", lambda a: ops.flatten(a, 2)),
        ),
    ),
    OpRow("flatten", ops.flatten, np.ravel, normal(S), "all"),
    OpRow("permute", lambda a: ops.permute(a, 1, 0), np.transpose, normal(S), "by numbers"),
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
