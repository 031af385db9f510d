"""Batch and layer normalisation with their parameters and running statistics.

The formulas and gradients are in ``ops.normalization``.
"""

from __future__ import annotations

from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..ops import normalization
from ..shapes import shape_of
from .activations import check_activation
from .module import Module, Parameter


class _BatchNorm(Module):
    """Normalisation of each channel (axis 1) over the batch, or by running statistics.

    running = (1 - momentum) * running + momentum * batch, with the *biased* batch variance both
    here and in the normalisation (Ioffe & Szegedy 2015; PyTorch keeps the unbiased one).
    Evaluation uses the running statistics. ``activation="relu"`` returns relu of the result, or of
    the result plus a second input, in the same passes over memory. In a Sequential, a ReLU directly
    after this layer runs in the same passes too.
    """

    ndims: tuple[int, ...]
    layout: str

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: Device | None = None,
        dtype: Any = "float32",
        activation: str | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.eps, self.momentum = dim, eps, momentum
        self.activation = check_activation(self, activation)
        self.weight = Parameter(init.ones(dim, device=device, dtype=dtype))
        self.bias = Parameter(init.zeros(dim, device=device, dtype=dtype))
        self.register_buffer("running_mean", init.zeros(dim, device=device, dtype=dtype))
        self.register_buffer("running_var", init.ones(dim, device=device, dtype=dtype))

    running_mean: Tensor
    running_var: Tensor

    def extra_repr(self) -> str:
        extra = f", activation={self.activation!r}" if self.activation else ""
        return f"{self.dim}, eps={self.eps}, momentum={self.momentum}{extra}"

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the normalised x; with an activation, relu of it or of it plus ``added``."""
        if added is not None and not self.activation:
            raise ValueError(
                f"{type(self).__name__}: a second input needs activation='relu', got None; write "
                "layer(x) + added"
            )
        return self._normalised(x, added, relu=self.activation is not None)

    def forward_relu(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Return relu(forward(x)) or relu(forward(x) + added), computed in the same pass."""
        return self._normalised(x, added, relu=True)

    fusible = forward

    @property
    def takes_residual(self) -> bool:
        """Return True if ``forward_relu`` adds ``added`` to the result of ``forward``."""
        return self.activation is None

    def _normalised(self, x: Tensor, added: Tensor | None, relu: bool) -> Tensor:
        shape = shape_of(type(self).__name__, x)
        if len(shape) not in self.ndims or shape[1] != self.dim:
            raise ShapeError(
                f"{type(self).__name__}: input must be {self.layout} with C={self.dim}, got shape "
                f"{shape}; check the layer's dim or reshape the input"
            )
        if not self.training:
            y = self._evaluate(x)
            y = y if added is None else y + added
            return ops.relu(y) if relu else y
        more = () if added is None else (added,)
        result = normalization.BatchNorm(self.eps, relu)(x, self.weight, self.bias, *more)
        self.running_mean = self._mixed(self.running_mean, result[1])
        self.running_var = self._mixed(self.running_var, result[2])
        y = result[0]
        return y

    def _mixed(self, running: Tensor, observed: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [running-statistics]
        m, old = self.momentum, running.realize_cached_data()
        mixed = old * (1 - m) + observed.realize_cached_data() * m
        return Tensor.make_const(mixed if mixed.dtype == old.dtype else mixed.astype(old.dtype))
        ### END YOUR SOLUTION

    def _evaluate(self, x: Tensor) -> Tensor:
        """Return x * scale + shift: one multiplication and one addition per element."""
        ### BEGIN YOUR SOLUTION [running-statistics]
        scale = self.weight / ops.sqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        shape = (1, self.dim) + (1,) * (len(x.shape) - 2)
        return x * ops.reshape(scale, shape) + ops.reshape(shift, shape)
        ### END YOUR SOLUTION


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) over N, or of (N, C, L) over N and L."""

    ndims, layout = (2, 3), "(N, C)"


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W) over N, H and W."""

    ndims, layout = (4,), "(N, C, H, W)"


class LayerNorm(Module):
    """Normalisation of x (..., dim) over the last axis, biased variance (Ba et al. 2016)."""

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = Parameter(init.ones(dim, device=device, dtype=dtype))
        self.bias = Parameter(init.zeros(dim, device=device, dtype=dtype))

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"

    def forward(self, x: Tensor) -> Tensor:
        shape = shape_of(type(self).__name__, x)
        if not shape or shape[-1] != self.dim:
            raise ShapeError(
                f"{type(self).__name__}: the last axis must have dim={self.dim}, got shape "
                f"{shape}; check the layer's dim"
            )
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)


class LayerNorm1d(LayerNorm):
    """LayerNorm under the course's name; any number of leading axes, as there."""
