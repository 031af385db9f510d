"""Rows of the op table: rearranging, joining and indexing elements, and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, IndexingError, ShapeError
from tests.op_row import NUMBERS, Failure, OpRow, S, alike, bad_axis, called, normal, refused, wrong

T = (3, 4, 2)


def np_dilate(a: Any, axes: tuple[int, ...], dilation: int) -> Any:
    for axis in axes:
        shape = list(a.shape)
        shape[axis] *= dilation + 1
        out = np.zeros(shape, a.dtype)
        out[(slice(None),) * axis + (slice(None, None, dilation + 1),)] = a
        a = out
    return a


SHAPES = [
    alike("broadcast_to", np.broadcast_to, normal((3, 1)), (2, 3, 4), dtypes=NUMBERS, resize=False),
    alike("reshape", np.reshape, normal(S), (2, -1), dtypes=NUMBERS, resize=False),
    OpRow(
        "broadcast_to",
        lambda a: a.expand(2, -1, 4),
        lambda a: np.broadcast_to(a, (2, *a.shape[:-1], 4)),
        normal((3, 1)),
        "kept sizes",
    ),
    alike("expand_dims", np.expand_dims, normal(S), -1),
    alike("squeeze", np.squeeze, normal((3, 1, 2)), 1),
    OpRow(
        "squeeze",
        lambda a: a.squeeze((0, -2)),
        lambda a: a[:, :, 0],
        normal((3, 4, 1, 2)),
        "kept",
        resize=False,
    ),
    alike("squeeze", np.squeeze, normal((1, 3, 1)), case="all", resize=False),
    alike("permute", np.transpose, normal(T), (2, 0, -2), dtypes=NUMBERS),
    called("transpose", lambda a: a.swapaxes(-1, -2), normal(T)),
    called("transpose", lambda a: a.swapaxes(0, -1), normal(T), (0, -1), case="axes"),
    OpRow("transpose", lambda a: a.transpose(-1, 1), lambda a: a, normal(S), "same axis"),
    OpRow("transpose", lambda a: a.T, lambda a: a.T, normal(S), "T"),
    OpRow("transpose", lambda a: a.mT, lambda a: a.swapaxes(-1, -2), normal((2, 3, 4)), "mT"),
    OpRow(
        "transpose",
        lambda a, b: ops.make_tuple(a.t(), b.t()),
        lambda a, b: (a.T, b),
        normal(S, (3,)),
        "t",
    ),
    alike("flip", np.flip, normal((3, 2, 4)), (0, -1)),
    alike("flip", np.flip, normal(S), case="all"),
    alike("dilate", np_dilate, normal(T), (0, 1), 2, dtypes=NUMBERS),
    called("dilate", lambda a: np_dilate(a, (1,), 1), normal(S), (1, 9), 1, case="axes beyond"),
    called("dilate", lambda a: a, normal(S), (0, 1), 0, case="nothing"),
    called("undilate", lambda a: a[:, ::2], normal(S), (1,), 1),
    OpRow(
        "stack",
        lambda a, b, c: ops.stack([a, b, c], axis=1),
        lambda a, b, c: np.stack([a, b, c], 1),
        normal(S, S, S),
        dtypes=NUMBERS,
    ),
    called("split", lambda a: tuple(a[:, i] for i in range(4)), normal(T), 1, dtypes=NUMBERS),
    OpRow(
        "split",
        lambda a: a.unbind(-1),
        lambda a: tuple(a[..., i] for i in range(4)),
        normal(S),
        "unbind",
    ),
    *[
        OpRow(
            "split_with_sizes",
            lambda a, sizes=sizes: a.split(sizes, -1),
            lambda a, ends=ends: tuple(np.split(a, ends, -1)),
            normal((3, 5)),
            f"{sizes}",
            dtypes=NUMBERS,
        )
        for sizes, ends in (([1, 0, 4], [1, 1]), (2, [2, 4]), (9, []))
    ],
    OpRow(
        "split_with_sizes",
        lambda a: a.split(np.array([1, 1])),
        lambda a: tuple(np.split(a, 2)),
        normal((2, 3)),
        "array of sizes",
        resize=False,
    ),
    *[
        OpRow(
            "chunk",
            lambda a, n=count: a.chunk(n, 1),
            lambda a, ends=ends: tuple(np.split(a, ends, 1)),
            normal((3, 5)),
            f"{count}",
        )
        for count, ends in ((2, [3]), (4, [2, 4]), (9, [1, 2, 3, 4]))
    ],
    OpRow("chunk", lambda a: a.chunk(2), lambda a: (a, a), normal((0, 3)), "nothing", resize=False),
    called("make_tuple", lambda *a: a, normal(S, (3,))),
    OpRow(
        "tuple_get_item",
        lambda a: ops.tuple_get_item(ops.split(a, 1), 2),
        lambda a: a[:, 2],
        normal(S),
    ),
    called("fused_add_scalars", lambda a: (a + 1.5, a - 4), normal(S), 1.5, -4),
    OpRow(
        "concatenate",
        lambda a, b: ops.concatenate([a, b], axis=-1),
        lambda a, b: np.concatenate([a, b], -1),
        normal(S, (3, 2)),
        dtypes=NUMBERS,
    ),
]

LINALG = [
    *[
        alike("matmul", np.matmul, normal(left, right), case=case, resize=False)
        for case, left, right in (
            ("", (3, 4), (4, 2)),
            ("batch", (2, 3, 4), (2, 4, 2)),
            ("added batch", (5, 2, 3, 4), (4, 2)),
            ("repeated batch", (1, 3, 4), (2, 4, 2)),
            ("vectors", (4,), (4,)),
            ("row", (4,), (2, 4, 3)),
            ("column", (2, 3, 4), (4,)),
            ("no inner", (3, 0), (0, 2)),
            ("empty", (0, 4), (4, 2)),
            ("ones", (1, 1), (1, 1)),
        )
    ],
    called("matmul_reversed", lambda a, b: b @ a, normal((4, 2), (3, 4)), resize=False),
]

PICKED = np.array([[0, 2, 2], [1, -1, 0]])
MASK = np.array([[True, False, True, True]] * 2 + [[False, True, False, False]])
EVEN_ROWS = (slice(None, None, 2), 1)


def picking(case: str, index: Any, **more: Any) -> OpRow:
    return OpRow(
        "getitem", lambda a: a[index], lambda a: a[index], normal(S), case, resize=False, **more
    )


def np_scatter_add(a: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape)
    np.add.at(out, index, a)
    return out


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
    picking("mask", (MASK,)),
    alike("scatter_add", np_scatter_add, normal((2, 3, 2)), (PICKED,), (4, 2), resize=False),
    alike(
        "scatter_add", np_scatter_add, normal((3,)), EVEN_ROWS, (5, 3), case="slices", resize=False
    ),
    called("embedding", lambda weight: weight[PICKED % 3], normal(S), PICKED % 3, resize=False),
]


def scattered(a: Any, index: Any, shape: Any, message: str, error: Any = ShapeError) -> Failure:
    """Return a call of scatter_add that must fail for a tensor of shape ``a``."""
    return refused(lambda a: ops.scatter_add(a, index, shape), message, a, error=error)


MOVEMENT_FAILURES = [
    wrong("broadcast_to", "", (3, 5)),
    wrong(
        "broadcast_to",
        "every axis must be equal or of size 1 from the right, got shape (3, 4) for target (3, 1)",
        (3, 1),
    ),
    refused(lambda a: a.expand(-1, 3, 4), "broadcast_to: sizes must not be negative, got"),
    wrong("reshape", "the number of elements must stay 12, got shape (3, 4) to (5, 2)", (5, 2)),
    *[bad_axis(name, 2) for name in ("squeeze", "flip", "split")],
    wrong("permute", "every axis must be named once, got (0,) for 2 axes", (0,)),
    wrong("permute", "axes must", (0, 0)),
    wrong("permute", "axes must be", 1.5, error=DTypeError),
    wrong("transpose", "", (0, 1, 1)),
    wrong("transpose", "axis -2 is out of range for 1 dimensions", on=((3,),)),
    refused(lambda a: a.T, "T: the tensor must have 2 axes, got", (2, 3, 4)),
    refused(lambda a: a.mT, "mT: the tensor must have at least 2 axes, got", (3,)),
    refused(lambda a: a.t(), "T: the tensor must have 2 axes, got", (2, 3, 4)),
    wrong("dilate", "dilation must be at least 0, got -1", 0, -1),
    wrong("dilate", "dilation must be", 0, 1.5, error=DTypeError),
    wrong("undilate", "the sizes along the axes must be multiples of 2, got shape (3, 4)", (0,), 1),
    refused(
        lambda a, b: ops.stack([a, b], 0),
        "stack: there must be at least one tensor and all must have the same shape, got ",
        (3,),
        (2,),
    ),
    refused(lambda a: a.split([1, 2], 1), "split: the sizes must add up to 4, that of"),
    refused(lambda a: a.split([5, -1], 1), "split: the sizes must add up to 4, that of"),
    refused(lambda a: a.split(0), "split: a size must be at least 1, got 0"),
    refused(lambda a: a.split(1.5), "split: sizes must be an int", error=DTypeError),
    refused(lambda a: a.split(1), "split: a 0-d tensor cannot be divided", ()),
    refused(lambda a: a.split(1, 2), "split: axis 2 is out of range for 2 dimensions"),
    refused(lambda a: a.chunk(0), "chunk: chunks must be at least 1, got 0"),
    refused(lambda a: a.chunk(2), "chunk: a 0-d tensor cannot be divided", ()),
    refused(
        lambda a: ops.tuple_get_item(ops.split(a), 3),
        "TensorTuple: index must be in [0, 3), got 3",
        error=IndexingError,
    ),
    refused(lambda a: ops.split(a)[1.0], "TensorTuple: an index must be an int", error=DTypeError),
    refused(
        lambda a, b: ops.concatenate([a, b], axis=1),
        "concatenate: shapes must agree except along axis 1, got [(3, 4), (2, 4)]",
        (3, 4),
        (2, 4),
    ),
    wrong("concatenate", "there must be at least one tensor", [], on=()),
    wrong("matmul", "inner dimensions must agree, got (2, 3) @ (4, 5)", on=((2, 3), (4, 5))),
    wrong("matmul", "shapes must broadcast", on=((2, 3, 4), (3, 4, 5))),
    wrong("matmul", "inner dimensions must agree, got () @ (3, 4)", on=((), S)),
    refused(
        lambda a, b: a[b],
        "getitem: an index array must be integer or bool, got float",
        (3,),
        (3,),
        error=DTypeError,
    ),
    scattered((3, 2, 2), PICKED, (4, 2), "must have the shape (2, 3, 2) that the index"),
    scattered((12,), PICKED, (4, 2), "must have the shape (2, 3, 2) that the index"),
    scattered((2, 1), slice(2), (3, 4), "the shape (2, 4) that the index selects from shape (3,"),
    scattered((4, 2), slice(2), (3, 4), "the shape (2, 4) that the index selects from shape (3,"),
    scattered((), 0, (3, 4), "must have the shape (4,) that the index selects from"),
    scattered((1, 4), [7], (3, 4), "index 7 is out of bounds", IndexingError),
    scattered((1, 4), (0, 0, 0), (3, 4), "too many indices", IndexingError),
    scattered((1, 4), [0], (-3, 4), "sizes must not be negative, got shape (-3, 4)"),
    scattered((1, 4), [0], (3, 4.5), "shape must be an int or a tuple of", DTypeError),
    wrong("embedding", "ids must be in [0, 3), got 3", [0, 3]),
    wrong("embedding", "ids must be integers, got float64", [0.5], error=DTypeError),
    wrong("embedding", "weight must be (V, E) or (V, ...), got shape (3,)", [0], on=((3,),)),
]
