"""Softmax, logsoftmax, logsumexp and cross entropy; all subtract the maximum before exp.

Losses as modules are in ``nn.loss``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import accelerated
from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy, is_array
from ..autograd import Tensor, TensorOp, as_operand
from ..dtypes import is_floating
from ..errors import DTypeError, ShapeError
from ..host_steps import host_step
from ..shapes import normalize_axes, normalize_axis, reduced_shape, shape_of
from .elementwise import exp
from .reduction import summation
from .registry import op
from .shape import broadcast_to, reshape

Array = Any
Axes = int | Sequence[int] | None
REDUCTIONS = ("mean", "sum", "none")


class Softmax(TensorOp):
    """Normalised exponentials along an axis: ``softmax``."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def compute(self, a: Array) -> Array:
        a = _as_floats(a)
        return accelerated.softmax(a, normalize_axis("softmax", self.axis, a.ndim))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [softmax-grad]
        weighted = out_grad * node
        return weighted - node * summation(weighted, axes=self.axis, keepdims=True)
        ### END YOUR SOLUTION


@op(Softmax)
def softmax(a: Tensor, axis: int = -1) -> Tensor:
    """Return exp(a) / sum(exp(a)) along ``axis``; the shape stays."""
    return Softmax(axis)(a)


class LogSoftmax(TensorOp):
    """Logarithm of softmax along an axis: ``logsoftmax``."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def compute(self, a: Array) -> Array:
        a = _as_floats(a)
        return accelerated.log_softmax(a, normalize_axis("logsoftmax", self.axis, a.ndim))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [softmax-grad]
        return out_grad - exp(node) * summation(out_grad, axes=self.axis, keepdims=True)
        ### END YOUR SOLUTION


@op(LogSoftmax)
def logsoftmax(a: Tensor, *, axis: int = -1) -> Tensor:
    """Return a - logsumexp(a) along ``axis``, the last by default (axis 1 of (N, C))."""
    return LogSoftmax(axis)(a)


class LogSumExp(TensorOp):
    """Logarithm of the sum of exponentials over axes: ``logsumexp``."""

    def __init__(self, axes: Axes = None, keepdims: bool = False) -> None:
        self.axes, self.keepdims = axes, keepdims

    def compute(self, a: Array) -> Array:
        a = _as_floats(a)
        axes = normalize_axes("logsumexp", self.axes, a.ndim)
        if any(a.shape[axis] == 0 for axis in axes):
            raise ShapeError(
                f"logsumexp: needs at least one element to reduce, got shape {a.shape} "
                f"over axes {axes}; skip empty inputs"
            )
        return accelerated.logsumexp(a, axes, self.keepdims)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [logsumexp]
        a = node.inputs[0]
        shape = tuple(a.shape)
        kept = reduced_shape(shape, normalize_axes("logsumexp", self.axes, len(shape)), True)
        return reshape(out_grad, kept) * exp(a - reshape(node, kept))
        ### END YOUR SOLUTION


@op(LogSumExp)
def logsumexp(a: Tensor, axes: Axes = None, *, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(a))) over ``axes`` (None: all) without overflow."""
    return LogSumExp(axes, keepdims)(a)


class CrossEntropy(TensorOp):
    """Cross entropy -sum_c q_c logsoftmax(logits)_c of each row (N, C), then a reduction.

    labels: int64 array (N,) in [0, C), already checked; q = (1-smoothing) * one_hot + smoothing/C.
    """

    def __init__(self, labels: Array, smoothing: float = 0.0, reduction: str = "none") -> None:
        self.labels, self.smoothing, self.reduction = labels, smoothing, reduction

    def compute(self, logits: Array) -> Array:
        losses = accelerated.cross_entropy(_as_floats(logits), self.labels, self.smoothing)
        if self.reduction == "none":
            return losses
        total = xp.sum(losses)
        return total / losses.shape[0] if self.reduction == "mean" else total

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        (rows,) = self.labels.shape
        if self.reduction == "mean":
            out_grad = out_grad / rows
        if self.reduction != "none":
            out_grad = broadcast_to(out_grad, (rows,))
        return CrossEntropyGrad(self.labels, self.smoothing)(out_grad, node.inputs[0])


