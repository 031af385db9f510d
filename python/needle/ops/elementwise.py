"""Elementwise functions of one tensor: exp, log, roots, trigonometry, activations, casts.

Arithmetic of two operands is in ``arithmetic``; max, min, where and clip are in ``selection``.
"""

from __future__ import annotations

import math
from typing import Any

from .. import accelerated
from ..array_namespace import array_api as xp
from ..array_namespace import device as as_device
from ..array_namespace import device_of, from_numpy, to_numpy
from ..autograd import Tensor, TensorOp, TensorTuple, TensorTupleOp
from ..backends.base import Epilogue
from ..dtypes import is_floating, is_storage, numpy_dtype
from ..errors import ShapeError, UnknownNameError, check_choice
from .broadcasting import as_number
from .registry import Array, LinearOp, op
from .selection import clip, nan_or, where


def as_floating(a: Array) -> Array:
    """Return ``a``, cast to a floating dtype if it holds integers."""
    return a if is_floating(a.dtype) else a * 1.0


def _positive(a: Tensor) -> Tensor:
    """Return 1 where a > 0, NaN where a is NaN, else 0, as a constant in the dtype of ``a``."""
    host = a.realize_cached_data()
    return Tensor.make_const(nan_or(host, xp.astype(host > 0, a.dtype)))


class Log(TensorOp):
    """Natural logarithm."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.log(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [curve-grads]
        a: Tensor = node.inputs[0]
        return out_grad / a
        ### END YOUR SOLUTION


@op(Log, methods=["log"])
def log(a: Tensor) -> Tensor:
    """Return the natural logarithm; NaN for negative elements."""
    return Log()(a)


class Exp(TensorOp):
    """Exponential function e**a."""

    reads = ("result",)

    def compute(self, a: Array) -> Array:
        return accelerated.exp(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [curve-grads]
        return out_grad * node
        ### END YOUR SOLUTION


@op(Exp, methods=["exp"])
def exp(a: Tensor) -> Tensor:
    """Return e**a."""
    return Exp()(a)


class Sqrt(TensorOp):
    """Square root."""

    reads = ("result",)

    def compute(self, a: Array) -> Array:
        return xp.sqrt(a)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad * 0.5 / node


@op(Sqrt, methods=["sqrt"])
def sqrt(a: Tensor) -> Tensor:
    """Return the square root; NaN for negative elements."""
    return Sqrt()(a)


class Abs(TensorOp):
    """Absolute value."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return xp.abs(a)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad * Tensor.make_const(xp.sign(node.inputs[0].realize_cached_data()))


@op(Abs, methods=["abs", "__abs__"])
def abs(a: Tensor) -> Tensor:
    """Return the absolute value; the gradient at 0 is 0."""
    return Abs()(a)


class Sin(TensorOp):
    """Sine."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return xp.sin(a)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad * cos(node.inputs[0])


@op(Sin, methods=["sin"])
def sin(a: Tensor) -> Tensor:
    """Return the sine of ``a`` in radians."""
    return Sin()(a)


class Cos(TensorOp):
    """Cosine."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return xp.cos(a)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return -(out_grad * sin(node.inputs[0]))


@op(Cos, methods=["cos"])
def cos(a: Tensor) -> Tensor:
    """Return the cosine of ``a`` in radians."""
    return Cos()(a)


class Tanh(TensorOp):
    """Hyperbolic tangent."""

    reads = ("result",)

    def compute(self, a: Array) -> Array:
        return xp.tanh(a)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, written in terms of the result."""
        ### BEGIN YOUR SOLUTION [curve-grads]
        return out_grad * (1 - node * node)
        ### END YOUR SOLUTION


@op(Tanh, methods=["tanh"])
def tanh(a: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return Tanh()(a)


class Sigmoid(TensorOp):
    """Logistic function 1 / (1 + e**-a)."""

    reads = ("result",)

    def compute(self, a: Array) -> Array:
        return accelerated.sigmoid(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient s * (1 - s), where s is the result."""
        return out_grad * (node * (1 - node))


