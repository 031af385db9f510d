"""Matrix products. Shapes are checked before a kernel is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from ..errors import ShapeError
from ..shapes import broadcast_shapes, product
from .broadcasting import unbroadcast
from .registry import Array, op
from .shape import reshape, transpose


class MatMul(TensorOp):
    """Matrix product (..., m, k) @ (..., k, n) -> (..., m, n); batch axes broadcast."""

    reads = {0: (1,), 1: (0,)}

    def compute(self, a: Array, b: Array) -> Array:
        left, right = tuple(a.shape), tuple(b.shape)
        if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            raise ShapeError(
                f"matmul: inner dimensions must agree, got {left} @ {right}; transpose or reshape "
                "one operand"
            )
        if left[:-2] != right[:-2]:
            broadcast_shapes("matmul", left[:-2], right[:-2])
        return xp.matmul(a, b)

    def multiplications(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return product(output) * inputs[0][-1]

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of both operands, summed over broadcast batch axes."""
        ### BEGIN YOUR SOLUTION [matmul-grad]
        a, b = node.inputs
        return (
            unbroadcast(matmul(out_grad, transpose(b)), a) if a.requires_grad else None,
            unbroadcast(matmul(transpose(a), out_grad), b) if b.requires_grad else None,
        )
        ### END YOUR SOLUTION


@op(MatMul, methods=["matmul", "__matmul__"])
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product over the last two axes.

    ``a`` (..., m, k) and ``b`` (..., k, n) give (..., m, n); batch axes broadcast. A 1-d ``a``
    counts as a row, a 1-d ``b`` as a column, and that axis is dropped from the result. ShapeError
    if the inner dimensions differ.
    """
    a = as_operand(a, b)
    b = as_operand(b, a)
    left, right = a.shape, b.shape
    if (len(left) > 1 and len(right) > 1) or not left or not right:
        return MatMul()(a, b)
    rows = a if len(left) > 1 else reshape(a, (1, *left))
    columns = b if len(right) > 1 else reshape(b, (*right, 1))
    product = MatMul()(rows, columns)
    shape = product.shape
    if len(right) == 1:
        shape = shape[:-1]
    if len(left) == 1:
        shape = (*shape[:-2], shape[-1]) if len(right) > 1 else shape[:-1]
    return reshape(product, shape)


@op(MatMul, methods=["__rmatmul__"])
def matmul_reversed(a: Tensor, b: Any) -> Tensor:
    """Return b @ a for an array ``b``."""
    return matmul(b, a)
