"""Losses of class scores: cross_entropy and nll_loss, with class weights and ignored labels.

Plain cross entropy of (N, C) is one fused op (``loss.CrossEntropy``). The classes are axis 1, or
the only axis; other layouts become rows (M, C) first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy
from ..autograd import Tensor, as_operand
from ..dtypes import is_floating
from ..errors import ShapeError, check_choice
from ..host_steps import host_step
from ..shapes import Shape, product, shape_of
from .broadcasting import as_number
from .indexing import Embedding, integers, on_device
from .linalg import matmul
from .loss import CrossEntropy, CrossEntropyGrad, logsoftmax
from .reduction import summation
from .registry import Array, Host, op
from .selection import where
from .shape import permute, reshape

REDUCTIONS = ("mean", "sum", "none")
IGNORED = -100
"""The label that is ignored by default, as in PyTorch."""


@op(CrossEntropy, CrossEntropyGrad)
def cross_entropy(
    logits: Tensor,
    ids: Any,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    *,
    weight: Any = None,
    ignore_index: int = IGNORED,
) -> Tensor:
    """Return the softmax cross entropy of logits (N, C), (N, C, d1, ...) or (C,).

    ``ids``: labels in [0, C) of shape (N,), (N, d1, ...) or (), in a Tensor, array or list; or
    probabilities of the shape of the logits, which may require gradients. ``label_smoothing`` in
    [0, 1] is that of Szegedy et al. 2016. ``weight`` (C,): the factor of each class. Labels equal
    to ``ignore_index`` are ignored.

    ``reduction``: "none" (the shape of the labels), "sum", or "mean", which is the sum divided by
    the total weight of the labels that are not ignored, or by the number of rows for probabilities.
    The mean is NaN if all labels are ignored. ShapeError for wrong shapes or labels out of range,
    DTypeError if labels are not integers, ValueError for invalid options.
    """
    shape = shape_of("cross_entropy", logits)
    logits = as_operand(logits)
    _check_options("cross_entropy", shape, reduction)
    label_smoothing = _checked_smoothing(label_smoothing)
    weight = _class_weights("cross_entropy", weight, logits)
    if _is_distribution(ids, shape):
        if ignore_index >= 0:
            raise ValueError(
                f"cross_entropy: ignore_index requires integer labels, got {ignore_index} with "
                "probabilities; set those rows to 0"
            )
        return _of_probabilities(logits, ids, label_smoothing, reduction, weight)
    host = _checked_labels("cross_entropy", ids, shape, ignore_index)
    device = device_of(logits.realize_cached_data())
    plain = len(shape) == 2 and weight is None and ignore_index == IGNORED
    if plain and (not host.size or np.minimum.reduce(host) >= 0):
        # The recorded step has no ignored label, so its replay must refuse one.
        return CrossEntropy(on_device(host, device), label_smoothing, reduction)(logits)
    numbers = _numbers(host, ignore_index, device)
    rows = _rows(logits)
    smoothing = label_smoothing if weight is None else 0.0
    losses = CrossEntropy(numbers, smoothing)(rows)
    if weight is not None and label_smoothing:
        picked = Embedding(numbers)(weight)
        spread = matmul(logsoftmax(rows), weight) * (-label_smoothing / rows.shape[1])
        losses = losses * picked * (1.0 - label_smoothing) + spread
    elif weight is not None:
        losses = losses * Embedding(numbers)(weight)
    return _reduced(losses, host, numbers, ignore_index, weight, reduction)


@op(Embedding)
def nll_loss(
    logs: Tensor,
    ids: Any,
    weight: Any = None,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
) -> Tensor:
    """Return the negative log likelihood -weight[id] * logs[id] of labels, given log-probabilities.

    Shapes, ``weight``, ``ignore_index``, ``reduction`` and errors are as in ``cross_entropy``,
    which is this loss applied to ``logsoftmax``.
    """
    shape = shape_of("nll_loss", logs)
    logs = as_operand(logs)
    _check_options("nll_loss", shape, reduction)
    weight = _class_weights("nll_loss", weight, logs)
    host = _checked_labels("nll_loss", ids, shape, ignore_index)
    device = device_of(logs.realize_cached_data())
    numbers = _numbers(host, ignore_index, device)
    rows = _rows(logs)
    places = _row_major(host, ignore_index, rows.shape[1], device)
    losses = -Embedding(places)(reshape(rows, (-1,)))
    if weight is not None:
        losses = losses * Embedding(numbers)(weight)
    return _reduced(losses, host, numbers, ignore_index, weight, reduction)


def _check_options(name: str, shape: Shape, reduction: str) -> None:
    if not shape:
        raise ShapeError(f"{name}: logits must be (N, C), (N, C, d1, ...) or (C,), got shape ()")
    check_choice(name, "reduction", reduction, REDUCTIONS)
    if reduction == "mean" and product(shape) == 0:
        raise ShapeError(
            f"{name}: an empty batch has no mean, got logits of shape {shape}; leave empty batches "
            "out"
        )


def _checked_smoothing(value: Any) -> float:
    if type(value) is float and 0.0 <= value <= 1.0:
        return value
    # a sequence would be class weights, which PyTorch accepts in this position
    given = np.ndim(value) == 0
    share = float(as_number("cross_entropy", value, "label_smoothing")) if given else np.nan
    if not 0.0 <= share <= 1.0:
        raise ValueError(
            f"cross_entropy: label_smoothing must be in [0, 1], got {value}; 0 turns it off, and "
            "class weights are weight=..."
        )
    return share


def _class_weights(name: str, weight: Any, logits: Tensor) -> Tensor | None:
    """Return the class weights as a constant in the logits' dtype; ShapeError unless (C,)."""
    if weight is None:
        return None
    classes = logits.shape[min(1, len(logits.shape) - 1)]
    given = as_operand(weight, logits)
    if given.shape != (classes,):
        raise ShapeError(
            f"{name}: weight must have one number for each of {classes} classes, shape "
            f"({classes},), got shape {given.shape}"
        )
    data = given.realize_cached_data()
    return Tensor.make_const(data if data.dtype == logits.dtype else xp.astype(data, logits.dtype))