@op(Sigmoid, methods=["sigmoid"])
def sigmoid(a: Tensor) -> Tensor:
    """Return the logistic function 1 / (1 + e**-a)."""
    return Sigmoid()(a)


class ReLU(TensorOp):
    """Rectifier max(a, 0)."""

    reads = ("result",)

    def compute(self, a: Array) -> Array:
        return xp.maximum(a, 0)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        # The result is positive exactly where the input is, so the input need not be kept.
        return ReLUGrad()(out_grad, node)


class ReLUGrad(TensorOp):
    """Gradient of relu: grad where y > 0, NaN where y is NaN, else 0; linear in grad."""

    def compute(self, grad: Array, y: Array) -> Array:
        return accelerated.relu_grad(grad, y)[0]

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, None]:
        return ReLUGrad()(out_grad, node.inputs[1]), None


def relu_grad(grad: Tensor, y: Tensor) -> Tensor:
    """Return grad where y > 0, NaN where y is NaN, else 0; for ops that end in relu."""
    return ReLUGrad()(grad, y)


class BiasReLU(TensorOp):
    """Bias and relu in one pass: max(a + bias, 0), for a (..., C) and a bias (C,) or (1, C)."""

    reads = ("result",)

    def compute(self, a: Array, bias: Array) -> Array:
        if a.ndim == 0 or bias.size != a.shape[-1] or bias.shape[-1:] != a.shape[-1:]:
            raise ShapeError(
                f"relu: bias must have one value for each element of a's last axis, got {a.shape} "
                f"and {bias.shape}; reshape it to {tuple(a.shape[-1:])}"
            )
        row = bias if bias.ndim == 1 else xp.reshape(bias, (-1,))
        return accelerated.apply_epilogue(a, Epilogue(row, relu=True))

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, Tensor]:
        grads = BiasReLUGrad(node.inputs[1].shape)(out_grad, node)
        return grads[0], grads[1]


class BiasReLUGrad(TensorTupleOp):
    """Gradients of BiasReLU: (grad, y) -> relu_grad(grad, y) and its sums in the bias's shape."""

    def __init__(self, bias_shape: tuple[int, ...], channel: int = -1) -> None:
        self.bias_shape, self.channel = bias_shape, channel

    def compute(self, grad: Array, y: Array) -> tuple[Array, Array]:
        if self.channel == -1:
            kept, sums = accelerated.relu_grad(grad, y, True)
        else:
            to_last = (*(i for i in range(y.ndim) if i != self.channel), self.channel)
            back = tuple(sorted(range(y.ndim), key=to_last.__getitem__))
            grad, y = xp.permute_dims(grad, to_last), xp.permute_dims(y, to_last)
            kept, sums = accelerated.relu_grad(grad, y, True)
            kept = xp.permute_dims(kept, back)
        return kept, sums if sums.shape == self.bias_shape else xp.reshape(sums, self.bias_shape)

    def gradient(self, out_grad: TensorTuple, node: Any) -> tuple[Tensor, None]:
        """Return the gradients: the op is linear in grad, and a sum's gradient is broadcast."""
        y = node.inputs[1]
        along = [1] * len(y.shape)
        along[self.channel] = -1
        return relu_grad(out_grad[0] + out_grad[1].reshape(tuple(along)), y), None


@op(ReLU, ReLUGrad, BiasReLU, BiasReLUGrad, methods=["relu"])
def relu(a: Tensor) -> Tensor:
    """Return max(a, 0); the gradient is 0 at 0, and NaN at NaN."""
    return ReLU()(a)


class LeakyReLU(TensorOp):
    """Leaky rectifier: a where positive, else negative_slope * a."""

    reads = (0,)

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = as_number("leaky_relu", negative_slope, "negative_slope")

    def compute(self, a: Array) -> Array:
        return xp.where(a > 0, a, a * self.negative_slope)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        slope = self.negative_slope
        return out_grad * (_positive(node.inputs[0]) * (1 - slope) + slope)


