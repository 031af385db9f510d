"""The gradients of one batch, whole or in parts that take less memory. Called by run.py."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from needle import nn


def gradients(
    model: nn.Module,
    loss_function: nn.Module,
    images: needle.Tensor,
    labels: needle.Tensor,
    parts: int = 1,
) -> tuple[float, NDArray[Any]]:
    """Sets ``.grad`` of every parameter to that of the batch's mean loss.

    images (N, ...), labels (N,). Returns the loss and the logits (N, classes). With ``parts`` the
    batch is cut into so many pieces of nearly the same size and their gradients are added: the same
    sums in another order, except that batch norm sees one piece at a time.
    """
    count, parameters = images.shape[0], model.parameters()
    for p in parameters:
        p.grad = None
    if parts == 1:
        loss, logits = _forward(model, loss_function, images, labels)
        loss.backward()
        return loss.numpy().item(), logits.numpy()
    total, rows, sums = 0.0, [], [None] * len(parameters)
    bounds = np.linspace(0, count, min(parts, count) + 1).astype(int)
    for start, end in pairwise(int(bound) for bound in bounds):
        loss, logits = _forward(model, loss_function, images[start:end], labels[start:end])
        (loss * ((end - start) / count)).backward()
        total += loss.numpy().item() * (end - start) / count
        rows.append(logits.numpy())
        sums = [_added(before, p.grad) for before, p in zip(sums, parameters)]
    for p, grad in zip(parameters, sums):
        p.grad = grad
    return total, np.concatenate(rows)


def _forward(
    model: nn.Module, loss_function: nn.Module, images: needle.Tensor, labels: needle.Tensor
) -> tuple[needle.Tensor, needle.Tensor]:
    logits = model(images)
    return loss_function(logits, labels), logits


def _added(before: Any, grad: Any) -> Any:
    """The sum of two gradients as a constant, either of which may be missing."""
    if grad is None:
        return before
    array = grad.realize_cached_data()
    return needle.Tensor.make_const(
        array if before is None else before.realize_cached_data() + array
    )
