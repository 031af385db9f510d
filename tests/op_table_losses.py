"""Rows of the op table: class losses with weights, and losses of corresponding elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from needle import ops
from needle.errors import DTypeError, ShapeError
from tests.nn_oracles import logsumexp
from tests.op_row import OpRow, S, apart, called, normal, wrong

LABELS = np.array([[0, 2], [1, -1], [2, 2]])
WEIGHT = np.array([0.5, 2.0, 1.0])


def np_class_loss(logs: Any, smoothing: float, reduction: str) -> Any:
    """Return the loss of log-probabilities (3, 3, 2) for LABELS with WEIGHT, ignoring -1."""
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


CLASS_LOSSES = [
    *[
        called(
            "cross_entropy",
            lambda z, r=reduction, s=smoothing: np_class_loss(z - logsumexp(z, 1, True), s, r),
            normal((3, 3, 2)),
            *(LABELS, smoothing, reduction),
            options={"weight": WEIGHT, "ignore_index": -1},
            case=f"weights {reduction} {smoothing}",
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
    ),
    *[
        called(
            "nll_loss",
            lambda z, r=reduction: np_class_loss(z, 0.0, r),
            normal((3, 3, 2)),
            *(LABELS, WEIGHT, -1, reduction),
            case=reduction,
            order=1,
            resize=False,
        )
        for reduction in ("mean", "sum", "none")
    ],
]


def inside(*shapes: Any) -> Any:
    """Return inputs in (0, 1)."""
    return lambda random: tuple(random.uniform(0.1, 0.9, shape) for shape in shapes)


def bce(p: Any, t: Any, pos_weight: Any = 1.0) -> Any:
    return -(pos_weight * t * np.log(p) + (1 - t) * np.log(1 - p))


def np_sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def smooth(d: Any, beta: float) -> Any:
    return np.where(np.abs(d) < beta, d * d / (2 * beta), np.abs(d) - beta / 2)


def huber(d: Any, delta: float) -> Any:
    return np.where(np.abs(d) <= delta, d * d / 2, delta * (np.abs(d) - delta / 2))


SHARES = np.array([0.5, 2.0, 1.0, 0.25])
ELEMENTWISE: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("mse_loss", {}, lambda a, t: (a - t) ** 2, normal),
    ("l1_loss", {}, lambda a, t: np.abs(a - t), apart),
    ("smooth_l1_loss", {"beta": 0.55}, lambda a, t: smooth(a - t, 0.55), apart),
    ("smooth_l1_loss", {"beta": 0.0}, lambda a, t: np.abs(a - t), apart),
    ("huber_loss", {"delta": 0.55}, lambda a, t: huber(a - t, 0.55), apart),
    ("binary_cross_entropy", {}, bce, inside),
    ("binary_cross_entropy", {"weight": SHARES}, lambda a, t: SHARES * bce(a, t), inside),
    ("binary_cross_entropy_with_logits", {}, lambda a, t: bce(np_sigmoid(a), t), normal),
    (
        "binary_cross_entropy_with_logits",
        {"weight": SHARES, "pos_weight": SHARES},
        lambda a, t: SHARES * bce(np_sigmoid(a), t, SHARES),
        normal,
    ),
    ("kl_div", {}, lambda a, t: t * (np.log(t) - a), inside),
    ("kl_div", {"log_target": True}, lambda a, t: np.exp(t) * (t - a), normal),
]
ELEMENTWISE_LOSSES = [
    called(
        name,
        lambda a, t, f=oracle, r=reduction: f(a, t) if r == "none" else getattr(np, r)(f(a, t)),
        inputs(S, S),
        options={"reduction": reduction, **options},
        case=" ".join([*(f"{name} {np.max(each)}" for name, each in options.items()), reduction]),
        empty=reduction != "mean",
        rtol=5e-5,
    )
    for name, options, oracle, inputs in ELEMENTWISE
    for reduction in ("mean", "sum", "none")
]
BATCH_MEAN = called(
    "kl_div",
    lambda a, t: (t * (np.log(t) - a)).sum() / len(a),
    inside(S, S),
    "batchmean",
    case="batchmean",
    empty=False,
)


def np_cosine(a: Any, b: Any) -> Any:
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def np_distance(x: Any, y: Any, p: float) -> Any:
    return (np.abs(x - y + 1e-6) ** p).sum(-1) ** (1 / p)


def np_triplet(a: Any, b: Any, c: Any, p: float, swap: bool) -> Any:
    far = np_distance(a, c, p)
    far = np.minimum(far, np_distance(b, c, p)) if swap else far
    return np.maximum(np_distance(a, b, p) - far + 0.5, 0)


SIGNS = np.array([1.0, -1.0, -1.0, 1.0, -1.0])
FOLDS = (("mean", np.mean), ("sum", np.sum), ("none", np.asarray))
ROWS_OF_LOSSES = [
    *[
        called(
            "cosine_embedding_loss",
            lambda a, b, f=fold: f(
                np.where(SIGNS == 1, 1 - np_cosine(a, b), np.maximum(np_cosine(a, b) - 0.1, 0))
            ),
            normal((5, 4), (5, 4)),
            *(SIGNS, 0.1, reduction),
            case=reduction,
            resize=False,
        )
        for reduction, fold in FOLDS
    ],
    *[
        called(
            "triplet_margin_loss",
            lambda a, b, c, p=p, s=swap, f=fold: f(np_triplet(a, b, c, p, s)),
            normal((5, 4), (5, 4), (5, 4)),
            *(0.5, p),
            options={"swap": swap, "reduction": reduction},
            case=f"p {p} {swap} {reduction}",
            empty=reduction != "mean",
        )
        for (p, swap), (reduction, fold) in zip(((2.0, False), (2.0, True), (3.0, True)), FOLDS)
    ],
]

LETTERS = np.array([[1, 2, 0], [0, 0, 9]])


def np_ctc(logs: Any, steps: Any, letters: Any, reduction: str) -> Any:
    """Return the losses of LETTERS with blank 3, by enumerating all alignments."""
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


CTC = [
    *[
        called(
            "ctc_loss",
            lambda z, s=steps, n=letters, r=reduction: np_ctc(z, s, n, r),
            normal((5, 2, 4)),
            *(LETTERS, steps, letters, 3, reduction),
            case=f"{reduction} {steps} {letters}",
            resize=False,
        )
        for steps, letters, reduction in (
            ((5, 3), (3, 2), "mean"),
            ((3, 5), (1, 2), "sum"),
            ((2, 1), (0, 1), "none"),
        )
    ],
    called(
        "ctc_loss",
        lambda z: np_ctc(z, (4, 5), (3, 2), "none"),
        normal((5, 2, 4)),
        *([1, 2, 0, 0, 0], (4, 5), (3, 2), 3, "none"),
        case="joined labels",
        resize=False,
    ),
    called(
        "ctc_loss",
        lambda z: np_ctc(z[:, None], (3,), (2,), "none")[0],
        normal((4, 4)),
        *([1, 2], 3, 2, 3, "none"),
        case="one sequence",
        resize=False,
    ),
    called(
        "ctc_loss",
        lambda z: np_ctc(z[:, :1], (3,), (3,), "sum"),
        normal((5, 2, 4)),
        *(LETTERS, (3, 2), (3, 2), 3, "sum"),
        options={"zero_infinity": True},
        case="one of two without an alignment",
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
    ),
]

LOSS_ROWS = [*CTC, *CLASS_LOSSES, *ELEMENTWISE_LOSSES, BATCH_MEAN, *ROWS_OF_LOSSES]

ROW, PAIR = (2, 3), (S, S)
LOSS_FAILURES = [
    wrong(
        "cross_entropy",
        "ignore_index requires",
        np.zeros(ROW),
        on=(ROW,),
        error=ValueError,
        ignore_index=0,
    ),
    wrong("cross_entropy", "weight must have one", [0, 1], on=(ROW,), weight=np.ones(2)),
    wrong("nll_loss", "labels must be in [0, 3), got 3", [0, 3], on=(ROW,)),
    wrong("nll_loss", "labels must be integers", [0.5, 1.0], on=(ROW,), error=DTypeError),
    *[
        failure
        for name in sorted({name for name, *_ in ELEMENTWISE})
        for failure in (
            wrong(
                name,
                "both operands must have the same shape, got (3, 1) and target (3,)",
                on=((3, 1), (3,)),
            ),
            wrong(name, "reduction must be 'mean'", on=PAIR, error=ValueError, reduction="all"),
        )
    ],
    wrong(
        "nll_loss", "reduction must be 'mean'", [0, 1], on=(ROW,), error=ValueError, reduction="all"
    ),
    wrong(
        "cosine_embedding_loss",
        "the target must be 1 or -1, got 0",
        [0, 1, 1],
        on=PAIR,
        error=ValueError,
    ),
    wrong("cosine_embedding_loss", "inputs must be (N, D) with a target (N,)", [1], on=PAIR),
    wrong(
        "triplet_margin_loss",
        "both operands must have the same shape, got (3, 4) and target (4,)",
        on=(S, S, (4,)),
    ),
    wrong(
        "triplet_margin_loss",
        "margin must be positive, got 0.0",
        0.0,
        on=(S, S, S),
        error=ValueError,
    ),
    *[
        wrong("ctc_loss", message, *args, on=((4, 2, 3),), error=error)
        for message, error, *args in (
            ("input_lengths must be in [1, 4]", ShapeError, [[1], [1]], [5, 4], [1, 1]),
            ("input_lengths must have one length", ShapeError, [[1], [1]], [4], [1, 1]),
            ("labels must be in [0, 3) and not the", ShapeError, [[1], [3]], [4, 4], [1, 1]),
            ("labels must be in [0, 3) and not the", ShapeError, [[1], [0]], [4, 4], [1, 1]),
            ("targets must be (2, S), or all", ShapeError, [[1], [1]], [4, 4], [1, 2]),
            ("targets must be (2, S), or all", ShapeError, [1, 2, 1], [4, 4], [1, 1]),
            ("targets must be integers", DTypeError, [[1.5], [1]], [4, 4], [1, 1]),
        )
    ],
    wrong("ctc_loss", "logs must be", [1], 1, 1, on=((3,),)),
    wrong("smooth_l1_loss", "beta must be at least 0", on=PAIR, error=ValueError, beta=-1.0),
    wrong("huber_loss", "delta must be positive", on=PAIR, error=ValueError, delta=0.0),
    wrong("binary_cross_entropy", "target must be in [0, 1]", np.full(S, 2.0), error=ValueError),
]
