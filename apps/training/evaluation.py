"""The evaluation of a model on a split: loss, accuracy and confusion matrix. Called by run.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from needle import config, nn

from .records import Clock


@dataclass(frozen=True)
class Evaluation:
    """The mean loss, the logits (N, classes) and the labels (N,) of a split, in its order."""

    loss: float
    logits: NDArray[Any]
    labels: NDArray[np.int64]

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The class with the largest logit; the first one if several are equal."""
        return self.logits.argmax(axis=1)

    @property
    def correct(self) -> int:
        """The number of correctly classified samples."""
        return int((self.predicted == self.labels).sum())

    @property
    def accuracy(self) -> float:
        """The number of correct samples over the number of samples."""
        return self.correct / len(self.labels)

    @property
    def top5(self) -> float:
        """The share of samples whose true class is among the five largest logits."""
        return float((ranks(self.logits, self.labels) < 5).mean())

    def confusion(self) -> NDArray[np.int64]:
        """Return the counts [true class, predicted class], shape (classes, classes)."""
        classes = self.logits.shape[1]
        return needle.confusion_matrix(self.predicted, self.labels, classes).numpy()

    def mistakes(self) -> NDArray[np.int64]:
        """Return the indices of wrongly classified samples, the most confident first."""
        wrong = np.flatnonzero(self.predicted != self.labels)
        chosen = self.logits[wrong] - self.logits[wrong].max(axis=1, keepdims=True)
        confidence = 1.0 / np.exp(chosen).sum(axis=1)
        return wrong[np.argsort(-confidence, kind="stable")]


def ranks(logits: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rank of each sample's true class among its logits; 0 is a correct answer.

    Equal logits are ranked by class. logits: (N, classes). labels: (N,). Returns (N,).
    """
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    earlier = np.arange(logits.shape[1]) < labels[:, None]
    return np.asarray(((logits > own) | ((logits == own) & earlier)).sum(axis=1))


def read(parts: list[tuple[Any, Any, float]]) -> tuple[float, NDArray[Any]]:
    """Return the loss and the logits (N, classes) of a batch, given those of its parts.

    parts: loss and logits on the device, and the part's share of the batch. Reading them waits for
    the device.
    """
    total = 0.0
    for loss, _, share in parts:
        total += loss.numpy().item() * share
    return total, np.concatenate([logits.numpy() for _, logits, _ in parts])


def logits_of(model: nn.Module, images: Any) -> Any:
    """Return the logits of float32 images, in float32.

    With products in bf16 the activations between the layers are stored as bfloat16, too.
    """
    if config.matmul_precision.get() != "bf16":
        return model(images)
    return model(images.astype("bfloat16")).astype("float32")


def evaluate(
    model: nn.Module,
    loader: Iterable[Any],
    between_batches: Callable[[], None] = lambda: None,
    flip: bool = False,
    clock: Clock | None = None,
) -> Evaluation:
    """Return the evaluation of the model over the batches of ``loader``.

    The model runs in evaluation mode; its mode is restored afterwards. between_batches: called
    after each batch; it may raise to stop early. flip: average the logits of each image and its
    mirror image. clock: is given the times of the batches.
    """
    loss_function = nn.CrossEntropyLoss(reduction="sum")
    losses, logits, labels = [], [], []
    clock = clock or Clock()
    was_training = model.training
    model.eval()
    try:
        with needle.no_grad():
            asked = time.perf_counter()
            for images, targets in loader:
                got = time.perf_counter()
                between_batches()
                out = logits_of(model, images)
                if flip:
                    out = (out + logits_of(model, images.flip(3))) / 2.0
                losses.append(loss_function(out, targets).numpy().item())
                logits.append(out.numpy())
                labels.append(targets.numpy())
                clock.add(got - asked, time.perf_counter() - asked)
                asked = time.perf_counter()
    finally:
        model.train(was_training)
    truth = np.concatenate(labels)
    return Evaluation(sum(losses) / len(truth), np.concatenate(logits), truth)
