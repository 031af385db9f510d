# Trail 23 of 30: Gradients: forward and backward pass, recorded once and replayed.
# Next: python/needle/data/sampling/epoch_order.py
"""The gradients of a batch, computed whole or in parts that take less memory. Called by run.py."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from needle import config, nn
from needle.array_namespace import BACKEND

from .evaluation import logits_of, read


class Gradients:
    """A callable that sets ``.grad`` of every parameter of ``model`` from a batch's mean loss.

    parts: the number of nearly equal pieces that a batch is split into. Their gradients are
    added: the same sum in another order, except that batch norm sees one piece at a time. Forward
    and backward pass are recorded once for each shape of a piece (``needle.capture``).
    """

    def __init__(self, model: nn.Module, loss_function: nn.Module, parts: int = 1) -> None:
        self.model, self.loss_function, self.parts = model, loss_function, parts
        self.parameters = model.parameters()
        passes = self._forward_and_backward
        # In bf16 the last bits are noise, and a step's time depends on its passes over memory.
        exact = config.matmul_precision.get() != "bf16"
        self.passes = (
            needle.capture(passes, state=[model, loss_function], exact=exact)
            if BACKEND == "nd"
            else passes
        )

    def __call__(self, images: needle.Tensor, labels: needle.Tensor) -> tuple[float, NDArray[Any]]:
        """Return the loss and the logits (N, classes) for images (N, ...) and labels (N,)."""
        return read(self.start(images, labels))

    def start(self, images: Any, labels: Any) -> list[tuple[Any, Any, float]]:
        """Return loss, logits and share of each part, without waiting until they are computed."""
        for p in self.parameters:
            p.grad = None
        count, found = images.shape[0], []
        bounds = np.linspace(0, count, min(self.parts, count) + 1).astype(int).tolist()
        for a, b in pairwise(bounds):
            piece = (images, labels) if self.parts == 1 else (images[a:b], labels[a:b])
            found.append((*self.passes(*piece, (b - a) / count), (b - a) / count))
        return found

    def _forward_and_backward(
        self, images: needle.Tensor, labels: needle.Tensor, share: float
    ) -> tuple[needle.Tensor, needle.Tensor]:
        """Return the loss and the logits of a piece; its gradients are weighted by its share."""
        logits = logits_of(self.model, images)
        loss = self.loss_function(logits, labels)
        (loss if share == 1 else loss * share).backward(accumulate=self.parts > 1)
        return loss.detach(), logits.detach()
