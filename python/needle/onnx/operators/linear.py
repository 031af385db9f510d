"""Matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator


@operator("MatMul")
def _matmul(call: Call) -> Tensor:
    a, b = call.x, call.tensor(1)
    if len(a.shape) > 1 and len(b.shape) > 1:
        call.sized((*a.shape[:-1], b.shape[-1]))
    return ops.matmul(a, b)


@operator("Gemm")
def _gemm(call: Call) -> Tensor:
    a, b, c = call.x, call.tensor(1), call.optional(2)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise call.refuse(f"A and B must be matrices, got shapes {a.shape} and {b.shape}")
    a = ops.transpose(a) if call.flag("transA") else a
    b = ops.transpose(b) if call.flag("transB") else b
    call.sized((a.shape[0], b.shape[1]))
    y = ops.matmul(a, b)
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    y = y if alpha == 1.0 else y * alpha
    if c is None:
        return y
    call.stretched(c, y.shape, "C")
    return y + (c if beta == 1.0 else c * beta)


@operator("Einsum")
def _einsum(call: Call) -> Tensor:
    return ops.einsum(call.get("equation"), *(call.tensor(i) for i in range(len(call.inputs))))