class CrossEntropyGrad(TensorOp):
    """Gradient of the unreduced cross entropy for the logits, as one kernel."""

    def __init__(self, labels: Array, smoothing: float) -> None:
        self.labels, self.smoothing = labels, smoothing

    def compute(self, grad: Array, logits: Array) -> Array:
        logits = _as_floats(logits)
        return accelerated.cross_entropy_grad(grad, logits, self.labels, self.smoothing)

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, Tensor]:
        grad, logits = node.inputs
        ones = Tensor.make_const(xp.ones_like(grad.realize_cached_data()))
        slope = CrossEntropyGrad(self.labels, self.smoothing)(ones, logits)
        p = softmax(logits, axis=1)
        tangent = p * (out_grad - summation(p * out_grad, axes=1, keepdims=True))
        return (
            summation(out_grad * slope, axes=1),
            reshape(grad, (-1, 1)) * tangent,
        )


@op(CrossEntropy, CrossEntropyGrad)
def cross_entropy(
    logits: Tensor, ids: Any, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return the softmax cross entropy of logits (N, C) and integer labels (N,) in [0, C).

    ``ids`` are the labels: a Tensor, NDArray, NumPy array or list. ``reduction``: "mean", "sum" or
    "none" (result (N,)). ``label_smoothing`` in [0, 1] as in Szegedy et al. 2016. ShapeError if
    shapes or labels do not fit, DTypeError if labels are not integers, ValueError for invalid
    options.
    """
    shape = shape_of("cross_entropy", logits)
    logits = logits if isinstance(logits, Tensor) else as_operand(logits, None)
    if len(shape) != 2:
        raise ShapeError(f"cross_entropy: logits must be (N, C), got shape {shape}; reshape them")
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"cross_entropy: reduction must be one of {REDUCTIONS}, got {reduction!r}; choose one"
        )
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(
            f"cross_entropy: label_smoothing must be in [0, 1], got {label_smoothing}; 0 turns it "
            "off"
        )
    if reduction == "mean" and shape[0] == 0:
        raise ShapeError(
            f"cross_entropy: an empty batch has no mean, got logits of shape {shape}; skip it"
        )
    data = logits.realize_cached_data()
    labels = _labels(ids, shape, device_of(data))
    return CrossEntropy(labels, float(label_smoothing), reduction)(logits)


@host_step
def _labels(ids: Any, shape: tuple[int, int], device: Any) -> Array:
    """Return the labels, checked, as a new int64 array on ``device``."""
    return from_numpy(_checked_labels(ids, shape), device, np.int64)


def _checked_labels(ids: Any, shape: tuple[int, int]) -> Array:
    """Return the labels on the host after checking shape, dtype and range for logits (N, C)."""
    data = ids.realize_cached_data() if isinstance(ids, Tensor) else ids
    host = data.__array__() if is_array(data) else np.asarray(data)
    rows, classes = shape
    if host.shape != (rows,):
        raise ShapeError(
            f"cross_entropy: labels must be one class number per row, shape ({rows},), got shape "
            f"{host.shape}; reshape them, or take the argmax of one-hot labels"
        )
    if host.dtype.kind not in "iu" and host.size:
        raise DTypeError(
            f"cross_entropy: labels must be integers, got {host.dtype}; cast whole numbers to int64"
        )
    if host.size and (host.min() < 0 or host.max() >= classes):
        wrong = host[(host < 0) | (host >= classes)][0]
        raise ShapeError(
            f"cross_entropy: labels must be in [0, {classes}), got {wrong}; correct the labels or "
            "give the model more outputs"
        )
    return host


def _as_floats(a: Array) -> Array:
    """Return integers as floats, since exp and log need floats."""
    return a if is_floating(a.dtype) else a * 1.0
