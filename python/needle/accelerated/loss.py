"""Cross entropy of logits with integer labels, and its gradient: definitions and kernels.

Called by ``ops.loss``, which checks shapes and labels and takes the mean over the batch. Kernels
index memory by the labels, so the kernels in C++ and the definitions check the range again.
"""

from __future__ import annotations

import numpy as np

from ..backends.base import Backend
from ..errors import ShapeError
from .indexing import one_hot
from .registry import Array, accelerated, as_int64, empty
from .softmax import log_softmax, softmax


def _targets(logits: Array, labels: Array, smoothing: float) -> Array:
    """Return q (N, C) = (1 - smoothing) * one_hot(label) + smoothing / C."""
    classes = logits.shape[1]
    hot = one_hot(labels, classes, logits.dtype)
    return hot * (1.0 - smoothing) + smoothing / classes


def _check_labels(op: str, logits: Array, labels: Array) -> None:
    host, classes = np.asarray(labels), logits.shape[1]
    if host.size and not 0 <= host.min() <= host.max() < classes:
        raise ShapeError(
            f"{op}: labels must be in [0, {classes}), got {host.min()} to {host.max()}; "
            "check the labels or the number of classes"
        )


@accelerated(wide_results=(0,))
def cross_entropy(logits: Array, labels: Array, smoothing: float) -> Array:
    """Return -sum_c q_c log softmax(logits)_c, (N,), for logits (N, C), labels (N,) in [0, C).

    q = (1 - smoothing) * one_hot(label) + smoothing / C. Terms with q_c = 0 are 0, even where the
    logit is -inf. Raise ShapeError for a label outside the range.
    """
    ### BEGIN YOUR SOLUTION [cross-entropy]
    _check_labels("cross_entropy", logits, labels)
    xp = logits.__array_namespace__()
    q = _targets(logits, labels, smoothing)
    logs = log_softmax.definition(logits, 1)
    return -xp.sum(q * xp.where(q == 0, xp.zeros_like(logs), logs), axis=1)
    ### END YOUR SOLUTION


@cross_entropy.kernel
def _(backend: Backend, logits: Array, labels: Array, smoothing: float) -> Array:
    out = empty(logits, logits.shape[:1])
    backend.cross_entropy(logits.view, as_int64(labels).view, out.view, float(smoothing))
    return out


@accelerated()
def cross_entropy_grad(grad: Array, logits: Array, labels: Array, smoothing: float) -> Array:
    """Return the gradient of sum(grad * cross_entropy) with respect to the logits; grad is (N,)."""
    ### BEGIN YOUR SOLUTION [cross-entropy]
    _check_labels("cross_entropy_grad", logits, labels)
    xp = logits.__array_namespace__()
    slope = softmax.definition(logits, 1) - _targets(logits, labels, smoothing)
    return xp.expand_dims(grad, axis=1) * slope
    ### END YOUR SOLUTION


@cross_entropy_grad.kernel
def _(backend: Backend, grad: Array, logits: Array, labels: Array, smoothing: float) -> Array:
    out, rows = empty(logits, logits.shape), as_int64(labels)
    backend.cross_entropy_grad(grad.view, logits.view, rows.view, out.view, float(smoothing))
    return out
