"""What a model makes of a whole split: loss, exact accuracy, who is taken for whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from needle import nn

from .records import Clock


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

    @property
    def top5(self) -> float:
        """The share whose true class is among the five with the greatest logits."""
        return float((ranks(self.logits, self.labels) < 5).mean())

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


def ranks(logits: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """How many classes come before the true one of each row: greater logits, of equals the first.

    logits (N, classes), labels (N,) -> (N,); 0 is a right answer.
    """
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    earlier = np.arange(logits.shape[1]) < labels[:, None]
    return np.asarray(((logits > own) | ((logits == own) & earlier)).sum(axis=1))


def evaluate(
    model: nn.Module,
    loader: Iterable[Any],
    between_batches: Callable[[], None] = lambda: None,
    flip: bool = False,
    clock: Clock | None = None,
) -> Evaluation:
    """Runs the model in evaluation mode over ``loader``; training mode is put back.

    ``between_batches`` may raise to stop early. ``flip``: each image is also seen mirrored, and the
    logits of both are averaged. ``clock`` is told what the batches took.
    """
    loss_function = nn.CrossEntropyLoss(reduction="sum")
    losses, logits, labels = [], [], []
    clock = clock or Clock()
    was_training = model.training
    model.eval()
    try:
        with needle.no_grad():
            asked = time.perf_counter()
            for images, ids in loader:
                got = time.perf_counter()
                between_batches()
                out = model(images)
                if flip:
                    out = (out + model(images.flip(3))) / 2.0
                losses.append(loss_function(out, ids).numpy().item())
                logits.append(out.numpy())
                labels.append(ids.numpy())
                clock.add(got - asked, time.perf_counter() - asked)
                asked = time.perf_counter()
    finally:
        model.train(was_training)
    truth = np.concatenate(labels)
    return Evaluation(sum(losses) / len(truth), np.concatenate(logits), truth)
