"""Products of vectors, matrices and stacks of them, over the backend's matmul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import promote
from ..errors import ShapeError
from ..shapes import distinct_axes, normalize_axis, product
from ..torch_names import publish
from .array import NDArray, as_array


def matmul(x1: NDArray, x2: NDArray, /) -> NDArray:
    """Return (..., m, k) @ (..., k, n), broadcast over batch axes; 1-D: a row or column."""
    return as_array("matmul", x1) @ as_array("matmul", x2)


def tensordot(x1: NDArray, x2: NDArray, /, *, axes: Any = 2) -> NDArray:
    """Return sums of products over ``axes``: two lists, or n for x1's last n and x2's first n."""
    left, right = _contracted(as_array("tensordot", x1), as_array("tensordot", x2), axes)
    if [x1.shape[i] for i in left] != [x2.shape[i] for i in right]:
        raise ShapeError(
            f"tensordot: contracted axes must have equal sizes, got axes {left} of {x1.shape} "
            f"and {right} of {x2.shape}"
        )
    rows = [i for i in range(x1.ndim) if i not in left]
    columns = [i for i in range(x2.ndim) if i not in right]
    shape = tuple(x1.shape[i] for i in rows) + tuple(x2.shape[i] for i in columns)
    inner = product(x1.shape[i] for i in left)
    outer = product(x1.shape[i] for i in rows)
    across = product(x2.shape[i] for i in columns)
    a = x1.permute((*rows, *left)).reshape((outer, inner))
    b = x2.permute((*right, *columns)).reshape((inner, across))
    return (a @ b).reshape(shape)


def _contracted(x1: NDArray, x2: NDArray, axes: Any) -> tuple[Sequence[int], Sequence[int]]:
    if not isinstance(axes, int):
        first, second = axes
        left = distinct_axes("tensordot", first, x1.ndim)
        right = distinct_axes("tensordot", second, x2.ndim)
        if len(left) != len(right):
            raise ShapeError(
                f"tensordot: axes must name the same number of axes of both operands, got {axes}"
            )
        return left, right
    if not 0 <= axes <= min(x1.ndim, x2.ndim):
        raise ShapeError(
            f"tensordot: both operands must have {axes} axes, got {x1.shape}, {x2.shape}"
        )
    return range(x1.ndim - axes, x1.ndim), range(axes)


def vecdot(x1: NDArray, x2: NDArray, /, *, axis: int = -1) -> NDArray:
    """Return the sum of products along ``axis`` of both operands; the other axes broadcast."""
    if axis >= 0:
        raise ShapeError(f"vecdot: axis must be negative (the operands broadcast), got {axis}")
    as_array("vecdot", x1), as_array("vecdot", x2)
    sizes = [x.shape[normalize_axis("vecdot", axis, x.ndim)] for x in (x1, x2)]
    if sizes[0] != sizes[1]:
        raise ShapeError(
            f"vecdot: sizes along axis {axis} must agree, got {x1.shape} and {x2.shape}"
        )
    return (x1 * x2).sum(axis).astype(promote(x1.dtype, x2.dtype), copy=False)


publish(__name__)
