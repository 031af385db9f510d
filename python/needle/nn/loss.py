"""Losses as modules; the formulas are in files of ``ops``, such as ``ops.class_losses``."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..autograd import Tensor
from ..errors import check_choice
from ..ops.class_losses import REDUCTIONS
from .module import Module
from .whole_numbers import whole_numbers


class SoftmaxLoss(Module):
    """Mean softmax cross entropy of logits (N, C) and labels y (N,), as in the course.

    ``y`` is a Tensor, array or list of class numbers; floats are accepted if they are whole,
    because the course's data loaders convert everything to float32. ShapeError or DTypeError if the
    labels are not one class number per row.
    """

    def forward(self, logits: Tensor, y: Any) -> Tensor:
        return ops.cross_entropy(logits, whole_numbers("SoftmaxLoss: labels", y))


class _Loss(Module):
    """Base class of losses with a ``reduction``: "mean", "sum" or "none"; ValueError for others."""

    reductions: tuple[str, ...] = REDUCTIONS
    shown_in_repr: tuple[str, ...] = ("reduction",)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        check_choice(type(self).__name__, "reduction", reduction, self.reductions)
        self.reduction = reduction


class _ClassLoss(_Loss):
    """Base class of losses with class weights (a buffer) and an ignored label."""

    shown_in_repr = ("ignore_index", "reduction")

    weight: Tensor | None

    def __init__(self, weight: Any, ignore_index: int, reduction: str) -> None:
        super().__init__(reduction)
        self.ignore_index = ignore_index
        _keep(self, "weight", weight)


def _keep(module: Module, name: str, values: Any) -> None:
    """Register ``values``, unless None, as a buffer of the module, so that ``to`` moves it."""
    if values is None:
        setattr(module, name, None)
        return
    given = values if isinstance(values, Tensor) else Tensor(values, dtype="float32")
    module.register_buffer(name, given.detach())


class CrossEntropyLoss(_ClassLoss):
    """Softmax cross entropy with labels or probabilities: ``ops.cross_entropy``.

    ``weight``: the factor of each class (C,), a buffer. PyTorch's order of arguments differs, so
    pass them by keyword.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        *,
        weight: Any = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.label_smoothing = label_smoothing

    def extra_repr(self) -> str:
        extra = "" if self.ignore_index == -100 else f", ignore_index={self.ignore_index}"
        return f"label_smoothing={self.label_smoothing}, reduction={self.reduction!r}{extra}"

    def forward(self, logits: Tensor, ids: Any) -> Tensor:
        return ops.cross_entropy(
            logits,
            ids,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
            weight=self.weight,
            ignore_index=self.ignore_index,
        )


class NLLLoss(_ClassLoss):
    """Negative log likelihood of labels, given log-probabilities: ``ops.nll_loss``."""

    def __init__(
        self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, ignore_index, reduction)

    def forward(self, logs: Tensor, ids: Any) -> Tensor:
        return ops.nll_loss(logs, ids, self.weight, self.ignore_index, self.reduction)


class CTCLoss(_Loss):
    """CTC loss of label sequences, given log-probabilities (T, N, C): ``ops.ctc_loss``."""

    shown_in_repr = ("blank", "reduction", "zero_infinity")

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self, logs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return ops.ctc_loss(
            logs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )


class MSELoss(_Loss):
    """Squared-error loss: ``ops.mse_loss``."""

    def forward(self, a: Tensor, target: Any) -> Tensor:
        return ops.mse_loss(a, target, self.reduction)


class L1Loss(_Loss):
    """Absolute-error loss: ``ops.l1_loss``."""

    def forward(self, a: Tensor, target: Any) -> Tensor:
        return ops.l1_loss(a, target, self.reduction)


class SmoothL1Loss(_Loss):
    """Smooth L1 loss: quadratic for small differences, else linear (``ops.smooth_l1_loss``)."""

    shown_in_repr = ("reduction", "beta")

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, a: Tensor, target: Any) -> Tensor:
        return ops.smooth_l1_loss(a, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """Huber loss, quadratic for small differences and linear for others: ``ops.huber_loss``."""

    shown_in_repr = ("reduction", "delta")

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, a: Tensor, target: Any) -> Tensor:
        return ops.huber_loss(a, target, self.reduction, self.delta)


class BCELoss(_Loss):
    """Cross entropy of probabilities and targets in [0, 1]: ``ops.binary_cross_entropy``.

    ``weight``: factors that broadcast with the input, a buffer.
    """

    weight: Tensor | None

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        _keep(self, "weight", weight)

    def forward(self, a: Tensor, target: Any) -> Tensor:
        return ops.binary_cross_entropy(a, target, self.weight, self.reduction)


class BCEWithLogitsLoss(BCELoss):
    """Cross entropy of sigmoid(a) and targets: ``ops.binary_cross_entropy_with_logits``.

    ``weight`` (factors of all terms) and ``pos_weight`` (factors of the terms of positive targets)
    are buffers.
    """

    pos_weight: Tensor | None

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(weight, reduction)
        _keep(self, "pos_weight", pos_weight)

    def forward(self, a: Tensor, target: Any) -> Tensor:
        return ops.binary_cross_entropy_with_logits(
            a, target, self.weight, self.reduction, self.pos_weight
        )


class CosineEmbeddingLoss(_Loss):
    """Loss on the cosine between similar or dissimilar rows: ``ops.cosine_embedding_loss``."""

    shown_in_repr = ("margin", "reduction")

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def forward(self, a: Tensor, b: Any, target: Any) -> Tensor:
        return ops.cosine_embedding_loss(a, b, target, self.margin, self.reduction)


class TripletMarginLoss(_Loss):
    """Loss on an anchor's distances to a positive and a negative: ``ops.triplet_margin_loss``."""

    shown_in_repr = ("margin", "p", "swap", "reduction")

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Any, negative: Any) -> Tensor:
        return ops.triplet_margin_loss(
            anchor,
            positive,
            negative,
            self.margin,
            self.p,
            self.eps,
            self.swap,
            self.reduction,
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of log-probabilities from a target: ``ops.kl_div``."""

    reductions = ("mean", "batchmean", "sum", "none")
    shown_in_repr = ("reduction", "log_target")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, a: Tensor, target: Any) -> Tensor:
        return ops.kl_div(a, target, self.reduction, self.log_target)
