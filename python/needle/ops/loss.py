# Trail 18 of 30: CrossEntropy: softmax and cross entropy, safe against overflow.
# Next: python/needle/nn/module.py
"""Softmax, logsoftmax, logsumexp and cross entropy; all subtract the maximum before exp.

Loss functions are in ``class_losses`` and ``elementwise_losses``, losses as modules in ``nn.loss``.
"""

from __future__ import annotations

from .. import accelerated
from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp
from ..shapes import normalize_axes, normalize_axis, reduced_shape
from .elementwise import as_floating, exp
from .reduction import Reduction, filled_axes, summation
from .registry import Array, Axes, op
from .shape import reshape


class Softmax(TensorOp):
    """Normalised exponentials along an axis: ``softmax``."""

    reads = ("result",)

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def compute(self, a: Array) -> Array:
        a = as_floating(a)
        return accelerated.softmax(a, normalize_axis("softmax", self.axis, a.ndim))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [softmax-grad]
        weighted = out_grad * node
        return weighted - node * summation(weighted, axes=self.axis, keepdims=True)
        ### END YOUR SOLUTION


@op(Softmax)
def softmax(a: Tensor, axis: int = -1) -> Tensor:
    """Return exp(a) / sum(exp(a)) along ``axis``, in the shape of ``a``."""
    if getattr(a, "shape", None) == ():
        return reshape(softmax(reshape(a, (1,)), axis), ())
    return Softmax(axis)(a)


class LogSoftmax(TensorOp):
    """Logarithm of softmax along an axis: ``logsoftmax``."""

    reads = ("result",)

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def compute(self, a: Array) -> Array:
        a = as_floating(a)
        return accelerated.log_softmax(a, normalize_axis("logsoftmax", self.axis, a.ndim))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [softmax-grad]
        return out_grad - exp(node) * summation(out_grad, axes=self.axis, keepdims=True)
        ### END YOUR SOLUTION


@op(LogSoftmax)
def logsoftmax(a: Tensor, *, axis: int = -1) -> Tensor:
    """Return a - logsumexp(a) along ``axis``, the last by default (axis 1 of (N, C))."""
    if getattr(a, "shape", None) == ():
        return reshape(logsoftmax(reshape(a, (1,)), axis=axis), ())
    return LogSoftmax(axis)(a)


class LogSumExp(Reduction):
    """Logarithm of the sum of exponentials over axes: ``logsumexp``."""

    reads = (0, "result")

    def compute(self, a: Array) -> Array:
        a = as_floating(a)
        axes = filled_axes("logsumexp", a.shape, self.axes)
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

    reads = (0,)

    def __init__(self, labels: Array, smoothing: float = 0.0, reduction: str = "none") -> None:
        self.labels, self.smoothing, self.reduction = labels, smoothing, reduction

    def compute(self, logits: Array) -> Array:
        losses = accelerated.cross_entropy(as_floating(logits), self.labels, self.smoothing)
        if self.reduction == "none":
            return losses
        total = xp.sum(losses)
        return total / losses.shape[0] if self.reduction == "mean" else total

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        backward = CrossEntropyGrad(self.labels, self.smoothing, self.reduction)
        return backward(out_grad, node.inputs[0])


class CrossEntropyGrad(TensorOp):
    """Gradient of the cross entropy for the logits, as one kernel.

    The gradient passed in has shape (N,), or one element if the losses are reduced.
    """

    def __init__(self, labels: Array, smoothing: float, reduction: str = "none") -> None:
        self.labels, self.smoothing, self.reduction = labels, smoothing, reduction

    def compute(self, grad: Array, logits: Array) -> Array:
        (rows,) = self.labels.shape
        if self.reduction == "mean":
            grad = grad / rows
        if self.reduction != "none":
            grad = xp.broadcast_to(grad, (rows,))
        logits = as_floating(logits)
        return accelerated.cross_entropy_grad(grad, logits, self.labels, self.smoothing)

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, Tensor]:
        grad, logits = node.inputs
        (rows,) = self.labels.shape
        one = xp.ones_like(grad.realize_cached_data())
        slope = self(Tensor.make_const(one), logits)
        p = softmax(logits, axis=1)
        tangent = p * (out_grad - summation(p * out_grad, axes=1, keepdims=True))
        if self.reduction == "none":
            return summation(out_grad * slope, axes=1), reshape(grad, (-1, 1)) * tangent
        each = grad / rows if self.reduction == "mean" else grad
        return reshape(summation(out_grad * slope), grad.shape), reshape(each, (1, 1)) * tangent
