"""Batch and layer normalisation: forward and gradient are fused, second derivatives use public ops.

Both follow the same formula, over different axes. With h = (x - mean) / s, s = sqrt(var + eps), and
P(v) = v - mean(v) - h * mean(v * h), where means are over the normalised axes:

    x_grad = P(weight * grad) / s,  weight_grad = sum(grad * h),  bias_grad = sum(grad)

(Ioffe & Szegedy 2015; the sums run over the axes that weight lacks). Group norm, instance norm and
RMS norm are composed of layer norm and arithmetic. Running statistics are in ``nn.normalization``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import accelerated
from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorTuple, TensorTupleOp, as_operand
from ..backends.base import Epilogue
from ..dtypes import float_limits
from ..errors import ShapeError
from ..shapes import Shape, as_shape, product, shape_of
from .broadcasting import as_number, constant_like
from .elementwise import relu_grad, sqrt
from .reduction import Summation, mean, summation
from .registry import Array, op
from .shape import reshape


class _Norm(TensorTupleOp):
    """Base class of the normalisations, which checks shapes and holds the axes."""

    name: str
    channel: int
    """The axis of weight and bias: 1 (averages are over all others) or -1 (over this axis)."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = float(eps)

    def _check(self, x: Shape, weight: Shape, bias: Shape) -> None:
        if len(x) < 2 or weight != (x[self.channel],) or bias != weight:
            place = "second" if self.channel == 1 else "last"
            raise ShapeError(
                f"{self.name}: input must have at least 2 axes, and weight and bias the size of "
                f"its {place} axis, got input {x}, weight {weight}, bias {bias}; reshape them"
            )


class _NormGrad(_Norm):
    """Fused gradient: (grad, x, weight) -> gradients of x, weight and bias.

    mean and var of x are kept from the forward pass.
    """

    def __init__(self, eps: float, mean: Array, var: Array) -> None:
        super().__init__(eps)
        self.mean, self.var = mean, var

    def gradient(self, out_grad: TensorTuple, node: Any) -> tuple[Tensor | None, ...]:
        g, x, weight = node.inputs
        return self._second(out_grad, g, x, weight)

    def _second(
        self, out_grad: TensorTuple, g: Tensor, x: Tensor, weight: Tensor
    ) -> tuple[Tensor, ...]:
        """Differentiate L = <u, P(wg)/s> + <a, gh> + <c, g>, where u, a, c are output gradients."""
        u, a, c = out_grad[0], out_grad[1], out_grad[2]
        ndim = len(x.shape)
        channel = self.channel % ndim
        others = tuple(i for i in range(ndim) if i != channel)
        axes = others if self.channel == 1 else (channel,)
        w, a, c = (_along(v, channel, ndim) for v in (weight, a, c))

        def average(v: Tensor) -> Tensor:
            return mean(v, axes=axes, keepdims=True)

        def project(v: Tensor) -> Tensor:
            return v - average(v) - h * average(v * h)

        centred = x - average(x)
        s = sqrt(average(centred * centred) + self.eps)
        h: Tensor = centred / s
        wg, along = w * g, project(u) / s
        by_h = a * g - (average(wg * h) * u + average(u * h) * wg) / s
        by_s = average(wg * along) * h / s  # -dL/ds * ds/dx, where ds/dx = h / count
        return (
            w * along + a * h + c,
            project(by_h) / s - by_s,
            summation(g * along, axes=others),
        )


