"""Batch and layer normalisation with their parameters and running statistics.

The formulas and gradients are in ``ops.normalization``; the layers that normalise over groups and
instances are in ``group_normalization``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .. import init, ops
from ..array_namespace import Device
from ..array_namespace import array_api as xp
from ..autograd import Tensor, as_operand
from ..dtypes import compute_dtype
from ..errors import ShapeError
from ..ops import normalization
from ..ops.broadcasting import as_number, constant_like
from ..ops.elementwise import as_stored
from ..shapes import as_shape, shape_of
from .activations import check_activation
from .module import Module, Parameter


def affine_parameters(
    shape: tuple[int, ...], weight: bool, bias: bool, device: Device | None, dtype: Any
) -> tuple[Tensor | None, Tensor | None]:
    """Return a weight of ones and a bias of zeros; either may be None instead."""
    return (
        Parameter(init.ones(*shape, device=device, dtype=dtype)) if weight else None,
        Parameter(init.zeros(*shape, device=device, dtype=dtype)) if bias else None,
    )


class BatchStatistics(Module):
    """Base class of layers that normalise each channel (axis 1), and may keep running statistics.

    running = (1 - momentum) * running + momentum * batch, or the average of all batches with
    ``momentum=None``. Evaluation uses the running statistics. Without ``track_running_stats`` there
    are none, and evaluation normalises as training does. Without ``affine`` there is neither weight
    nor bias, without ``bias`` no bias. ``activation="relu"`` returns relu of the result, or of the
    result plus a second input. In a Sequential, a ReLU directly after this layer counts as its
    activation.
    """

    ndims: tuple[int, ...]
    layout: str
    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    """The number of batches so far, with ``momentum=None`` alone."""

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        device: Device | None = None,
        dtype: Any = "float32",
        activation: str | None = None,
        *,
        affine: bool = True,
        track_running_stats: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.dim, self.eps = dim, as_number(type(self).__name__, eps, "eps")
        self.momentum: Any = momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.activation = check_activation(self, activation)
        self.weight, self.bias = affine_parameters((dim,), affine, affine and bias, device, dtype)
        if track_running_stats:
            self.register_buffer("running_mean", init.zeros(dim, device=device, dtype=dtype))
            self.register_buffer("running_var", init.ones(dim, device=device, dtype=dtype))
            if momentum is None:
                count = init.zeros(device=device, dtype="int64")
                self.register_buffer("num_batches_tracked", count)

    def extra_repr(self) -> str:
        parts = [f"{self.dim}, eps={self.eps}, momentum={self.momentum}"]
        parts += [] if self.affine else ["affine=False"]
        parts += ["bias=False"] if self.affine and self.bias is None else []
        parts += [] if self.track_running_stats else ["track_running_stats=False"]
        parts += [f"activation={self.activation!r}"] if self.activation else []
        return ", ".join(parts)

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the normalised x, plus ``added`` if given, followed by the activation if set."""
        if added is not None and not self.activation:
            raise ValueError(
                f"{type(self).__name__}: a second input requires activation='relu', got None; "
                "write layer(x) + added"
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
        if not self.training and self.track_running_stats:
            y = as_stored(self._evaluate(x), x)
            y = y if added is None else y + added
            return ops.relu(y) if relu else y
        y, mean, var = self._by_batch(x, added, relu)
        if self.track_running_stats:
            mix = self._mixed
            if self.momentum is None:
                self.num_batches_tracked = (self.num_batches_tracked + 1).detach()
                mix = self._averaged
            self.running_mean = mix(self.running_mean, mean)
            self.running_var = mix(self.running_var, var)
        return y

    def _by_batch(
        self, x: Tensor, added: Tensor | None, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return x normalised by the batch's statistics, their mean and their variance."""
        raise NotImplementedError

    def _mixed(self, running: Tensor, observed: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [running-statistics]
        m, old = self.momentum, running.realize_cached_data()
        mixed = old * (1 - m) + observed.realize_cached_data() * m
        return Tensor.make_const(mixed if mixed.dtype == old.dtype else mixed.astype(old.dtype))
        ### END YOUR SOLUTION

    def _averaged(self, running: Tensor, observed: Tensor) -> Tensor:
        """Return the running average over all batches, updated with the last one, ``observed``."""
        old, count = running.realize_cached_data(), self.num_batches_tracked.realize_cached_data()
        share = xp.astype(count, old.dtype)
        mixed = old + (observed.realize_cached_data() - old) / share
        return Tensor.make_const(xp.astype(mixed, old.dtype))

    def _evaluate(self, x: Tensor) -> Tensor:
        """Return x normalised with the running statistics, times weight plus bias."""
        weight = 1 if self.weight is None else self.weight
        bias = 0 if self.bias is None else self.bias
        ### BEGIN YOUR SOLUTION [running-statistics]
        # One multiplication and one addition per element.
        scale = weight / ops.sqrt(self.running_var + self.eps)
        shift = bias - self.running_mean * scale
        shape = (1, self.dim) + (1,) * (len(x.shape) - 2)
        return x * ops.reshape(scale, shape) + ops.reshape(shift, shape)
        ### END YOUR SOLUTION


class SumOverProcesses(Protocol):
    """A function that sums a Tensor over the processes of a training run, with a gradient.

    weight: this process's fraction of the loss; gradients are scaled so that its own has factor 1.
    """

    def __call__(self, values: Tensor, weight: float) -> Tensor: ...


class _BatchNorm(BatchStatistics):
    """Base class of batch norms, whose statistics span the batch and all positions.

    The running variance is the *biased* one, which the normalisation also uses (Ioffe & Szegedy
    2015; PyTorch's is unbiased). Addition and relu run in the same passes over memory.
    """

    over_processes: SumOverProcesses | None = None
    """None: statistics of this process's batch; ``distributed.synchronise_batch_norm`` sets it."""

    def _by_batch(
        self, x: Tensor, added: Tensor | None, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.over_processes is not None:
            return self._by_all_batches(as_operand(x), added, relu, self.over_processes)
        if math.prod(x.shape) == self.dim:
            raise ShapeError(
                f"{type(self).__name__}: training requires more than one value per channel, got "
                f"shape {tuple(x.shape)}; use a larger batch or call eval()"
            )
        weight, bias = self.weight, self.bias
        if weight is None or bias is None:
            x = as_operand(x)
            weight = constant_like(x, (self.dim,), 1.0) if weight is None else weight
            bias = constant_like(x, (self.dim,), 0.0)
        more = () if added is None else (added,)
        result = normalization.BatchNorm(self.eps, relu)(x, weight, bias, *more)
        return result[0], result[1], result[2]

    def _by_all_batches(
        self, x: Tensor, added: Tensor | None, relu: bool, over_all: SumOverProcesses
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``_by_batch`` with statistics over all processes, using two all-reduces."""
        axes = tuple(axis for axis in range(len(x.shape)) if axis != 1)
        shape = tuple(self.dim if axis == 1 else 1 for axis in range(len(x.shape)))
        count = math.prod(x.shape) / self.dim
        given, wide = x, compute_dtype(x.dtype)
        x = x if x.dtype == wide else ops.astype(x, wide)
        own = [ops.summation(x, axes), constant_like(x, (1,), count)]
        sums = over_all(ops.concatenate(own), count)
        total = sums[self.dim :]
        mean = sums[: self.dim] / total
        centred = x - ops.reshape(mean, shape)
        var = over_all(ops.summation(centred * centred, axes), count) / total
        scale = 1 / ops.sqrt(var + self.eps)
        y = centred * ops.reshape(scale if self.weight is None else scale * self.weight, shape)
        y = as_stored(y if self.bias is None else y + ops.reshape(self.bias, shape), given)
        y = y if added is None else y + added
        return ops.relu(y) if relu else y, mean, var


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) over N, or of (N, C, L) over N and L.

    Running statistics and options are those of ``BatchNorm2d``.
    """

    ndims, layout = (2, 3), "(N, C)"


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W) over N, H and W (Ioffe & Szegedy 2015).

    running = (1 - momentum) * running + momentum * batch for mean and variance, or the average of
    all batches with ``momentum=None``; the variance is the *biased* one throughout, while PyTorch
    keeps the unbiased one. Evaluation uses the running statistics; without ``track_running_stats``
    there are none. Without ``affine`` there is neither weight nor bias, without ``bias`` no bias.
    ``activation="relu"`` returns relu of the result, or of the result plus a second input.
    ShapeError for another shape or, in training, for a single value per channel.
    """

    ndims, layout = (4,), "(N, C, H, W)"


class LayerNorm(Module):
    """Normalisation of x over the last axes, ``dim``, with biased variance (Ba et al. 2016).

    ``dim``: the size of the last axis, or the sizes of several. weight and bias have this shape;
    without ``elementwise_affine`` there is neither, without ``bias`` no bias.
    """

    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float = 1e-5,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = as_shape(type(self).__name__, dim)
        self.dim, self.eps = tuple(dim) if isinstance(dim, Iterable) else dim, eps
        self.weight, self.bias = affine_parameters(
            self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype
        )

    def extra_repr(self) -> str:
        extra = ", elementwise_affine=False" if self.weight is None else ""
        extra += ", bias=False" if self.bias is None and self.weight is not None else ""
        return f"{self.dim}, eps={self.eps}{extra}"

    def forward(self, x: Tensor) -> Tensor:
        check_last_axes(self, x, self.normalized_shape)
        return ops.layer_norm(x, self.weight, self.bias, self.eps, self.normalized_shape)


def check_last_axes(layer: Module, x: Tensor, sizes: tuple[int, ...]) -> None:
    """Raise ShapeError unless the last axes of x have these sizes."""
    shape = shape_of(type(layer).__name__, x)
    if shape[max(len(shape) - len(sizes), 0) :] != sizes:
        what = f"axis must have dim={sizes[0]}" if len(sizes) == 1 else f"axes must be {sizes}"
        raise ShapeError(
            f"{type(layer).__name__}: the last {what}, got shape {shape}; check the layer's dim"
        )


class LayerNorm1d(LayerNorm):
    """LayerNorm under the course's name, for any number of leading axes."""