def _is_distribution(ids: Any, shape: Shape) -> bool:
    data = ids if hasattr(ids, "dtype") else np.asarray(ids)
    return tuple(data.shape) == shape and is_floating(data.dtype)


def _of_probabilities(
    logits: Tensor, ids: Any, smoothing: float, reduction: str, weight: Tensor | None
) -> Tensor:
    """Return the cross entropy of logits and target probabilities, one distribution per row."""
    q = as_operand(ids, logits)
    axis = min(1, len(logits.shape) - 1)
    classes = logits.shape[axis]
    if smoothing:
        q = q * (1.0 - smoothing) + smoothing / classes
    logs = logsoftmax(logits, axis=axis)
    if weight is not None:
        logs = logs * reshape(weight, (classes, *[1] * (len(logits.shape) - axis - 1)))
    losses = -summation(logs * q, axis)
    if reduction == "none":
        return losses
    total = summation(losses)
    return total / product(losses.shape) if reduction == "mean" else total


@host_step
def _checked_labels(name: str, ids: Any, shape: Shape, ignore_index: int) -> Host:
    """Return the labels as a host array; raise an error for a wrong shape, dtype or range."""
    host = integers(name, "labels", ids)
    wanted = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    classes = shape[min(1, len(shape) - 1)]
    if host.shape != wanted:
        raise ShapeError(
            f"{name}: labels must be one class number per row, shape {wanted}, got shape "
            f"{host.shape}; reshape them, or take the argmax of one-hot labels"
        )
    # A negative label exceeds the limit when cast to unsigned: one pass checks both bounds.
    if not host.size or np.maximum.reduce(host.view(np.uint64), axis=None) < classes:
        return host
    wrong = host[((host < 0) | (host >= classes)) & (host != ignore_index)]
    if wrong.size:
        raise ShapeError(
            f"{name}: labels must be in [0, {classes}), got {wrong[0]}; correct the labels or "
            "give the model more outputs"
        )
    return host


@host_step
def _numbers(host: Host, ignore_index: int, device: Any) -> Array:
    """Return the flat labels as int64 on ``device``, with ignored ones replaced by class 0."""
    return from_numpy(np.where(host == ignore_index, 0, host).reshape(-1), device, np.int64)


@host_step
def _row_major(host: Host, ignore_index: int, classes: int, device: Any) -> Array:
    """Return the positions of the labels in the flattened rows (M, C)."""
    numbers = np.where(host == ignore_index, 0, host).reshape(-1)
    return from_numpy(np.arange(numbers.size) * classes + numbers, device, np.int64)


@host_step
def _counted(host: Host, ignore_index: int, device: Any) -> Array:
    return from_numpy((host != ignore_index).reshape(-1), device, np.bool_)


def _rows(a: Tensor) -> Tensor:
    """Return the scores (N, C, d1, ...) or (C,) as rows (M, C)."""
    ndim = len(a.shape)
    classes = a.shape[min(1, ndim - 1)]
    if ndim > 2:
        a = permute(a, (0, *range(2, ndim), 1))
    return a if ndim == 2 else reshape(a, (product(a.shape[:-1]), classes))


def _reduced(
    losses: Tensor,
    host: Host,
    numbers: Array,
    ignore_index: int,
    weight: Tensor | None,
    reduction: str,
) -> Tensor:
    """Return the reduction of the losses (M,), without the ignored ones."""
    data = losses.realize_cached_data()
    counted = Tensor.make_const(_counted(host, ignore_index, device_of(data)))
    losses = where(counted, losses, 0.0)
    if reduction == "none":
        return reshape(losses, host.shape)
    total = summation(losses)
    if reduction == "sum":
        return total
    each = 1.0 if weight is None else Embedding(numbers)(weight)
    return total / summation(where(counted, each, Tensor.make_const(xp.zeros_like(data))))
