"""Rows of the op table: rearranging, joining and indexing elements, and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, IndexingError, ShapeError
from tests.op_row import NUMBERS, Failure, OpRow, bad_axis, normal, refused

S = (3, 4)


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
            refused(lambda a: ops.broadcast_to(a, (3, 5)), "broadcast_to: "),
            refused(
                lambda a: ops.broadcast_to(a, (3, 1)),
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
            refused(
                lambda a: ops.reshape(a, (5, 2)),
                "reshape: the number of elements must stay 12, got shape (3, 4) to (5, 2)",
            ),
        ),
    ),
    OpRow(
        "broadcast_to",
        lambda a: a.expand(2, -1, 4),
        lambda a: np.broadcast_to(a, (2, *a.shape[:-1], 4)),
        normal((3, 1)),
        "kept sizes",
        failures=(
            refused(lambda a: a.expand(-1, 3, 4), "broadcast_to: sizes must not be negative, got"),
        ),
    ),
    OpRow("expand_dims", lambda a: ops.expand_dims(a, -1), lambda a: a[..., None], normal(S)),
    OpRow(
        "squeeze",
        lambda a: ops.squeeze(a, 1),
        lambda a: a[:, 0],
        normal((3, 1, 2)),
        failures=(bad_axis("squeeze", lambda a: ops.squeeze(a, 2)),),
    ),
    OpRow(
        "squeeze",
        lambda a: a.squeeze((0, -2)),
        lambda a: a[:, :, 0],
        normal((3, 4, 1, 2)),
        "kept",
        resize=False,
    ),
    OpRow("squeeze", ops.squeeze, np.squeeze, normal((1, 3, 1)), "all", resize=False),
    OpRow(
        "permute",
        lambda a: ops.permute(a, (2, 0, -2)),
        lambda a: a.transpose(2, 0, 1),
        normal((3, 4, 2)),
        dtypes=NUMBERS,
        failures=(
            refused(
                lambda a: ops.permute(a, (0,)),
                "permute: every axis must be named once, got (0,) for 2 axes",
            ),
            refused(lambda a: ops.permute(a, (0, 0)), "permute: axes must"),
            refused(lambda a: ops.permute(a, 1.5), "permute: axes must be", error=DTypeError),
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
            refused(lambda a: ops.transpose(a, (0, 1, 1)), "transpose: "),
            refused(ops.transpose, "transpose: axis -2 is out of range for 1 dimensions", (3,)),
        ),
    ),
    OpRow("transpose", lambda a: a.transpose(-1, 1), lambda a: a, normal(S), "same axis"),
    OpRow(
        "transpose",
        lambda a: a.T,
        lambda a: a.T,
        normal(S),
        "T",
        failures=(refused(lambda a: a.T, "T: the tensor must have 2 axes, got", (2, 3, 4)),),
    ),
    OpRow(
        "transpose",
        lambda a: a.mT,
        lambda a: a.swapaxes(-1, -2),
        normal((2, 3, 4)),
        "mT",
        failures=(refused(lambda a: a.mT, "mT: the tensor must have at least 2 axes, got", (3,)),),
    ),
    OpRow(
        "transpose",
        lambda a, b: ops.make_tuple(a.t(), b.t()),
        lambda a, b: (a.T, b),
        normal(S, (3,)),
        "t",
        failures=(refused(lambda a: a.t(), "T: the tensor must have 2 axes, got", (2, 3, 4)),),
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
            refused(
                lambda a: ops.dilate(a, 0, -1), "dilate: dilation must be at least 0, got -1", (3,)
            ),
            refused(
                lambda a: ops.dilate(a, 0, 1.5), "dilate: dilation must be", (3,), error=DTypeError
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
            refused(
                lambda a: ops.undilate(a, (0,), 1),
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
            refused(
                lambda a, b: ops.stack([a, b], 0),
                "stack: there must be at least one tensor and all must have the same shape, got ",
                (3,),
                (2,),
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
        failures=(
            refused(lambda a: a.split([1, 2], 1), "split: the sizes must add up to 4, that of"),
            refused(lambda a: a.split([5, -1], 1), "split: the sizes must add up to 4, that of"),
            refused(lambda a: a.split(0), "split: a size must be at least 1, got 0"),
            refused(lambda a: a.split(1.5), "split: sizes must be an int", error=DTypeError),
            refused(lambda a: a.split(1), "split: a 0-d tensor cannot be divided", ()),
            bad_axis("split", lambda a: a.split(1, 2)),
        ),
    ),
    *[
        OpRow(
            "chunk",
            lambda a, n=count: a.chunk(n, 1),
            lambda a, ends=ends: tuple(np.split(a, ends, 1)),
            normal((3, 5)),
            f"{count}",
            failures=(
                refused(lambda a: a.chunk(0), "chunk: chunks must be at least 1, got 0"),
                refused(lambda a: a.chunk(2), "chunk: a 0-d tensor cannot be divided", ()),
            ),
        )
        for count, ends in ((2, [3]), (4, [2, 4]), (9, [1, 2, 3, 4]))
    ],
    OpRow("chunk", lambda a: a.chunk(2), lambda a: (a, a), normal((0, 3)), "nothing", resize=False),
    OpRow("make_tuple", ops.make_tuple, lambda *a: a, normal(S, (3,))),
    OpRow(
        "tuple_get_item",
        lambda a: ops.tuple_get_item(ops.split(a, 1), 2),
        lambda a: a[:, 2],
        normal(S),
        failures=(
            refused(
                lambda a: ops.tuple_get_item(ops.split(a), 3),
                "TensorTuple: index must be in [0, 3), got 3",
                error=IndexingError,
            ),
            refused(
                lambda a: ops.split(a)[1.0],
                "TensorTuple: an index must be an int",
                error=DTypeError,
            ),
        ),
    ),
    OpRow(
        "fused_add_scalars",
        lambda a: ops.fused_add_scalars(a, 1.5, -4),
        lambda a: (a + 1.5, a - 4),
        normal(S),
    ),
    OpRow(
        "concatenate",
        lambda a, b: ops.concatenate([a, b], axis=-1),
        lambda a, b: np.concatenate([a, b], -1),
        normal(S, (3, 2)),
        dtypes=NUMBERS,
        failures=(
            refused(
                lambda a, b: ops.concatenate([a, b], axis=1),
                "concatenate: shapes must agree except along axis 1, got [(3, 4), (2, 4)]",
                (3, 4),
                (2, 4),
            ),
            Failure(
                lambda t: ops.concatenate([]),
                ShapeError,
                "concatenate: there must be at least one tensor",
            ),
        ),
    ),
]


def matmul(case: str, left: tuple[int, ...], right: tuple[int, ...], **more: Any) -> OpRow:
    return OpRow("matmul", ops.matmul, np.matmul, normal(left, right), case, resize=False, **more)


def mismatch(left: tuple[int, ...], right: tuple[int, ...], message: str) -> Failure:
    return refused(ops.matmul, message, left, right)


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


def scattered(a: Any, index: Any, shape: Any, message: str, error: Any = ShapeError) -> Failure:
    """Return a call of scatter_add that must fail for a tensor of shape ``a``."""
    return refused(lambda a: ops.scatter_add(a, index, shape), message, a, error=error)


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
            refused(
                lambda a, b: a[b],
                "getitem: an index array must be integer or bool, got float",
                (3,),
                (3,),
                error=DTypeError,
            ),
        ),
    ),
    OpRow(
        "scatter_add",
        lambda a: ops.scatter_add(a, (PICKED,), (4, 2)),
        lambda a: np_scatter_add(a, PICKED, (4, 2)),
        normal((2, 3, 2)),
        resize=False,
        failures=(
            scattered((3, 2, 2), PICKED, (4, 2), "must have the shape (2, 3, 2) that the index"),
            scattered((12,), PICKED, (4, 2), "must have the shape (2, 3, 2) that the index"),
            scattered((2, 1), slice(2), (3, 4), "the shape (2, 4) that the index selects from (3,"),
            scattered((4, 2), slice(2), (3, 4), "the shape (2, 4) that the index selects from (3,"),
            scattered((), 0, (3, 4), "must have the shape (4,) that the index selects from"),
            scattered((1, 4), [7], (3, 4), "index 7 is out of bounds", IndexingError),
            scattered((1, 4), (0, 0, 0), (3, 4), "too many indices", IndexingError),
            scattered((1, 4), [0], (-3, 4), "sizes must not be negative, got shape (-3, 4)"),
            scattered((1, 4), [0], (3, 4.5), "shape must be an int or a tuple of", DTypeError),
        ),
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
            refused(
                lambda a: ops.embedding(a, [0, 3]),
                "embedding: ids must be in [0, 3), got 3",
                (3, 2),
            ),
            refused(
                lambda a: ops.embedding(a, [0.5]),
                "embedding: ids must be integers, got float64",
                (3, 2),
                error=DTypeError,
            ),
            refused(
                lambda a: ops.embedding(a, [0]),
                "embedding: weight must be (V, E) or (V, ...), got shape (3,)",
                (3,),
            ),
        ),
    ),
]


def np_scatter_add(a: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape)
    np.add.at(out, index, a)
    return out
