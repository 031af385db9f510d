"""Shape arithmetic compared with NumPy, and its errors."""

from typing import Any

import numpy as np
import pytest

from needle import shapes
from needle.errors import DTypeError, ShapeError


@pytest.mark.parametrize(
    "group",
    [((3, 1), (4,)), ((), (2, 3)), ((2, 1, 5), (1, 3, 1), (5,)), ((0, 1), (1, 4)), ((1,), (0,))],
)
def test_broadcast_shapes(group: Any) -> None:
    assert shapes.broadcast_shapes("add", *group) == np.broadcast_shapes(*group)


@pytest.mark.parametrize(
    ("shape", "axes", "keepdims", "result"),
    [
        ((2, 3, 4), (1,), False, (2, 4)),
        ((2, 3, 4), (0, 2), True, (1, 3, 1)),
        ((2,), (), True, (2,)),
    ],
)
def test_reduced_shape(shape: Any, axes: Any, keepdims: bool, result: Any) -> None:
    assert shapes.reduced_shape(shape, axes, keepdims) == result


def test_axes_are_normalised() -> None:
    assert shapes.normalize_axis("sum", -1, 3) == 2
    assert shapes.normalize_axis("sum", np.int64(1), 3) == 1
    assert shapes.normalize_axes("sum", None, 3) == (0, 1, 2)
    assert shapes.normalize_axes("sum", (-1, 0), 3) == (0, 2)
    assert shapes.normalize_axes("sum", 1, 3) == (1,)
    assert shapes.distinct_axes("permute", (-1, 0), 2) == (1, 0)


def test_resolve_reshape() -> None:
    assert shapes.resolve_reshape("reshape", (2, 6), (3, -1)) == (3, 4)
    assert shapes.resolve_reshape("reshape", (2, 6), 12) == (12,)
    assert shapes.resolve_reshape("reshape", (0, 3), (-1, 3)) == (0, 3)


@pytest.mark.parametrize("size", [5, 8])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
def test_conv_output_size_counts_windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    span = dilation * (kernel - 1) + 1
    starts = [i for i in range(0, size + 2 * padding, stride) if i + span <= size + 2 * padding]
    found = shapes.conv_output_size("conv2d", size, kernel, stride, padding, dilation)
    assert found == len(starts)


def test_pair() -> None:
    assert shapes.pair("conv2d", "stride", 2) == (2, 2)
    assert shapes.pair("conv2d", "stride", [2, 3]) == (2, 3)


ERRORS = [
    (lambda: shapes.broadcast_shapes("add", (2, 3), (4,)), ShapeError, r"add: .*\(2, 3\) and"),
    (lambda: shapes.normalize_axis("sum", 3, 2), ShapeError, "sum: axis 3 is out of range for 2"),
    (lambda: shapes.normalize_axis("sum", 0, 0), ShapeError, "a 0-d array has no axes"),
    (lambda: shapes.normalize_axis("sum", 1.0, 2), DTypeError, "sum: axis must be an int, got 1.0"),
    (lambda: shapes.normalize_axes("sum", (0, -2), 2), ShapeError, "sum: axes must be distinct"),
    (lambda: shapes.resolve_reshape("reshape", (6,), (4,)), ShapeError, "must stay 6, got shape"),
    (lambda: shapes.resolve_reshape("reshape", (6,), (-1, -1)), ShapeError, "at most one -1"),
    (lambda: shapes.resolve_reshape("reshape", (6,), (-1, 4)), ShapeError, "must stay 6"),
    (lambda: shapes.resolve_reshape("reshape", (0,), (0, -1)), ShapeError, "must stay 0"),
    (lambda: shapes.as_shape("empty", (2, -1)), ShapeError, "empty: sizes must not be negative"),
    (lambda: shapes.as_shape("empty", 2.5), DTypeError, "empty: shape must be an int or a tuple"),
    (lambda: shapes.as_shape("empty", (1,) * 17), ShapeError, "at most 16 axes, got 17"),
    (
        lambda: shapes.broadcast_strides("broadcast_to", (3,), (1,), (4,)),
        ShapeError,
        "broadcast_to: every axis must be equal or of size 1",
    ),
    (lambda: shapes.conv_output_size("conv2d", 2, 5, 1, 1, 1), ShapeError, "window 5 for size 2"),
    (lambda: shapes.conv_output_size("conv2d", 2, 1, 0, 0, 1), ShapeError, "at least 1.*stride=0"),
    (lambda: shapes.pair("conv2d", "stride", (1, 2, 3)), ShapeError, "stride must be an int or"),
    (lambda: shapes.pair("conv2d", "stride", "ab"), DTypeError, "stride must be an int or a tuple"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
