"""Batch norm over all axes but the last, layer norm over the last; with their gradients.

Running statistics and evaluation mode are ``nn``'s business. Called by ``ops.normalization``. Both
gradients are the formulas of Ioffe & Szegedy 2015 (section 3), written with the normalised input.
"""

from __future__ import annotations

from typing import Any

from ..backends.base import Backend
from .registry import Array, accelerated, empty

Triple = tuple[Array, Array, Array]


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and biased variance over ``axes``, kept as axes of size 1; two passes."""
    xp = x.__array_namespace__()
    mean = xp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    return mean, xp.mean(centred * centred, axis=axes, keepdims=True)


def _input_grad(
    grad: Array, normalised: Array, weight: Array, deviation: Array, axes: tuple[int, ...]
) -> Array:
    """The gradient through (x - mean) / deviation * weight, mean and deviation over ``axes``."""
    xp = grad.__array_namespace__()
    g = grad * weight
    along_mean = xp.mean(g, axis=axes, keepdims=True)
    along_x = xp.mean(g * normalised, axis=axes, keepdims=True)
    return (g - along_mean - normalised * along_x) / deviation


@accelerated
def batch_norm(x: Array, weight: Array, bias: Array, eps: float) -> Triple:
    """(y, mean, var) for x (..., C), the others (C,): the batch mean and the biased variance.

    y = (x - mean) / sqrt(var + eps) * weight + bias.
    """
    xp = x.__array_namespace__()
    mean, var = _moments(x, tuple(range(x.ndim - 1)))
    y = (x - mean) / xp.sqrt(var + eps) * weight + bias
    return y, xp.reshape(mean, weight.shape), xp.reshape(var, weight.shape)


@batch_norm.kernel
def _(backend: Backend, x: Array, weight: Array, bias: Array, eps: float) -> Triple:
    channels = x.shape[-1:]
    y, mean, var = empty(x, x.shape), empty(x, channels), empty(x, channels)
    backend.batch_norm(
        x._view, weight._view, bias._view, y._view, mean._view, var._view, float(eps)
    )
    return y, mean, var


@accelerated
def batch_norm_grad(
    grad: Array, x: Array, weight: Array, mean: Array, var: Array, eps: float
) -> Triple:
    """(dx, dweight, dbias) of batch_norm's y, through mean and var too; grad as x (..., C)."""
    xp = x.__array_namespace__()
    axes = tuple(range(x.ndim - 1))
    deviation = xp.sqrt(var + eps)
    normalised = (x - mean) / deviation
    x_grad = _input_grad(grad, normalised, weight, deviation, axes)
    return x_grad, xp.sum(grad * normalised, axis=axes), xp.sum(grad, axis=axes)


@batch_norm_grad.kernel
def _(
    backend: Backend, grad: Array, x: Array, weight: Array, mean: Array, var: Array, eps: float
) -> Triple:
    outs = empty(x, x.shape), empty(x, x.shape[-1:]), empty(x, x.shape[-1:])
    views = (a._view for a in (grad, x, weight, mean, var, *outs))
    arguments: list[Any] = [*views, float(eps)]
    backend.batch_norm_grad(*arguments)
    return outs


@accelerated
def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Triple:
    """(y, mean, var) for x (..., D), weight and bias (D,); mean and biased var (..., 1)."""
    xp = x.__array_namespace__()
    mean, var = _moments(x, (x.ndim - 1,))
    return (x - mean) / xp.sqrt(var + eps) * weight + bias, mean, var


@layer_norm.kernel
def _(backend: Backend, x: Array, weight: Array, bias: Array, eps: float) -> Triple:
    rows = (*x.shape[:-1], 1)
    y, mean, var = empty(x, x.shape), empty(x, rows), empty(x, rows)
    backend.layer_norm(
        x._view, weight._view, bias._view, y._view, mean._view, var._view, float(eps)
    )
    return y, mean, var


@accelerated
def layer_norm_grad(
    grad: Array, x: Array, weight: Array, mean: Array, var: Array, eps: float
) -> Triple:
    """(dx, dweight, dbias) of layer_norm's y, through mean and var too; grad as x (..., D)."""
    xp = x.__array_namespace__()
    rows = tuple(range(x.ndim - 1))
    deviation = xp.sqrt(var + eps)
    normalised = (x - mean) / deviation
    x_grad = _input_grad(grad, normalised, weight, deviation, (x.ndim - 1,))
    return x_grad, xp.sum(grad * normalised, axis=rows), xp.sum(grad, axis=rows)


@layer_norm_grad.kernel
def _(
    backend: Backend, grad: Array, x: Array, weight: Array, mean: Array, var: Array, eps: float
) -> Triple:
    outs = empty(x, x.shape), empty(x, x.shape[-1:]), empty(x, x.shape[-1:])
    views = (a._view for a in (grad, x, weight, mean, var, *outs))
    arguments: list[Any] = [*views, float(eps)]
    backend.layer_norm_grad(*arguments)
    return outs
