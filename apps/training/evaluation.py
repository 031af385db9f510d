"""What a model makes of a whole split: loss, exact accuracy, who is taken for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from needle import nn


@dataclass(frozen=True)
class Evaluation:
    """The mean loss, the logits (N, classes) and the labels (N,) of a split, in its order."""

    loss: float
    logits: NDArray[Any]
    labels: NDArray[np.int64]

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The class with the greatest logit, the first of equals."""
        return self.logits.argmax(axis=1)

    @property
    def correct(self) -> int:
        """How many samples are classified right."""
        return int((self.predicted == self.labels).sum())

    @property
    def accuracy(self) -> float:
        """correct / number of samples, from whole numbers."""
        return self.correct / len(self.labels)

    def confusion(self) -> NDArray[np.int64]:
        """counts[true, predicted], (classes, classes)."""
        classes = self.logits.shape[1]
        cells = np.bincount(self.labels * classes + self.predicted, minlength=classes**2)
        return cells.reshape(classes, classes)

    def mistakes(self) -> NDArray[np.int64]:
        """Positions of the wrong ones, the most confident first."""
        wrong = np.flatnonzero(self.predicted != self.labels)
        chosen = self.logits[wrong] - self.logits[wrong].max(axis=1, keepdims=True)
        confidence = 1.0 / np.exp(chosen).sum(axis=1)
        return wrong[np.argsort(-confidence, kind="stable")]


def evaluate(
    model: nn.Module, loader: Iterable[Any], between_batches: Callable[[], None] = lambda: None
) -> Evaluation:
    """Runs the model in evaluation mode over ``loader``; training mode is put back.

    ``between_batches`` may raise to stop early.
    """
    loss_function = nn.CrossEntropyLoss(reduction="sum")
    losses, logits, labels = [], [], []
    was_training = model.training
    model.eval()
    try:
        with needle.no_grad():
            for images, ids in loader:
                between_batches()
                out = model(images)
                losses.append(loss_function(out, ids).numpy().item())
                logits.append(out.numpy())
                labels.append(ids.numpy())
    finally:
        model.train(was_training)
    truth = np.concatenate(labels)
    return Evaluation(sum(losses) / len(truth), np.concatenate(logits), truth)
