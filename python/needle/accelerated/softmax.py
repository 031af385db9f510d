"""Softmax, its logarithm, and logsumexp: definitions and kernels.

Cross entropy is in ``loss``. Called by ``ops.loss``. No exponential overflows; softmax of a slice
that contains NaN or +inf is NaN, as by the formula.
"""

from __future__ import annotations

from ..backends.base import Backend
from ..shapes import normalize_axes, normalize_axis, reduced_shape
from .registry import Array, accelerated, empty


@accelerated()
def softmax(a: Array, axis: int) -> Array:
    """Return exp(a) / sum(exp(a)) along ``axis``, also where exp(a) overflows; any shape."""
    ### BEGIN YOUR SOLUTION [softmax]
    xp = a.__array_namespace__()
    if 0 in a.shape:  # an empty axis has no maximum
        return xp.zeros_like(a)
    # The maximum cancels in the quotient; subtracting it keeps every exponential at most 1.
    exps = xp.exp(a - xp.max(a, axis=axis, keepdims=True))
    return exps / xp.sum(exps, axis=axis, keepdims=True)
    ### END YOUR SOLUTION


@softmax.kernel
def _(backend: Backend, a: Array, axis: int) -> Array:
    out = empty(a, a.shape)
    backend.softmax(a.view, out.view, normalize_axis("softmax", axis, a.ndim))
    return out


@accelerated()
def log_softmax(a: Array, axis: int) -> Array:
    """Return log(softmax(a)) along ``axis``, also where softmax underflows; any shape."""
    ### BEGIN YOUR SOLUTION [softmax]
    xp = a.__array_namespace__()
    if 0 in a.shape:  # an empty axis has no maximum
        return xp.zeros_like(a)
    shifted = a - xp.max(a, axis=axis, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))
    ### END YOUR SOLUTION


@log_softmax.kernel
def _(backend: Backend, a: Array, axis: int) -> Array:
    out = empty(a, a.shape)
    backend.log_softmax(a.view, out.view, normalize_axis("log_softmax", axis, a.ndim))
    return out


@accelerated()
def logsumexp(a: Array, axes: int | tuple[int, ...] | None, keepdims: bool) -> Array:
    """Return log(sum(exp(a))) over ``axes`` (None: all); all -inf gives -inf, any inf gives inf."""
    ### BEGIN YOUR SOLUTION [logsumexp]
    xp = a.__array_namespace__()
    over = normalize_axes("logsumexp", axes, a.ndim)
    highest = xp.max(a, axis=over, keepdims=True)
    # An infinite maximum is not subtracted, because inf - inf is NaN.
    finite = xp.where(xp.isinf(highest), xp.zeros_like(highest), highest)
    result = xp.log(xp.sum(xp.exp(a - finite), axis=over, keepdims=True)) + finite
    return result if keepdims else xp.reshape(result, reduced_shape(tuple(a.shape), over, False))
    ### END YOUR SOLUTION


@logsumexp.kernel
def _(backend: Backend, a: Array, axes: int | tuple[int, ...] | None, keepdims: bool) -> Array:
    over = normalize_axes("logsumexp", axes, a.ndim)
    out = empty(a, reduced_shape(a.shape, over, True))
    backend.logsumexp(a.view, out.view)
    return out if keepdims else out.reshape(reduced_shape(a.shape, over, False))
