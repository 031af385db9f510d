"""Elementwise activations as modules, and the check of a layer's ``activation`` option.

The functions and their gradients are in ``ops``.
"""

from __future__ import annotations

from .. import ops
from ..autograd import Tensor
from ..errors import UnknownNameError
from .module import Module


def check_activation(layer: Module, activation: str | None) -> str | None:
    """Return ``activation``, None or "relu", which a layer applies in the same pass over memory.

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

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"

    def forward(self, x: Tensor) -> Tensor:
        return ops.leaky_relu(x, self.negative_slope)


class GELU(Module):
    """Gaussian error linear unit x * Phi(x), Phi the normal distribution function.

    Hendrycks & Gimpel 2016.
    """

    def forward(self, x: Tensor) -> Tensor:
        return ops.gelu(x)


class Sigmoid(Module):
    """Logistic function 1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.tanh(x)
