"""Losses as modules; the formulas are in ``ops.loss``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..autograd import Tensor
from ..errors import DTypeError
from ..host_steps import host_step
from .module import Module


class SoftmaxLoss(Module):
    """Mean softmax loss of logits (N, C) and class ids y (N,), the course's form.

    ``y`` is a Tensor, array or list; ids may come as whole floats (course data loaders make
    float32 of everything). ShapeError or DTypeError where they are not one class id a row.
    """

    def forward(self, logits: Tensor, y: Any) -> Tensor:
        return ops.cross_entropy(logits, _whole(y))


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


@host_step
def _whole(y: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """The ids with whole floats as int64; DTypeError if one is NaN or has a fraction."""
    host = np.asarray(y)
    if host.dtype.kind != "f":
        return host  # cross_entropy says what it takes
    whole = np.isfinite(host) & (host == np.floor(host))
    if not whole.all():
        wrong = host[~whole].reshape(-1)[0]
        raise DTypeError(f"SoftmaxLoss: class ids must be whole numbers, got {wrong}; pass ids")
    return host.astype(np.int64)
