"""Group norm, instance norm and RMS norm.

The formulas are in ``ops.normalization``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..shapes import as_shape, shape_of
from .module import Module, operands
from .normalization import BatchStatistics, affine_parameters, check_last_axes


class GroupNorm(Module):
    """Normalisation of x (N, C, ...) over each sample's groups of channels (Wu & He 2018).

    ``num_groups`` divides C = ``num_channels``. weight and bias (C,) scale and shift the result;
    without ``affine`` there is neither, without ``bias`` no bias. The variance is biased.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"GroupNorm: num_groups must divide num_channels, got {num_groups} and "
                f"{num_channels}; change one of them"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight, self.bias = affine_parameters(
            (num_channels,), affine, affine and bias, device, dtype
        )

    def extra_repr(self) -> str:
        affine = self.weight is not None
        extra = ", bias=False" if affine and self.bias is None else ""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={affine}{extra}"

    def forward(self, x: Tensor) -> Tensor:
        shape = shape_of("GroupNorm", x)
        if len(shape) < 2 or shape[1] != self.num_channels:
            raise ShapeError(
                f"GroupNorm: input must be (N, C, ...) with C={self.num_channels}, got shape "
                f"{shape}; reshape the input"
            )
        if math.prod(shape) == self.num_groups:
            raise ShapeError(
                f"GroupNorm: a group must have more than one value, got shape {shape} for "
                f"{self.num_groups} groups; use fewer groups"
            )
        x, weight, bias = operands(x, self.weight, self.bias)
        return ops.group_norm(x, self.num_groups, weight, bias, self.eps)


class _InstanceNorm(BatchStatistics):
    """Base class of instance norms, which compute statistics for each channel of each sample.

    Running statistics average these over the batch and use the *unbiased* variance, as in PyTorch.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features,
            eps,
            momentum,
            device,
            dtype,
            affine=affine,
            track_running_stats=track_running_stats,
            bias=bias,
        )

    def extra_repr(self) -> str:
        extra = ", bias=False" if self.affine and self.bias is None else ""
        return (
            f"{self.dim}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}{extra}"
        )

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the normalised x; its batch axis may be missing."""
        if len(shape_of(type(self).__name__, x)) == self.ndims[0] - 1:
            return ops.squeeze(super().forward(ops.expand_dims(x, 0), added), 0)
        return super().forward(x, added)

    def _by_batch(
        self, x: Tensor, added: Tensor | None, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        shape, axes = x.shape, tuple(range(2, len(x.shape)))
        if math.prod(shape[2:]) == 1:
            raise ShapeError(
                f"{type(self).__name__}: a channel must have more than one position, got shape "
                f"{tuple(shape)}; use a larger input or call eval() with running statistics"
            )
        x, weight, bias = operands(x, self.weight, self.bias)
        y = ops.instance_norm(x, weight, bias, self.eps)
        y = y if added is None else y + added
        mean = var = y
        if self.track_running_stats:
            values = x.detach()
            mean = ops.mean(ops.mean(values, axes), 0)
            var = ops.mean(ops.var(values, axes, correction=1), 0)
        return ops.relu(y) if relu else y, mean, var


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each sample's channels over L, for x (N, C, L) or (C, L).

    Options are those of ``InstanceNorm2d``.
    """

    ndims, layout = (3,), "(N, C, L)"


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each sample's channels over H and W, for x (N, C, H, W) or (C, H, W).

    Ulyanov et al. 2016. With ``affine`` there are weight and, unless ``bias`` is False, bias (C,).
    With ``track_running_stats`` evaluation uses running averages of the mean and the unbiased
    variance over the batch, as in PyTorch; ``momentum`` is that of ``BatchNorm2d``. ShapeError for
    another shape, or for a single position if its own statistics are needed.
    """

    ndims, layout = (4,), "(N, C, H, W)"


class RMSNorm(Module):
    """x / sqrt(mean(x**2) + eps) * weight over the last axes (Zhang & Sennrich 2019).

    ``normalized_shape``: the size of the last axis, or the sizes of several; weight has this shape.
    Without ``elementwise_affine`` there is no weight. ``eps=None`` means the machine epsilon of the
    input's dtype.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = as_shape("RMSNorm", normalized_shape), eps
        self.weight, _ = affine_parameters(
            self.normalized_shape, elementwise_affine, False, device, dtype
        )

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.weight is not None}"

    def forward(self, x: Tensor) -> Tensor:
        check_last_axes(self, x, self.normalized_shape)
        x, weight = operands(x, self.weight)
        return ops.rms_norm(x, weight, self.eps, self.normalized_shape)
