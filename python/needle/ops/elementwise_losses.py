"""Losses over pairs of elements (mse, l1, huber, cross entropy, kl_div) or rows (triplets).

The operands have the same shape, and all get a gradient.
"""

from __future__ import annotations

from typing import Any

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp, as_operand
from ..errors import ShapeError, check_choice
from ..host_steps import host_step
from ..shapes import shape_of
from .arithmetic import EWiseMul
from .class_losses import REDUCTIONS
from .elementwise import Abs, Softplus, abs, exp, log, relu, softplus
from .reduction import cosine_similarity, mean, norm, summation
from .registry import Array, Parts, op
from .selection import clip, equal, minimum, where


def _operands(name: str, a: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Return both as Tensors; ShapeError unless their shapes are equal."""
    a = as_operand(a, target)
    target = as_operand(target, a)
    if a.shape != target.shape:
        raise ShapeError(
            f"{name}: both operands must have the same shape, got {a.shape} and target "
            f"{target.shape}; reshape one, or broadcast it with broadcast_to"
        )
    return a, target


def _reduced(name: str, losses: Tensor, reduction: str, weight: Any = None) -> Tensor:
    check_choice(name, "reduction", reduction, REDUCTIONS)
    if weight is not None:
        losses = losses * as_operand(weight, losses)
    if reduction == "none":
        return losses
    return mean(losses) if reduction == "mean" else summation(losses)


@op(EWiseMul)
def mse_loss(a: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    """Return the squared differences (a - target)**2, or their mean or sum.

    ``reduction``: "mean", "sum" or "none". ShapeError if the shapes differ.
    """
    a, target = _operands("mse_loss", a, target)
    difference = a - target
    return _reduced("mse_loss", difference * difference, reduction)


@op(Abs)
def l1_loss(a: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    """Return the absolute differences abs(a - target), or their mean or sum.

    ``reduction``: "mean", "sum" or "none". ShapeError if the shapes differ.
    """
    a, target = _operands("l1_loss", a, target)
    return _reduced("l1_loss", abs(a - target), reduction)


@op(Abs)
def smooth_l1_loss(a: Tensor, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Return d**2 / (2 beta) for differences d below ``beta`` and abs(d) - beta/2 for others.

    As in Girshick 2015; ``beta=0`` is l1_loss. ``reduction``: "mean", "sum" or "none". ShapeError
    if the shapes differ, ValueError for a negative beta.
    """
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta must be at least 0, got {beta}")
    if beta == 0:
        return l1_loss(a, target, reduction)
    a, target = _operands("smooth_l1_loss", a, target)
    d = a - target
    near = clip(d, -beta, beta)  # so that no branch multiplies a large difference by 0
    losses = near * near * (0.5 / beta) + (abs(d) - abs(near))
    return _reduced("smooth_l1_loss", losses, reduction)


@op(Abs)
def huber_loss(a: Tensor, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Return d**2 / 2 for differences d up to ``delta``, delta (abs(d) - delta/2) for others.

    As in Huber 1964. ``reduction``: "mean", "sum" or "none". ShapeError if the shapes differ,
    ValueError unless delta is positive.
    """
    if delta <= 0:
        raise ValueError(f"huber_loss: delta must be positive, got {delta}")
    a, target = _operands("huber_loss", a, target)
    d = a - target
    near = clip(d, -delta, delta)
    losses = near * near * 0.5 + (abs(d) - abs(near)) * delta
    return _reduced("huber_loss", losses, reduction)


class BinaryCrossEntropy(TensorOp):
    """Cross entropy of probabilities and targets; logarithms are clamped at -100, as in PyTorch."""

    reads = {0: (0, 1), 1: (0,)}

    def compute(self, a: Array, target: Array) -> Array:
        yes, no = xp.maximum(xp.log(a), -100.0), xp.maximum(xp.log1p(-a), -100.0)
        return -(target * yes + (1 - target) * no)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        a, target = node.inputs
        return (
            out_grad * (a - target) / clip(a * (1 - a), min=1e-12) if a.requires_grad else None,
            out_grad * (clip(log(1 - a), min=-100.0) - clip(log(a), min=-100.0))
            if target.requires_grad
            else None,
        )


@op(BinaryCrossEntropy)
def binary_cross_entropy(
    a: Tensor, target: Any, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """Return -(target log a + (1 - target) log(1 - a)) for probabilities a.

    ``weight``: factors that broadcast with a. ``reduction``: "mean", "sum" or "none". Logarithms
    are clamped at -100; ``binary_cross_entropy_with_logits`` is exact. ShapeError if the shapes
    differ, ValueError if a or target is outside [0, 1].
    """
    a, target = _operands("binary_cross_entropy", a, target)
    _check_probabilities("a", a)
    _check_probabilities("target", target)
    losses = BinaryCrossEntropy()(a, target)
    return _reduced("binary_cross_entropy", losses, reduction, weight)


@host_step
def _check_probabilities(what: str, a: Tensor) -> None:
    data = a.realize_cached_data()
    if not data.size:
        return
    low, high = float(xp.min(data)), float(xp.max(data))
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"binary_cross_entropy: {what} must be in [0, 1], got {low} to {high}; apply sigmoid, "
            "or use binary_cross_entropy_with_logits"
        )


@op(Softplus)
def binary_cross_entropy_with_logits(
    a: Tensor, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """Return binary_cross_entropy of sigmoid(a), without overflow or loss of small values.

    ``pos_weight``: factors, which broadcast with a, of the terms that contain ``target``.
    ``weight`` and ``reduction`` are as in ``binary_cross_entropy``. ShapeError if the shapes
    differ.
    """
    name = "binary_cross_entropy_with_logits"
    a, target = _operands(name, a, target)
    yes = target * softplus(-a)
    if pos_weight is not None:
        yes = yes * as_operand(pos_weight, a)
    return _reduced(name, yes + (1 - target) * softplus(a), reduction, weight)


@op(EWiseMul)
def kl_div(a: Tensor, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return target (log target - a), the divergence of log-probabilities a from ``target``.

    Terms with target 0 are 0. ``log_target``: the target is also given as logarithms.
    ``reduction``: "mean" (over all elements), "batchmean" (the sum divided by the first size),
    "sum" or "none". ShapeError if the shapes differ.
    """
    check_choice("kl_div", "reduction", reduction, ("mean", "batchmean", "sum", "none"))
    a, target = _operands("kl_div", a, target)
    if log_target:
        losses = exp(target) * (target - a)
    else:
        zero = Tensor.make_const(target.realize_cached_data() == 0)
        losses = target * log(where(zero, 1.0, target)) - target * a
    if reduction != "batchmean":
        return _reduced("kl_div", losses, reduction)
    return summation(losses) / (shape_of("kl_div", a) or (1,))[0]


@op(EWiseMul)
def cosine_embedding_loss(
    a: Tensor, b: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return 1 - cos for rows with target 1, and cos - margin (at least 0) for those with -1.

    cos is the ``cosine_similarity`` of the rows of a and b, (N, D) or (D,). target: (N,) or ().
    ``reduction``: "mean", "sum" or "none". ShapeError if the shapes do not match, ValueError for
    another target.
    """
    a, b = _operands("cosine_embedding_loss", a, b)
    target = as_operand(target, a).detach()
    if len(a.shape) not in (1, 2) or target.shape != a.shape[:-1]:
        raise ShapeError(
            "cosine_embedding_loss: inputs must be (N, D) with a target (N,), or (D,) with one of "
            f"shape (), got {a.shape} and target {target.shape}; reshape them"
        )
    _check_signs(target)
    cosine = cosine_similarity(a, b, -1)
    losses = where(equal(target, 1), 1 - cosine, relu(cosine - margin))
    return _reduced("cosine_embedding_loss", losses, reduction)


@host_step
def _check_signs(target: Tensor) -> None:
    host = target.numpy()
    wrong = host[(host != 1) & (host != -1)]
    if wrong.size:
        raise ValueError(
            f"cosine_embedding_loss: the target must be 1 or -1, got {wrong[0]}; for labels 0 and "
            "1 write 2 * y - 1"
        )


@op(EWiseMul)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return d(anchor, positive) - d(anchor, negative) + margin, at least 0, for each row.

    d(x, y) is the p-norm of x - y + eps along the last axis. ``swap``: the negative's distance is
    the smaller of those to the anchor and to the positive (Balntas et al. 2016). ``reduction``:
    "mean", "sum" or "none". ShapeError unless all shapes are equal, ValueError for a margin that is
    not positive.
    """
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss: margin must be positive, got {margin}")
    anchor, positive = _operands("triplet_margin_loss", anchor, positive)
    anchor, negative = _operands("triplet_margin_loss", anchor, negative)
    near, far = norm(anchor - positive + eps, p, -1), norm(anchor - negative + eps, p, -1)
    if swap:
        far = minimum(far, norm(positive - negative + eps, p, -1))
    return _reduced("triplet_margin_loss", relu(near - far + margin), reduction)
