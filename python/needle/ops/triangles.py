"""Ops on triangles and diagonals of matrices: tril, triu, diagonal, diag, trace."""

from __future__ import annotations

from ..array_namespace import array_api as xp
from ..autograd import Tensor
from ..errors import ShapeError
from ..shapes import as_int_tuple, distinct_axes, shape_of
from .indexing import GetItem, ScatterAdd
from .reduction import summation
from .registry import Array, LinearOp, op
from .shape import Permute, permute, reshape


class Triangle(LinearOp):
    """Zeros outside the lower or upper triangle of the last two axes: ``tril`` and ``triu``."""

    def __init__(self, lower: bool, diagonal: int) -> None:
        self.lower = lower
        (self.diagonal,) = as_int_tuple("tril" if lower else "triu", "diagonal", (diagonal,))

    def compute(self, a: Array) -> Array:
        if len(a.shape) < 2:
            name = "tril" if self.lower else "triu"
            raise ShapeError(
                f"{name}: the tensor must have at least 2 axes, got shape {a.shape}; reshape it"
            )
        return xp.tril(a, k=self.diagonal) if self.lower else xp.triu(a, k=self.diagonal)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return Triangle(self.lower, self.diagonal)(out_grad)


@op(Triangle, methods=["tril"])
def tril(a: Tensor, diagonal: int = 0) -> Tensor:
    """Return ``a`` with zeros above a diagonal of the last two axes, 0 for the main one."""
    return Triangle(True, diagonal)(a)


@op(Triangle, methods=["triu"])
def triu(a: Tensor, diagonal: int = 0) -> Tensor:
    """Return ``a`` with zeros below a diagonal of the last two axes, 0 for the main one."""
    return Triangle(False, diagonal)(a)


@op(Permute, methods=["diagonal"])
def diagonal(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return a diagonal over two axes as the last axis of the result.

    ``offset``: number of columns (positions of ``axis2``) to the right of the main diagonal.
    """
    ndim = len(shape_of("diagonal", a))
    pair = distinct_axes("diagonal", (axis1, axis2), ndim)
    rest = [axis for axis in range(ndim) if axis not in pair]
    *lead, rows, columns = (a.shape[axis] for axis in (*rest, *pair))
    flat = reshape(permute(a, (*rest, *pair)), (*lead, rows * columns))
    count = min(rows + min(offset, 0), columns - max(offset, 0))
    return GetItem((*[slice(None)] * len(lead), _along(offset, count, columns)))(flat)


def _along(offset: int, count: int, columns: int) -> slice:
    """Return the positions of the ``count`` elements of a diagonal in the flattened matrix."""
    start = offset if offset >= 0 else -offset * columns
    stop = start + (count - 1) * (columns + 1) + 1
    return slice(start, stop, columns + 1) if count > 0 else slice(0, 0)


@op(ScatterAdd, methods=["diag"])
def diag(a: Tensor, offset: int = 0) -> Tensor:
    """Return the diagonal of a matrix, or the matrix with the vector ``a`` on its diagonal."""
    ndim = len(shape_of("diag", a))
    if ndim == 2:
        return diagonal(a, offset)
    if ndim != 1:
        raise ShapeError(
            f"diag: the tensor must be a vector or a matrix, got shape {a.shape}; use diagonal"
        )
    size = a.shape[0] + abs(offset)
    along = _along(offset, a.shape[0], size)
    return reshape(ScatterAdd(along, (size * size,))(a), (size, size))


@op(Permute, methods=["trace"])
def trace(a: Tensor) -> Tensor:
    """Return the sum of the main diagonal of a matrix."""
    if len(shape_of("trace", a)) != 2:
        raise ShapeError(
            f"trace: the tensor must be a matrix, got shape {a.shape}; sum over diagonal(a)"
        )
    return summation(diagonal(a))
