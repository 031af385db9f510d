"""The epilogue of an operation (bias, residual, relu) and the gradient of relu.

Called by ``ops.elementwise``, ``convolution`` and ``normalization``. Here the fields of an
``Epilogue`` are arrays; a kernel gets an ``Epilogue`` of views.
"""

from __future__ import annotations

from typing import Any

from ..backends.base import Backend, Epilogue
from ..dtypes import is_floating
from .registry import Array, accelerated, empty, empty_dense, view_or_none


def views_of(epilogue: Epilogue) -> Epilogue:
    """Return an epilogue with views of these arrays as its fields."""
    if epilogue.bias is None and epilogue.residual is None:
        return epilogue
    return Epilogue(view_or_none(epilogue.bias), view_or_none(epilogue.residual), epilogue.relu)


@accelerated()
def apply_epilogue(a: Array, epilogue: Epilogue) -> Array:
    """Return relu(a + bias + residual), a (..., C), without the steps that are not set."""
    if epilogue.bias is not None:
        a = a + epilogue.bias
    if epilogue.residual is not None:
        a = a + epilogue.residual
    return a.__array_namespace__().maximum(a, 0) if epilogue.relu else a


@apply_epilogue.kernel
def _(backend: Backend, a: Array, epilogue: Epilogue) -> Array:
    if epilogue.bias is None or epilogue.residual is not None or not epilogue.relu:
        return apply_epilogue.definition(a, epilogue)
    out = empty_dense(a)
    backend.apply_epilogue(a.view, out.view, views_of(epilogue))
    return out


def _passed(grad: Array, y: Array) -> Array:
    """Return grad where y > 0, NaN where y is NaN, else 0; y is relu's result (or its input)."""
    ### BEGIN YOUR SOLUTION [relu-grad]
    xp = grad.__array_namespace__()
    rest = xp.zeros_like(grad)
    if is_floating(y.dtype):
        rest = xp.where(y == y, rest, y)
    return xp.where(y > 0, grad, rest)
    ### END YOUR SOLUTION


@accelerated(floating=False)
def relu_grad(grad: Array, y: Array, sums: bool = False) -> tuple[Array, Any]:
    """Return the gradient of y = relu(x): grad where y > 0, else 0.

    Where y is NaN, the gradient is NaN. With ``sums``, the second result is the gradient's sum over
    all axes but the last, (C,), which is the gradient of a bias added before relu; otherwise it is
    None.
    """
    kept = _passed(grad, y)
    if not sums:
        return kept, None
    return kept, kept.__array_namespace__().sum(kept, axis=tuple(range(kept.ndim - 1)))


@relu_grad.kernel
def _(backend: Backend, grad: Array, y: Array, sums: bool = False) -> tuple[Array, Any]:
    if not is_floating(grad.dtype) or y.dtype != grad.dtype or y.shape != grad.shape:
        return relu_grad.definition(grad, y, sums)
    kept = empty_dense(grad, y)
    total = empty(grad, grad.shape[-1:]) if sums else None
    backend.relu_grad(grad.view, y.view, kept.view, view_or_none(total))
    return kept, total
