"""Normalisations made of layer norm and arithmetic: groups, instances, root mean square.

The layers are in ``nn.group_normalization``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd import Tensor, as_operand
from ..dtypes import float_limits
from ..errors import ShapeError
from ..shapes import Shape, product, shape_of
from .broadcasting import as_number
from .elementwise import sqrt
from .normalization import LayerNorm, last_axes, layer_norm
from .reduction import Summation, mean
from .registry import op
from .shape import reshape


def _per_channel(name: str, v: Any, shape: Shape) -> Tensor:
    """Return v (C,) in a shape that broadcasts with x (N, C, ...); ShapeError for another one."""
    if shape_of(name, v) != shape[1:2]:
        raise ShapeError(
            f"{name}: weight and bias must have shape {shape[1:2]}, one value per channel, got "
            f"{shape_of(name, v)}; reshape them"
        )
    return reshape(v, (1, -1) + (1,) * (len(shape) - 2))


@op(LayerNorm)
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return x (N, C, ...) normalised over each sample's groups of C/num_groups channels.

    weight and bias (C,) scale and shift the result; None for neither. The variance is the biased
    one (Wu & He 2018). ShapeError unless ``num_groups`` divides C.
    """
    return _grouped("group_norm", x, num_groups, weight, bias, eps)


@op(LayerNorm)
def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return x (N, C, ...) normalised over each channel of each sample (Ulyanov et al. 2016).

    weight and bias (C,) scale and shift the result; None for neither. The variance is the biased
    one.
    """
    shape = shape_of("instance_norm", x)
    return _grouped("instance_norm", x, shape[1] if len(shape) > 1 else 1, weight, bias, eps)


def _grouped(
    name: str, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    shape = shape_of(name, x)
    if len(shape) < 2 or (shape[1] and (groups < 1 or shape[1] % groups)):
        raise ShapeError(
            f"{name}: input must be (N, C, ...) and the number of groups must divide C, got shape "
            f"{shape} and {groups} groups; change one of them"
        )
    x, eps = as_operand(x, weight), as_number(name, eps, "eps")
    rows = (shape[0] * groups, product(shape[1:]) // max(groups, 1))
    y = reshape(layer_norm(reshape(x, rows), eps=eps), shape)
    y = y if weight is None else y * _per_channel(name, weight, shape)
    return y if bias is None else y + _per_channel(name, bias, shape)


@op(Summation)
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
    normalized_shape: int | Sequence[int] | None = None,
) -> Tensor:
    """Return x / sqrt(mean(x**2) + eps), times ``weight`` if given (Zhang & Sennrich 2019).

    The mean is taken over the last axes: those of ``normalized_shape``, by default weight's, or the
    last one. eps: None for the distance from 1 to the next number of x's dtype. ShapeError if the
    shapes do not fit.
    """
    shape = shape_of("rms_norm", x)
    over = last_axes("rms_norm", shape, normalized_shape, weight)
    x = as_operand(x, weight)
    if product(shape) == 0:
        return x if weight is None else x * weight
    least = float(float_limits(x.dtype).eps) if eps is None else as_number("rms_norm", eps, "eps")
    square = mean(x * x, axes=tuple(range(-len(over), 0)), keepdims=True)
    y = x / sqrt(square + least)
    return y if weight is None else y * weight
