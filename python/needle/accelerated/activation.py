"""The gradient of relu in one pass. Called by ``ops.elementwise``."""

from __future__ import annotations

from ..backends.base import Backend
from .registry import Array, accelerated, empty_dense


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