class BatchNorm(_Norm):
    """Batch norm: (x, weight, bias) -> (y, mean, biased variance) over all axes but 1.

    With ``relu``, y becomes max(y, 0). A fourth input, the residual, has the shape of x, is allowed
    only with ``relu``, and is added to y before it.
    """

    name, channel = "batch_norm", 1
    reads = (0, 1, 2, "result")

    def __init__(self, eps: float = 1e-5, relu: bool = False) -> None:
        super().__init__(eps)
        self.relu = relu
        self.reads_y = True

    def reads_item(self, index: int, node: Any) -> bool:
        return index > 0 or self.reads_y

    def compute(
        self, x: Array, weight: Array, bias: Array, residual: Array | None = None
    ) -> tuple[Array, Array, Array]:
        self.reads_y = residual is not None
        self._check(x.shape, weight.shape, bias.shape)
        if x.size == 0:
            raise ShapeError(
                f"batch_norm: there must be at least one element per channel, got input {x.shape}; "
                "leave empty batches out"
            )
        if residual is not None and x.shape != residual.shape:
            raise ShapeError(
                f"batch_norm: the residual must have the input's shape {x.shape}, got "
                f"{residual.shape}; add another shape after batch_norm"
            )
        last = None if residual is None else _channels_last(residual)
        epilogue = Epilogue(residual=last, relu=self.relu)
        y, mean, var = accelerated.batch_norm(_channels_last(x), weight, bias, self.eps, epilogue)
        return _channels_second(y), mean, var

    def gradient(self, out_grad: TensorTuple, node: Any) -> tuple[Tensor, ...]:
        x, weight, *rest = node.inputs
        results = node.realize_cached_data()  # y may have changed, so read only mean and var
        y = results[0] if len(rest) > 1 else None
        biases = rest if self.relu and y is None else ()
        grad = BatchNormGrad(self.eps, results[1], results[2], y)
        return tuple(grad(out_grad[0], x, weight, *biases))


class BatchNormGrad(_NormGrad):
    """Gradients of batch_norm.

    With relu there is a fourth input, the bias. With relu and a residual there is ``y``, the result
    of batch_norm, and the residual's gradient comes last.
    """

    name, channel = "batch_norm", 1

    def __init__(self, eps: float, mean: Array, var: Array, y: Array | None = None) -> None:
        super().__init__(eps, mean, var)
        self.y = y

    def compute(
        self, grad: Array, x: Array, weight: Array, bias: Array | None = None
    ) -> tuple[Array, ...]:
        result = None if self.y is None else _channels_last(self.y)
        grad, x = _channels_last(grad), _channels_last(x)
        x_grad, weight_grad, bias_grad, residual_grad = accelerated.batch_norm_grad(
            grad, x, weight, self.mean, self.var, self.eps, bias, result
        )
        more = () if residual_grad is None else (_channels_second(residual_grad),)
        return _channels_second(x_grad), weight_grad, bias_grad, *more

    def gradient(self, out_grad: TensorTuple, node: Any) -> tuple[Tensor | None, ...]:
        """Differentiate the gradient, relu included, which is piecewise linear."""
        g, x, weight, *bias = node.inputs
        if self.y is None and not bias:
            return self._second(out_grad, g, x, weight)
        if self.y is None:
            y = BatchNorm(self.eps)(x.detach(), weight.detach(), bias[0].detach())[0]
        else:
            y = Tensor.make_const(self.y)
        by_g, by_x, by_weight = self._second(out_grad, relu_grad(g, y), x, weight)
        by_g = by_g if self.y is None else by_g + out_grad[3]
        return relu_grad(by_g, y), by_x, by_weight, *(None for _ in bias)


