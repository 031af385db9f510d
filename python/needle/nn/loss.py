"""Losses as modules; the formulas are in ``ops.loss``."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..autograd import Tensor
from .module import Module
from .whole_numbers import whole_numbers


class SoftmaxLoss(Module):
    """Mean softmax cross entropy of logits (N, C) and labels y (N,), as in the course.

    ``y`` is a Tensor, array or list of class numbers; floats are accepted if they are whole (data
    loaders of the course convert everything to float32). ShapeError or DTypeError if the labels are
    not one class number per row.
    """

    def forward(self, logits: Tensor, y: Any) -> Tensor:
        return ops.cross_entropy(logits, whole_numbers("SoftmaxLoss: labels", y))


class CrossEntropyLoss(Module):
    """Softmax cross entropy of integer labels: ``ops.cross_entropy`` with fixed options."""

    def __init__(self, label_smoothing: float = 0.0, reduction: str = "mean") -> None:
        super().__init__()
        self.label_smoothing, self.reduction = label_smoothing, reduction

    def extra_repr(self) -> str:
        return f"label_smoothing={self.label_smoothing}, reduction={self.reduction!r}"

    def forward(self, logits: Tensor, ids: Any) -> Tensor:
        return ops.cross_entropy(
            logits, ids, label_smoothing=self.label_smoothing, reduction=self.reduction
        )
