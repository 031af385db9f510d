"""Losses as modules; the formulas are in ``ops.loss``."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..autograd import Tensor
from .ids import whole_ids
from .module import Module


class SoftmaxLoss(Module):
    """Mean softmax loss of logits (N, C) and class ids y (N,), the course's form.

    ``y`` is a Tensor, array or list; ids may come as whole floats (course data loaders make
    float32 of everything). ShapeError or DTypeError where they are not one class id a row.
    """

    def forward(self, logits: Tensor, y: Any) -> Tensor:
        return ops.cross_entropy(logits, whole_ids("SoftmaxLoss: class ids", y))


class CrossEntropyLoss(Module):
    """``ops.cross_entropy``: integer class ids, label smoothing, reduction mean, sum or none."""

    def __init__(self, label_smoothing: float = 0.0, reduction: str = "mean") -> None:
        super().__init__()
        self.label_smoothing, self.reduction = label_smoothing, reduction

    def extra_repr(self) -> str:
        return f"label_smoothing={self.label_smoothing}, reduction={self.reduction!r}"

    def forward(self, logits: Tensor, ids: Any) -> Tensor:
        return ops.cross_entropy(
            logits, ids, label_smoothing=self.label_smoothing, reduction=self.reduction
        )
