"""Connectionist temporal classification: the loss of a label sequence without an alignment.

The sum over all alignments is a recursion over the steps in log space. It is composed of other ops,
so it has derivatives of every order. Labels and lengths are read on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_namespace import device_of, from_numpy
from ..autograd import Tensor, as_operand
from ..errors import ShapeError, check_choice
from ..host_steps import host_step
from ..shapes import Shape, shape_of
from .broadcasting import constant_like
from .class_losses import REDUCTIONS
from .indexing import Embedding, GetItem, integers
from .loss import LogSumExp, logsumexp
from .padding import Pad
from .reduction import mean, summation
from .registry import Array, Host, op
from .selection import clip, where
from .shape import reshape, stack

IMPOSSIBLE = -1e30
"""The logarithm of the probability 0: a finite number, which keeps NaN out of the gradients."""


@op(LogSumExp)
def ctc_loss(
    logs: Tensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return -log of the probability of ``targets``, summed over their alignments (Graves 2006).

    logs: log-probabilities (T, N, C), or (T, C) for one sequence. targets: padded labels (N, S) or
    (S,), or the labels of all sequences concatenated. input_lengths, target_lengths: the number of
    steps and of labels of each sequence, (N,) or an int. ``reduction``: "none" gives (N,) or ();
    "sum"; "mean" divides by the target lengths and takes the mean. The loss of a target without an
    alignment is inf, or 0 with ``zero_infinity``; its gradient is 0.

    ShapeError if shapes or lengths do not match, or a label is ``blank`` or out of range.
    """
    check_choice("ctc_loss", "reduction", reduction, REDUCTIONS)
    shape = shape_of("ctc_loss", logs)
    logs = as_operand(logs)
    if len(shape) not in (2, 3) or 0 in shape:
        raise ShapeError(
            f"ctc_loss: logs must be (T, N, C) or (T, C) with no empty axis, got shape {shape}"
        )
    steps, batch, classes = whole = shape if len(shape) == 3 else (shape[0], 1, shape[1])
    states = _states(targets, input_lengths, target_lengths, whole, blank)
    like = device_of(logs.realize_cached_data()), str(logs.dtype)
    places = _places(states, whole, like[0])
    emitted = clip(Embedding(places)(reshape(logs, (steps * batch * classes,))), min=IMPOSSIBLE)
    paths = _paths(emitted, Tensor.make_const(_barred_skips(states, blank, *like)))
    ends = Tensor.make_const(_barred_ends(states, steps, *like))
    losses = -logsumexp(paths + ends, (0, 2))
    losses = where(losses > -IMPOSSIBLE / 10, 0.0 if zero_infinity else np.inf, losses)
    if reduction == "none":
        return losses if len(shape) == 3 else reshape(losses, ())
    if reduction == "sum":
        return summation(losses)
    return mean(losses / Tensor.make_const(_counts(states, *like)))


def _paths(emitted: Tensor, skips: Tensor) -> Tensor:
    """Return the log-probability (T, N, L) of all paths that end in each state, after each step.

    A path stays in its state, moves to the next one, or skips a blank between different labels.
    """
    steps, batch, states = emitted.shape
    start = constant_like(emitted, (batch, 1), 0.0)
    paths = [Pad(((0, 0), (0, states - 1)), IMPOSSIBLE)(start)]
    for step in range(steps):
        before = Pad(((0, 0), (2, 0)), IMPOSSIBLE)(paths[-1])
        stay, advance, skip = (
            GetItem((slice(None), slice(shift, shift + states)))(before) for shift in (2, 1, 0)
        )
        reached = logsumexp(stack([stay, advance, skip + skips]), 0)
        paths.append(reached + GetItem(step)(emitted))
    return stack(paths[1:])


# ---- labels and lengths, on the host -------------------------------------------------------------