@op(BatchNorm, BatchNormGrad)
def batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, mean, var), where y is x (N, C, ...) normalised per channel * weight + bias.

    weight, bias, mean and the biased var are (C,); mean and var are computed over all axes but 1.
    They are constants: y's gradient accounts for them, but they propagate no gradient themselves.
    """
    result = BatchNorm(as_number("batch_norm", eps, "eps"))(x, weight, bias)
    return result[0], result[1].detach(), result[2].detach()


class LayerNorm(_Norm):
    """Layer norm: (x, weight, bias) -> (y, mean, biased variance) over the last axis."""

    name, channel = "layer_norm", -1
    reads = (0, 1, "result")

    def reads_item(self, index: int, node: Any) -> bool:
        return index > 0

    def compute(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
        self._check(x.shape, weight.shape, bias.shape)
        y, mean, var = accelerated.layer_norm(x, weight, bias, self.eps)
        return y, mean, var

    def gradient(self, out_grad: TensorTuple, node: Any) -> tuple[Tensor, ...]:
        x, weight, _ = node.inputs
        results = node.realize_cached_data()
        mean, var = results[1], results[2]
        return tuple(LayerNormGrad(self.eps, mean, var)(out_grad[0], x, weight))


class LayerNormGrad(_NormGrad):
    """Gradients of layer_norm."""

    name, channel = "layer_norm", -1

    def compute(self, grad: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
        x_grad, weight_grad, bias_grad = accelerated.layer_norm_grad(
            grad, x, weight, self.mean, self.var, self.eps
        )
        return x_grad, weight_grad, bias_grad


@op(LayerNorm, LayerNormGrad)
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    normalized_shape: int | Sequence[int] | None = None,
) -> Tensor:
    """Return x normalised over its last axes, times ``weight`` plus ``bias``, which may be None.

    The axes are those of ``normalized_shape``, by default those of weight or bias, or the last one.
    weight and bias have their shape. The variance is biased (Ba et al. 2016). ShapeError if the
    shapes do not match.
    """
    shape = shape_of("layer_norm", x)
    over = last_axes("layer_norm", shape, normalized_shape, weight, bias)
    x = as_operand(x, weight)
    width = (product(over),)
    w = constant_like(x, width, 1.0) if weight is None else _in_a_row(weight, width)
    b = constant_like(x, width, 0.0) if bias is None else _in_a_row(bias, width)
    rows = (product(shape[: len(shape) - len(over)]), *width)
    whole = len(over) == 1 and len(shape) > 1
    eps = as_number("layer_norm", eps, "eps")
    y: Tensor = LayerNorm(eps)(x if whole else reshape(x, rows), w, b)[0]
    return y if whole else reshape(y, shape)


def last_axes(name: str, x: Shape, given: Any, *parameters: Tensor | None) -> Shape:
    """Return the sizes of the last axes of x, over which to normalise; ShapeError for a mismatch.

    They are ``given``, or else the shape of the first parameter that is not None, or else the last
    size of x.
    """
    shapes = [shape_of(name, p) for p in parameters if p is not None]
    over = (shapes or [x[-1:]])[0] if given is None else as_shape(name, given)
    if not over or x[len(x) - len(over) :] != over or any(shape != over for shape in shapes):
        raise ShapeError(
            f"{name}: normalized_shape, weight and bias must have the sizes of the input's last "
            f"axes, got input {x}, normalized_shape {over} and parameters {shapes}; reshape them"
        )
    return over


def _in_a_row(v: Tensor, shape: Shape) -> Tensor:
    return v if tuple(v.shape) == shape else reshape(v, shape)


def _channels_last(a: Array) -> Array:
    """Return the view with axis 1 moved to the end."""
    return xp.permute_dims(a, (0, *range(2, a.ndim), 1)) if a.ndim > 2 else a


def _channels_second(a: Array) -> Array:
    """Return the view with the last axis moved to position 1."""
    return xp.permute_dims(a, (0, a.ndim - 1, *range(1, a.ndim - 1))) if a.ndim > 2 else a


def _along(v: Tensor, axis: int, ndim: int) -> Tensor:
    """Return v (size of ``axis``,) as a tensor of ndim axes that broadcasts along the others."""
    return reshape(v, tuple(-1 if i == axis else 1 for i in range(ndim)))


def _per_channel(name: str, v: Any, shape: Shape) -> Tensor:
    """Return v (C,) in a shape that broadcasts with x (N, C, ...); ShapeError unless v is (C,)."""
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

    weight and bias (C,), which may be None, scale and shift the result. The variance is biased (Wu
    & He 2018). ShapeError unless ``num_groups`` divides C.
    """
    return _grouped("group_norm", x, num_groups, weight, bias, eps)


@op(LayerNorm)
def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return x (N, C, ...) normalised over each channel of each sample (Ulyanov et al. 2016).

    weight and bias (C,), which may be None, scale and shift the result. The variance is biased.
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
    last one. eps: None for the machine epsilon of x's dtype. ShapeError if the shapes do not match.
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