@op(LeakyReLU)
def leaky_relu(a: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return a where positive, else negative_slope * a; at 0 the gradient is negative_slope."""
    return LeakyReLU(negative_slope)(a)


class Erf(TensorOp):
    """Error function."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.erf(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times 2/sqrt(pi) * e**(-a**2)."""
        a = node.inputs[0]
        return out_grad * (exp(-(a * a)) * (2 / math.sqrt(math.pi)))


@op(Erf)
def erf(a: Tensor) -> Tensor:
    """Return the error function, 2/sqrt(pi) times the integral of e**(-t**2) from 0 to a."""
    return Erf()(a)


class NormalCDF(TensorOp):
    """Standard normal distribution function Phi."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.normal_cdf(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times e**(-a**2 / 2) / sqrt(2 pi)."""
        a = node.inputs[0]
        return out_grad * (exp(a * a * -0.5) * (1 / math.sqrt(2 * math.pi)))


@op(NormalCDF)
def normal_cdf(a: Tensor) -> Tensor:
    """Return the standard normal distribution function, (1 + erf(a / sqrt(2))) / 2.

    Unlike that formula, it is accurate where the result is small.
    """
    return NormalCDF()(a)


class GELU(TensorOp):
    """Gaussian error linear unit a * Phi(a), Phi the standard normal distribution function."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.gelu(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times Phi(a) + a * phi(a)."""
        return out_grad * GELUSlope()(node.inputs[0])


class GELUSlope(TensorOp):
    """Derivative of GELU; phi is the density of the standard normal distribution."""

    def compute(self, a: Array) -> Array:
        return accelerated.gelu_slope(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times phi(a) (2 - a**2)."""
        a: Tensor = node.inputs[0]
        square = a * a
        return out_grad * (exp(square * -0.5) * (2 - square) * (1 / math.sqrt(2 * math.pi)))


class GELUTanh(TensorOp):
    """Approximation of GELU, a/2 (1 + tanh(u)) with u = sqrt(2/pi) (a + 0.044715 a**3)."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.gelu_tanh(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times s + a s (1 - s) 2 u', with s = sigmoid(2 u)."""
        return out_grad * GELUTanhSlope()(node.inputs[0])


class GELUTanhSlope(TensorOp):
    """Derivative of GELUTanh, s + a s (1 - s) v' with s = sigmoid(v), v = 2 u."""

    def compute(self, a: Array) -> Array:
        return accelerated.gelu_tanh_slope(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times s (1 - s) (2 v' + a ((1 - 2 s) v'**2 + v''))."""
        a: Tensor = node.inputs[0]
        factor = 2 * math.sqrt(2 / math.pi)
        square = a * a
        s = sigmoid(a * (square * 0.044715 + 1) * factor)
        slope = (square * (3 * 0.044715) + 1) * factor
        bend = (1 - 2 * s) * slope * slope + a * (6 * 0.044715 * factor)
        return out_grad * (s * (1 - s) * (2 * slope + a * bend))


@op(GELU, GELUTanh, methods=["gelu"])
def gelu(a: Tensor, approximate: str = "none") -> Tensor:
    """Return a * Phi(a), Phi the standard normal distribution function (Hendrycks & Gimpel 2016).

    ``approximate``: "none" for the exact function, or "tanh" for a/2 (1 + tanh(sqrt(2/pi) (a +
    0.044715 a**3))). UnknownNameError for anything else.
    """
    check_choice("gelu", "approximate", approximate, ("none", "tanh"), UnknownNameError)
    return GELU()(a) if approximate == "none" else GELUTanh()(a)


class SiLU(TensorOp):
    """Sigmoid linear unit a * sigmoid(a)."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.silu(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times s (1 + a (1 - s)), with s = sigmoid(a)."""
        a: Tensor = node.inputs[0]
        s = sigmoid(a)
        return out_grad * (s * (a * (1 - s) + 1))


@op(SiLU, methods=["silu"])
def silu(a: Tensor) -> Tensor:
    """Return a * sigmoid(a), also called swish (Elfwing et al. 2017)."""
    return SiLU()(a)


class Softplus(TensorOp):
    """Smooth rectifier log(1 + e**a)."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.softplus(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad * sigmoid(node.inputs[0])


@op(Softplus, methods=["softplus"])
def softplus(a: Tensor) -> Tensor:
    """Return log(1 + e**a), a smooth relu, without overflow."""
    return Softplus()(a)


class LogSigmoid(TensorOp):
    """Logarithm of the logistic function, -log(1 + e**-a)."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        return accelerated.log_sigmoid(as_floating(a))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return out_grad * sigmoid(-node.inputs[0])


@op(LogSigmoid)
def log_sigmoid(a: Tensor) -> Tensor:
    """Return log(sigmoid(a)); finite for every finite a, with gradient sigmoid(-a)."""
    return LogSigmoid()(a)


class ELU(TensorOp):
    """Exponential linear unit: a where positive, else alpha (e**a - 1)."""

    reads = (0,)

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = as_number("elu", alpha, "alpha")

    def compute(self, a: Array) -> Array:
        a = as_floating(a)
        below = accelerated.expm1(xp.minimum(a, 0.0)) * self.alpha
        return xp.where(a > 0, a, below)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient, ``out_grad`` times 1 where a is positive, else alpha e**a."""
        a: Tensor = node.inputs[0]
        positive = Tensor.make_const(a.realize_cached_data() > 0)
        slope = exp(clip(a, max=0)) * self.alpha
        return where(positive, out_grad, out_grad * slope)


@op(ELU)
def elu(a: Tensor, alpha: float = 1.0) -> Tensor:
    """Return a where positive, else alpha (e**a - 1) (Clevert et al. 2015)."""
    return ELU(alpha)(a)


class Hardswish(TensorOp):
    """Piecewise approximation of silu: a * min(max(a + 3, 0), 6) / 6."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        a = as_floating(a)
        return a * (xp.minimum(xp.maximum(a + 3.0, 0.0), 6.0) / 6.0)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return ``out_grad`` times the slope: 0 up to -3, 1 from 3 on, a/3 + 1/2 between."""
        a: Tensor = node.inputs[0]
        host = a.realize_cached_data()
        between = Tensor.make_const(xp.logical_not(xp.logical_or(host <= -3, host >= 3)))
        outside = Tensor.make_const(xp.astype(host > 0, host.dtype))
        return out_grad * where(between, a * (1 / 3) + 0.5, outside)


@op(Hardswish)
def hardswish(a: Tensor) -> Tensor:
    """Return a * min(max(a + 3, 0), 6) / 6, a cheap approximation of silu (Howard et al. 2019)."""
    return Hardswish()(a)


class AsType(LinearOp):
    """Cast to another dtype."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = numpy_dtype(dtype, "astype")

    def compute(self, a: Array) -> Array:
        return xp.astype(a, self.dtype)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor | None:
        """Return the gradient cast back to a floating dtype, or None if the result is integer."""
        if not is_floating(self.dtype):
            return None
        before = node.inputs[0].dtype
        return astype(out_grad, before) if is_floating(before) else out_grad


@op(AsType, methods=["astype"])
def astype(a: Tensor, dtype: Any) -> Tensor:
    """Return ``a`` cast to ``dtype``, a name or a dtype object."""
    return AsType(dtype)(a)


def as_stored(v: Tensor, x: Tensor) -> Tensor:
    """Return ``v``, cast to the dtype of x if that is a storage dtype such as bfloat16."""
    return astype(v, x.dtype) if is_storage(x.dtype) else v


class ToDevice(LinearOp):
    """Copy to another device."""

    def __init__(self, device: Any) -> None:
        self.device = as_device(device)

    def compute(self, a: Array) -> Array:
        return a if device_of(a) == self.device else from_numpy(to_numpy(a), self.device, a.dtype)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return to_device(out_grad, node.inputs[0].device)


@op(ToDevice, methods=["to"])
def to_device(a: Tensor, device: Any) -> Tensor:
    """Return ``a`` on ``device``, a device or its name; the data is shared if already there.

    The gradient is copied to the device of ``a``.
    """
    return ToDevice(device)(a)