@host_step
def _states(
    targets: Any, input_lengths: Any, target_lengths: Any, shape: Shape, blank: int
) -> Host:
    """Return the states' labels (N, 2 S + 1), with blanks between labels, and both lengths."""
    steps, batch, classes = shape
    of_input = _lengths("input_lengths", input_lengths, batch)
    of_target = _lengths("target_lengths", target_lengths, batch)
    if of_input.min() < 1 or of_input.max() > steps:
        raise ShapeError(
            f"ctc_loss: input_lengths must be in [1, {steps}], as logs has {steps} steps, got "
            f"{of_input}"
        )
    labels = _rows(integers("ctc_loss", "targets", targets), of_target, batch)
    counted = np.arange(labels.shape[1]) < of_target[:, None]
    wrong = labels[counted & ((labels < 0) | (labels >= classes) | (labels == blank))]
    if wrong.size or not 0 <= blank < classes:
        raise ShapeError(
            f"ctc_loss: labels must be in [0, {classes}) and not the blank {blank}, got "
            f"{wrong[0] if wrong.size else blank}; correct the labels or choose another blank"
        )
    states = np.full((batch, 2 * labels.shape[1] + 3), blank)
    states[:, 1:-2:2] = np.where(counted, labels, blank)
    states[:, -2], states[:, -1] = of_input, of_target
    return states


def _lengths(name: str, given: Any, batch: int) -> Host:
    host = integers("ctc_loss", name, given).reshape(-1)
    if host.shape != (batch,):
        raise ShapeError(
            f"ctc_loss: {name} must have one length for each of {batch} sequences, got {given!r}"
        )
    return host


def _rows(labels: Host, lengths: Host, batch: int) -> Host:
    """Return labels, which are padded or concatenated, as rows (N, S)."""
    joined = labels.ndim == 1 and labels.size == lengths.sum()
    if joined and lengths.min() >= 0:
        rows = np.zeros((batch, lengths.max()), np.int64)
        rows[np.arange(rows.shape[1]) < lengths[:, None]] = labels
        return rows
    rows = labels.reshape(1, -1) if labels.ndim == batch == 1 else labels
    if (
        rows.ndim != 2
        or len(rows) != batch
        or not 0 <= lengths.min() <= lengths.max() <= (rows.shape[1])
    ):
        raise ShapeError(
            f"ctc_loss: targets must be ({batch}, S), or all labels concatenated, with "
            f"target_lengths in [0, S], got shape {labels.shape} and lengths {lengths}"
        )
    return rows


@host_step
def _places(states: Host, shape: Shape, device: Any) -> Array:
    """Return the positions, in the flattened logs, of the label that each state emits at each step.

    After its last step a sequence repeats that step's positions, so that no padding is read.
    """
    steps, batch, classes = shape
    step = np.minimum(np.arange(steps)[:, None], states[:, -2] - 1)
    row = (step * batch + np.arange(batch)) * classes
    return from_numpy(row[:, :, None] + states[:, :-2], device, np.int64)


@host_step
def _barred_skips(states: Host, blank: int, device: Any, dtype: str) -> Array:
    """Return 0 for each state that paths may reach by skipping a state, else IMPOSSIBLE."""
    labels = states[:, :-2]
    allowed = np.zeros(labels.shape, bool)
    allowed[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    return from_numpy(np.where(allowed, 0.0, IMPOSSIBLE), device, dtype)


@host_step
def _barred_ends(states: Host, steps: int, device: Any, dtype: str) -> Array:
    """Return, (T, N, L), 0 where paths may end: in the last label or blank at the last step."""
    of_input, of_target = states[:, -2], states[:, -1]
    state, last = np.arange(states.shape[1] - 2), 2 * of_target[:, None]
    in_state = (state == last) | (state == last - 1)
    at_step = np.arange(steps)[:, None] == of_input - 1
    ends = at_step[:, :, None] & in_state
    return from_numpy(np.where(ends, 0.0, IMPOSSIBLE), device, dtype)


@host_step
def _counts(states: Host, device: Any, dtype: str) -> Array:
    return from_numpy(np.maximum(states[:, -1], 1), device, dtype)
