"""relu after a bias, and the gradients of relu, each in one pass. Called by ``ops.elementwise``."""

from __future__ import annotations

from ..backends.base import Backend
from .registry import Array, accelerated, empty, empty_dense


@accelerated(floating=False)
def relu_grad(grad: Array, y: Array) -> Array:
    """grad where y > 0, else 0; y is relu's result (or its input: the sign is the same)."""
    ### BEGIN YOUR SOLUTION [relu-grad]
    xp = grad.__array_namespace__()
    return xp.where(y > 0, grad, xp.zeros_like(grad))
    ### END YOUR SOLUTION


@relu_grad.kernel
def _(backend: Backend, grad: Array, y: Array) -> Array:
    if grad.dtype.kind != "f" or y.dtype != grad.dtype or y.shape != grad.shape:
        return relu_grad.definition(grad, y)
    out = empty_dense(grad, y)
    backend.relu_grad(grad._view, y._view, out._view)
    return out


@accelerated
def bias_relu(a: Array, bias: Array) -> Array:
    """relu(a + bias) for a (..., C) and bias (C,)."""
    return a.__array_namespace__().maximum(a + bias, 0)


@bias_relu.kernel
def _(backend: Backend, a: Array, bias: Array) -> Array:
    out = empty_dense(a)
    backend.bias_relu(a._view, bias._view, out._view)
    return out


@accelerated
def bias_relu_grad(grad: Array, y: Array) -> tuple[Array, Array]:
    """The gradients of bias_relu, whose result was y: relu_grad(grad, y), and its sums (C,)."""
    kept = relu_grad(grad, y)
    return kept, kept.__array_namespace__().sum(kept, axis=tuple(range(kept.ndim - 1)))


@bias_relu_grad.kernel
def _(backend: Backend, grad: Array, y: Array) -> tuple[Array, Array]:
    kept, sums = empty_dense(grad, y), empty(grad, grad.shape[-1:])
    backend.bias_relu_grad(grad._view, y._view, kept._view, sums._view)
    return kept, sums
