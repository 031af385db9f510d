"""Rows of the op table: losses of classes with weights, and losses of corresponding elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, ShapeError
from tests.nn_oracles import logsumexp
from tests.op_row import Failure, OpRow, apart, normal, refused

LABELS = np.array([[0, 2], [1, -1], [2, 2]])
WEIGHT = np.array([0.5, 2.0, 1.0])


def np_class_loss(logs: Any, smoothing: float, reduction: str) -> Any:
    """Return the loss for logs (3, 3, 2) of LABELS with WEIGHT, -1 ignored."""
    losses, weights = np.zeros(LABELS.shape), np.zeros(LABELS.shape)
    for n, d in np.ndindex(LABELS.shape):
        label = LABELS[n, d]
        if label >= 0:
            weights[n, d] = WEIGHT[label]
            q = WEIGHT * ((1 - smoothing) * np.eye(3)[label] + smoothing / 3)
            losses[n, d] = -(q * logs[n, :, d]).sum()
    if reduction == "none":
        return losses
    return losses.sum() / (weights.sum() if reduction == "mean" else 1)


def wrong(name: str, error: type[Exception], message: str, labels: Any, **more: Any) -> Failure:
    call = getattr(ops, name)
    return refused(lambda a: call(a, labels, **more), f"{name}: {message}", (2, 3), error=error)


CLASS_LOSSES = [
    *[
        OpRow(
            "cross_entropy",
            lambda z, r=reduction, s=smoothing: ops.cross_entropy(
                z, LABELS, s, r, weight=WEIGHT, ignore_index=-1
            ),
            lambda z, r=reduction, s=smoothing: np_class_loss(z - logsumexp(z, 1, True), s, r),
            normal((3, 3, 2)),
            f"weights {reduction} {smoothing}",
            resize=False,
        )
        for reduction in ("mean", "sum", "none")
        for smoothing in (0.0, 0.3)
    ],
    OpRow(
        "cross_entropy",
        lambda z, q: ops.cross_entropy(z, q, 0.2, weight=WEIGHT),
        lambda z, q: -((0.8 * q + 0.2 / 3) * WEIGHT * (z - logsumexp(z, 1, True))).sum(1).mean(),
        normal((4, 3), (4, 3)),
        "probabilities",
        empty=False,
        failures=(
            wrong(
                "cross_entropy", ValueError, "ignore_index needs", np.zeros((2, 3)), ignore_index=0
            ),
            wrong("cross_entropy", ShapeError, "weight must have one", [0, 1], weight=np.ones(2)),
        ),
    ),
    *[
        OpRow(
            "nll_loss",
            lambda z, r=reduction: ops.nll_loss(z, LABELS, WEIGHT, -1, r),
            lambda z, r=reduction: np_class_loss(z, 0.0, r),
            normal((3, 3, 2)),
            reduction,
            order=1,
            resize=False,
            failures=(
                wrong("nll_loss", ShapeError, "labels must be in [0, 3), got 3", [0, 3]),
                wrong("nll_loss", DTypeError, "labels must be integers", [0.5, 1.0]),
                wrong("nll_loss", ValueError, "reduction must be one of", [0, 1], reduction="all"),
            ),
        )
        for reduction in ("mean", "sum", "none")
    ],
]


def inside(*shapes: Any) -> Any:
    """Return inputs in (0, 1)."""
    return lambda random: tuple(random.uniform(0.1, 0.9, shape) for shape in shapes)


def bce(p: Any, t: Any) -> Any:
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


def smooth(d: Any, beta: float) -> Any:
    return np.where(np.abs(d) < beta, d * d / (2 * beta), np.abs(d) - beta / 2)


def huber(d: Any, delta: float) -> Any:
    return np.where(np.abs(d) <= delta, d * d / 2, delta * (np.abs(d) - delta / 2))


S = (3, 4)
ELEMENTWISE: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("mse_loss", {}, lambda a, t: (a - t) ** 2, normal),
    ("l1_loss", {}, lambda a, t: np.abs(a - t), apart),
    ("smooth_l1_loss", {"beta": 0.55}, lambda a, t: smooth(a - t, 0.55), apart),
    ("huber_loss", {"delta": 0.55}, lambda a, t: huber(a - t, 0.55), apart),
    ("binary_cross_entropy", {}, bce, inside),
    (
        "binary_cross_entropy_with_logits",
        {},
        lambda a, t: bce(1 / (1 + np.exp(-a)), t),
        normal,
    ),
    ("kl_div", {}, lambda a, t: t * (np.log(t) - a), inside),
    ("kl_div", {"log_target": True}, lambda a, t: np.exp(t) * (t - a), normal),
]
ELEMENTWISE_LOSSES = [
    OpRow(
        name,
        lambda a, t, n=name, o=options, r=reduction: getattr(ops, n)(a, t, reduction=r, **o),
        lambda a, t, f=oracle, r=reduction: f(a, t) if r == "none" else getattr(np, r)(f(a, t)),
        inputs(S, S),
        " ".join([*options, reduction]),
        empty=reduction != "mean",
        rtol=5e-5,
        failures=(
            Failure(
                lambda t, n=name: getattr(ops, n)(t(np.zeros((3, 1))), t(np.zeros(3))),
                ShapeError,
                f"{name}: both shapes must be equal, got (3, 1) and target (3,)",
            ),
            Failure(
                lambda t, n=name: getattr(ops, n)(t(np.zeros(3)), t(np.zeros(3)), reduction="all"),
                ValueError,
                f"{name}: reduction must be one of",
            ),
        ),
    )
    for name, options, oracle, inputs in ELEMENTWISE
    for reduction in ("mean", "sum", "none")
]


def np_cosine(a: Any, b: Any) -> Any:
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def np_distance(x: Any, y: Any, p: float) -> Any:
    return (np.abs(x - y + 1e-6) ** p).sum(-1) ** (1 / p)


def np_triplet(a: Any, b: Any, c: Any, p: float, swap: bool) -> Any:
    far = np_distance(a, c, p)
    far = np.minimum(far, np_distance(b, c, p)) if swap else far
    return np.maximum(np_distance(a, b, p) - far + 0.5, 0)


SIGNS = np.array([1.0, -1.0, -1.0, 1.0, -1.0])
ROWS_OF_LOSSES = [
    *[
        OpRow(
            "cosine_embedding_loss",
            lambda a, b, r=reduction: ops.cosine_embedding_loss(a, b, SIGNS, 0.1, r),
            lambda a, b, f=fold: f(
                np.where(SIGNS == 1, 1 - np_cosine(a, b), np.maximum(np_cosine(a, b) - 0.1, 0))
            ),
            normal((5, 4), (5, 4)),
            reduction,
            resize=False,
            failures=(
                refused(
                    lambda a, b: ops.cosine_embedding_loss(a, b, [0, 1, 1]),
                    "cosine_embedding_loss: the target must be 1 or -1, got 0",
                    *[(3, 4), (3, 4)],
                    error=ValueError,
                ),
                refused(
                    lambda a, b: ops.cosine_embedding_loss(a, b, [1]),
                    "cosine_embedding_loss: inputs must be (N, D) with a target (N,)",
                    *[(3, 4), (3, 4)],
                ),
            ),
        )
        for reduction, fold in (("mean", np.mean), ("sum", np.sum), ("none", np.asarray))
    ],
    *[
        OpRow(
            "triplet_margin_loss",
            lambda a, b, c, p=p, s=swap, r=reduction: ops.triplet_margin_loss(
                a, b, c, 0.5, p, swap=s, reduction=r
            ),
            lambda a, b, c, p=p, s=swap, f=fold: f(np_triplet(a, b, c, p, s)),
            normal((5, 4), (5, 4), (5, 4)),
            f"p {p} {swap} {reduction}",
            empty=reduction != "mean",
            failures=(
                refused(
                    ops.triplet_margin_loss,
                    "triplet_margin_loss: both shapes must be equal, got (3, 4) and target (4,)",
                    *[(3, 4), (3, 4), (4,)],
                ),
                refused(
                    lambda a: ops.triplet_margin_loss(a, a, a, 0.0),
                    "triplet_margin_loss: margin must be positive, got 0.0",
                    error=ValueError,
                ),
            ),
        )
        for p, swap, reduction, fold in (
            (2.0, False, "mean", np.mean),
            (2.0, True, "sum", np.sum),
            (3.0, True, "none", np.asarray),
        )
    ],
]

LETTERS = np.array([[1, 2, 0], [0, 0, 9]])


def np_ctc(logs: Any, steps: Any, letters: Any, reduction: str) -> Any:
    """Return the losses of LETTERS with blank 3, by the list of all alignments."""
    losses = []
    for n in range(logs.shape[1]):
        wanted = list(LETTERS[n, : letters[n]])
        total = 0.0
        for path in np.ndindex(*[4] * steps[n]):
            merged = [c for i, c in enumerate(path) if c != 3 and (i == 0 or c != path[i - 1])]
            if merged == wanted:
                total += np.exp(sum(logs[t, n, c] for t, c in enumerate(path)))
        losses.append(-np.log(total))
    if reduction == "mean":
        return np.mean(np.array(losses) / np.maximum(letters, 1))
    return np.sum(losses) if reduction == "sum" else np.array(losses)


def ctc_failure(message: str, *args: Any, error: type[Exception] = ShapeError) -> Failure:
    return refused(lambda a: ops.ctc_loss(a, *args), f"ctc_loss: {message}", (4, 2, 3), error=error)


CTC = [
    *[
        OpRow(
            "ctc_loss",
            lambda z, s=steps, n=letters, r=reduction: ops.ctc_loss(z, LETTERS, s, n, 3, r),
            lambda z, s=steps, n=letters, r=reduction: np_ctc(z, s, n, r),
            normal((5, 2, 4)),
            f"{reduction} {steps} {letters}",
            resize=False,
        )
        for steps, letters, reduction in (
            ((5, 3), (3, 2), "mean"),
            ((3, 5), (1, 2), "sum"),
            ((2, 1), (0, 1), "none"),
        )
    ],
    OpRow(
        "ctc_loss",
        lambda z: ops.ctc_loss(z, [1, 2, 0, 0, 0], (4, 5), (3, 2), 3, "none"),
        lambda z: np_ctc(z, (4, 5), (3, 2), "none"),
        normal((5, 2, 4)),
        "joined labels",
        resize=False,
    ),
    OpRow(
        "ctc_loss",
        lambda z: ops.ctc_loss(z, [1, 2], 3, 2, 3, "none"),
        lambda z: np_ctc(z[:, None], (3,), (2,), "none")[0],
        normal((4, 4)),
        "one sequence",
        resize=False,
    ),
    OpRow(
        "ctc_loss",
        lambda z: ops.ctc_loss(z, LETTERS, (3, 2), (3, 2), 3, "sum", zero_infinity=True),
        lambda z: np_ctc(z[:, :1], (3,), (3,), "sum"),
        normal((5, 2, 4)),
        "one of two without an alignment",
        resize=False,
    ),
    OpRow(
        "ctc_loss",
        lambda z: ops.ctc_loss(z.detach(), LETTERS, (2, 2), (3, 2), 3, "none"),
        lambda z: np.full(2, np.inf),
        normal((5, 2, 4)),
        "no alignment",
        order=0,
        resize=False,
        failures=(
            ctc_failure("input_lengths must be in [1, 4]", [[1], [1]], [5, 4], [1, 1]),
            ctc_failure("input_lengths must have one length", [[1], [1]], [4], [1, 1]),
            ctc_failure("labels must be in [0, 3) and not the", [[1], [3]], [4, 4], [1, 1]),
            ctc_failure("labels must be in [0, 3) and not the", [[1], [0]], [4, 4], [1, 1]),
            ctc_failure("targets must be (2, S), or all", [[1], [1]], [4, 4], [1, 2]),
            ctc_failure("targets must be (2, S), or all", [1, 2, 1], [4, 4], [1, 1]),
            ctc_failure("targets must be integers", [[1.5], [1]], [4, 4], [1, 1], error=DTypeError),
            refused(lambda a: ops.ctc_loss(a, [1], 1, 1), "ctc_loss: logs must be", (3,)),
        ),
    ),
]

LOSS_ROWS = [*CTC, *CLASS_LOSSES, *ELEMENTWISE_LOSSES, *ROWS_OF_LOSSES]
