"""Batch norm over all axes but the last, layer norm over the last, and their gradients.

Running statistics and evaluation mode are in ``nn``. Called by ``ops.normalization``. Both
gradients are the formulas of Ioffe & Szegedy 2015 (section 3), written with the normalised input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backends.base import NO_EPILOGUE, Backend, Epilogue, EpilogueGrad
from ..dtypes import compute_dtype
from .epilogue import apply_epilogue, relu_grad, views_of
from .registry import Array, accelerated, empty, empty_dense, view_or_none

Triple = tuple[Array, Array, Array]


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the mean and biased variance over ``axes``, kept as axes of size 1."""
    ### BEGIN YOUR SOLUTION [normalise]
    xp = x.__array_namespace__()
    mean = xp.mean(x, axis=axes, keepdims=True)
    centred = x - mean  # two passes: mean(x * x) - mean**2 cancels if the mean is large
    return mean, xp.mean(centred * centred, axis=axes, keepdims=True)
    ### END YOUR SOLUTION


def _normalised(x: Array, weight: Array, bias: Array, eps: float, axes: tuple[int, ...]) -> Triple:
    """Return y = (x - mean) / sqrt(var + eps) * weight + bias, and mean and var over ``axes``."""
    ### BEGIN YOUR SOLUTION [normalise]
    xp = x.__array_namespace__()
    mean, var = _moments(x, axes)
    return (x - mean) / xp.sqrt(var + eps) * weight + bias, mean, var
    ### END YOUR SOLUTION


def _gradients(
    grad: Array, x: Array, weight: Array, mean: Array, var: Array, eps: float, axes: tuple[int, ...]
) -> Triple:
    """Return the gradients of ``_normalised`` with respect to x, weight and bias."""
    ### BEGIN YOUR SOLUTION [normalise-grad]
    xp = x.__array_namespace__()
    deviation = xp.sqrt(var + eps)
    normalised = (x - mean) / deviation
    g = grad * weight
    along_mean = xp.mean(g, axis=axes, keepdims=True)
    along_x = xp.mean(g * normalised, axis=axes, keepdims=True)
    x_grad = (g - along_mean - normalised * along_x) / deviation
    rows = _all_but_last(x)
    return x_grad, xp.sum(grad * normalised, axis=rows), xp.sum(grad, axis=rows)
    ### END YOUR SOLUTION


def _all_but_last(x: Array) -> tuple[int, ...]:
    return tuple(range(x.ndim - 1))


def _run(
    kernel: Callable[..., None], inputs: Sequence[Array], outs: Triple, eps: float, *more: Any
) -> Triple:
    """Call ``kernel`` on the views of inputs and outs and return the outs."""
    kernel(*(a.view for a in (*inputs, *outs)), float(eps), *more)
    return outs


@accelerated(wide_results=(1, 2))
def batch_norm(
    x: Array, weight: Array, bias: Array, eps: float, epilogue: Epilogue = NO_EPILOGUE
) -> Triple:
    """Return (y, mean, biased variance) for x (..., C); all other arguments and results are (C,).

    y = (x - mean) / sqrt(var + eps) * weight + bias, then the epilogue. If x is bfloat16, all (C,)
    arrays are float32.
    """
    xp = x.__array_namespace__()
    y, mean, var = _normalised(x, weight, bias, eps, _all_but_last(x))
    y = apply_epilogue.definition(y, epilogue)
    return y, xp.reshape(mean, weight.shape), xp.reshape(var, weight.shape)


@batch_norm.kernel
def _(
    backend: Backend,
    x: Array,
    weight: Array,
    bias: Array,
    eps: float,
    epilogue: Epilogue = NO_EPILOGUE,
) -> Triple:
    if epilogue.bias is not None or (epilogue.residual is not None and not epilogue.relu):
        y, mean, var = batch_norm(x, weight, bias, eps)
        return apply_epilogue.definition(y, epilogue), mean, var
    return _run(backend.batch_norm, (x, weight, bias), _outputs(x), eps, views_of(epilogue))


@accelerated(wide_results=(1, 2))
def batch_norm_grad(
    grad: Array,
    x: Array,
    weight: Array,
    mean: Array,
    var: Array,
    eps: float,
    bias: Array | None = None,
    result: Array | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """Return (dx, dweight, dbias, dresidual) of batch_norm; mean and var depend on x.

    If the epilogue was relu alone, pass batch_norm's ``bias``: the sign of y is then recomputed, so
    y need not be kept. If it was a residual and relu, pass batch_norm's y as ``result``; otherwise
    dresidual is None.
    """
    residual_grad = None
    if bias is not None:
        y = (x - mean) / x.__array_namespace__().sqrt(var + eps) * weight + bias
        grad, _ = relu_grad.definition(grad, y)
    elif result is not None:
        grad, _ = relu_grad.definition(grad, result)
        residual_grad = grad
    return *_gradients(grad, x, weight, mean, var, eps, _all_but_last(x)), residual_grad


@batch_norm_grad.kernel
def _(
    backend: Backend,
    grad: Array,
    x: Array,
    weight: Array,
    mean: Array,
    var: Array,
    eps: float,
    bias: Array | None = None,
    result: Array | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    residual_grad = None if result is None else empty_dense(x)
    epilogue = EpilogueGrad(view_or_none(bias), view_or_none(result), view_or_none(residual_grad))
    inputs = (grad, x, weight, mean, var)
    return *_run(backend.batch_norm_grad, inputs, _outputs(x), eps, epilogue), residual_grad


def _outputs(x: Array) -> Triple:
    """Return an empty array like x (in the memory order too) and two arrays (C,).

    If x is bfloat16, the two vectors are float32.
    """
    dtype = compute_dtype(x.dtype)
    return empty_dense(x), empty(x, x.shape[-1:], dtype), empty(x, x.shape[-1:], dtype)


@accelerated(wide_results=(1, 2))
def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Triple:
    """Return (y, mean, biased variance), the last two (..., 1); x (..., D), weight, bias (D,)."""
    return _normalised(x, weight, bias, eps, (x.ndim - 1,))


@layer_norm.kernel
def _(backend: Backend, x: Array, weight: Array, bias: Array, eps: float) -> Triple:
    rows = (*x.shape[:-1], 1)
    outs = empty(x, x.shape), empty(x, rows), empty(x, rows)
    return _run(backend.layer_norm, (x, weight, bias), outs, eps)


@accelerated(wide_results=(1, 2))
def layer_norm_grad(
    grad: Array, x: Array, weight: Array, mean: Array, var: Array, eps: float
) -> Triple:
    """Return (dx, dweight, dbias) of layer_norm for grad (..., D); mean and var depend on x."""
    return _gradients(grad, x, weight, mean, var, eps, (x.ndim - 1,))


@layer_norm_grad.kernel
def _(
    backend: Backend, grad: Array, x: Array, weight: Array, mean: Array, var: Array, eps: float
) -> Triple:
    outs = empty(x, x.shape), empty(x, x.shape[-1:]), empty(x, x.shape[-1:])
    return _run(backend.layer_norm_grad, (grad, x, weight, mean, var), outs, eps)
