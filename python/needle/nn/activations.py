"""Elementwise activations as modules, and a check of the ``activation`` option of layers.

The functions and their gradients are in ``ops``.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError, UnknownNameError
from ..init import constant
from ..ops.selection import Clip
from ..shapes import normalize_axis, shape_of
from .module import Module, Parameter, operands


def check_activation(layer: Module, activation: str | None) -> str | None:
    """Return ``activation``, which must be None or "relu"; UnknownNameError for any other value.

    UnknownNameError for any other value.
    """
    if activation not in (None, "relu"):
        raise UnknownNameError(
            f"{type(layer).__name__}: activation must be None or 'relu', got {activation!r}; "
            "add another activation after the layer"
        )
    return activation


class ReLU(Module):
    """Rectifier max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.relu(x)


class LeakyReLU(Module):
    """Leaky rectifier: x where positive, else negative_slope * x."""

    shown_in_repr = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return ops.leaky_relu(x, self.negative_slope)


class GELU(Module):
    """Gaussian error linear unit x * Phi(x), where Phi is the normal distribution function.

    Hendrycks & Gimpel 2016. ``approximate``: see ``ops.gelu``.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def extra_repr(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"

    def forward(self, x: Tensor) -> Tensor:
        return ops.gelu(x, self.approximate)


class Sigmoid(Module):
    """Logistic function 1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.tanh(x)


class SiLU(Module):
    """Sigmoid linear unit x * sigmoid(x), also called swish (Elfwing et al. 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.silu(x)


class LogSigmoid(Module):
    """Logarithm of the logistic function, -log(1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.log_sigmoid(x)


class Softplus(Module):
    """Smooth rectifier log(1 + exp(beta * x)) / beta.

    ``threshold``: where beta * x exceeds it, the result is x, as in PyTorch, whose default is 20;
    None gives the exact value everywhere.
    """

    shown_in_repr = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float | None = None) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * self.beta
        y = ops.softplus(scaled) / self.beta
        if self.threshold is None:
            return y
        return ops.where(ops.greater(scaled, self.threshold), x, y)


class ELU(Module):
    """Exponential linear unit: x if positive, else alpha * (exp(x) - 1) (Clevert et al. 2015)."""

    shown_in_repr = ("alpha",)

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return ops.elu(x, self.alpha)


class CELU(Module):
    """Smooth ELU: x if positive, else alpha * (exp(x / alpha) - 1) (Barron 2017).

    ValueError unless alpha is positive.
    """

    shown_in_repr = ("alpha",)

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        if not alpha > 0:
            raise ValueError(f"CELU: alpha must be positive, got {alpha}; pass a positive number")
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return ops.elu(x / self.alpha) * self.alpha


class SELU(Module):
    """Scaled ELU, which preserves mean 0 and variance 1 across layers (Klambauer et al. 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.elu(x, 1.6732632423543772) * 1.0507009873554805


class Mish(Module):
    """Smooth unit x * tanh(log(1 + exp(x))) (Misra 2019)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * ops.tanh(ops.softplus(x))


class Softsign(Module):
    """Smooth sign x / (1 + abs(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (ops.abs(x) + 1)


class Tanhshrink(Module):
    """Distance from the hyperbolic tangent, x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x - ops.tanh(x)


class Softshrink(Module):
    """Shrinkage towards 0 by ``lambd``: 0 where abs(x) <= lambd (Donoho 1995).

    ValueError if lambd is negative.
    """

    shown_in_repr = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        if not lambd >= 0:
            raise ValueError(
                f"Softshrink: lambd must be at least 0, got {lambd}; pass its absolute value"
            )
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return x - ops.clip(x, -self.lambd, self.lambd)


class Threshold(Module):
    """x where it is greater than ``threshold``, else ``value``."""

    shown_in_repr = ("threshold", "value")

    def __init__(self, threshold: float, value: float) -> None:
        super().__init__()
        self.threshold, self.value = threshold, value

    def forward(self, x: Tensor) -> Tensor:
        return ops.where(ops.less_equal(x, self.threshold), self.value, x)  # NaN propagates


class Hardtanh(Module):
    """Clipping to [min_val, max_val]; the gradient is 0 at both limits."""

    shown_in_repr = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__()
        if not min_val <= max_val:
            raise ValueError(
                f"{type(self).__name__}: min_val must be at most max_val, got {min_val} and "
                f"{max_val}; swap them"
            )
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        return Clip(self.min_val, self.max_val, flat=True)(x)


class ReLU6(Hardtanh):
    """Rectifier limited to 6: min(max(x, 0), 6)."""

    def __init__(self) -> None:
        super().__init__(0.0, 6.0)


class Hardsigmoid(Hardtanh):
    """Piecewise linear sigmoid: x/6 + 1/2, limited to [0, 1]."""

    def __init__(self) -> None:
        super().__init__(-3.0, 3.0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 6 + 0.5


class Hardswish(Module):
    """Piecewise approximation of SiLU: x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019)."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.hardswish(x)


class PReLU(Module):
    """Leaky rectifier with a trained slope below 0 (He et al. 2015).

    weight (num_parameters,): one slope for all channels, or one per channel (axis 1); it starts at
    ``init``.
    """

    shown_in_repr = ("num_parameters",)

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.weight: Tensor = Parameter(
            constant(num_parameters, c=init, device=device, dtype=dtype)
        )

    def forward(self, x: Tensor) -> Tensor:
        shape, weight = shape_of("PReLU", x), self.weight
        if self.num_parameters > 1:
            if len(shape) < 2 or shape[1] != self.num_parameters:
                raise ShapeError(
                    f"PReLU: the input must have {self.num_parameters} channels on axis 1, got "
                    f"shape {shape}; use num_parameters=1 or reshape the input"
                )
            weight = ops.reshape(weight, (1, -1) + (1,) * (len(shape) - 2))
        x, weight = operands(x, weight)
        slope = weight if shape else ops.reshape(weight, ())
        return ops.relu(x) + slope * ops.clip(x, max=0.0)


class Softmax(Module):
    """exp(x) / sum(exp(x)) over the axis ``dim``, the last one by default."""

    shown_in_repr = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return ops.softmax(x, self.dim)


class LogSoftmax(Softmax):
    """x - log(sum(exp(x))) over the axis ``dim``, the last one by default."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.logsoftmax(x, axis=self.dim)


class GLU(Module):
    """Gated linear unit a * sigmoid(b) of the halves a and b of an axis (Dauphin et al. 2017).

    The axis ``dim`` shrinks from size 2*n to n. ShapeError if its size is odd.
    """

    shown_in_repr = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        shape = shape_of("GLU", x)
        axis = normalize_axis("GLU", self.dim, len(shape))
        if shape[axis] % 2:
            raise ShapeError(
                f"GLU: the size of axis {self.dim} must be even, got shape {shape}; concatenate "
                "values and gates"
            )
        before: tuple[slice, ...] = (slice(None),) * axis
        n = shape[axis] // 2
        return x[(*before, slice(0, n))] * ops.sigmoid(x[(*before, slice(n, None))])
