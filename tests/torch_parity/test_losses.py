"""Compare losses with PyTorch: values, first and second gradients, reductions and refusals."""

from typing import Any

import numpy as np
import pytest

import needle as ndl
from tests.torch_parity.compare import F, both, check_refused, compare, compare_functions, torch

Random = np.random.Generator
REDUCTIONS = ("mean", "sum", "none")
SEEDS = range(24)


def scores(r: Random) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return a shape for logits, a shape for their labels, and the number of classes."""
    classes = int(r.integers(1, 6))
    rest = tuple(int(n) for n in r.integers(1, 4, r.integers(0, 4)))
    if not rest:
        return (classes,), (), classes
    return (rest[0], classes, *rest[1:]), rest, classes


def class_options(r: Random, labels: Any, classes: int) -> dict[str, Any]:
    options: dict[str, Any] = {"reduction": str(r.choice(REDUCTIONS))}
    if r.integers(2):
        options["weight"] = r.random(classes) + 0.1
    if r.integers(2):
        ignored = options["ignore_index"] = int(r.choice([-100, -1, 0, classes + 3]))
        if labels.size > 1:
            labels.reshape(-1)[1:][r.random(labels.size - 1) < 0.3] = ignored
        if labels.size and (labels == ignored).all():
            labels.reshape(-1)[0] = classes - 1
        if (labels == ignored).all():
            options["reduction"] = "sum"
    return options


@pytest.mark.parametrize("seed", SEEDS)
def test_cross_entropy_of_labels(seed: int, device: Any) -> None:
    r = np.random.default_rng(seed)
    shape, label_shape, classes = scores(r)
    labels = np.asarray(r.integers(0, classes, label_shape))
    options = class_options(r, labels, classes)
    options["label_smoothing"] = float(r.choice([0.0, 0.2, 1.0]))
    logits = r.standard_normal(shape) * 3
    compare_functions("cross_entropy", [logits], device, labels, **options)


@pytest.mark.parametrize("seed", SEEDS)
def test_cross_entropy_of_probabilities(seed: int, device: Any) -> None:
    r = np.random.default_rng(seed)
    shape, _, classes = scores(r)
    options: dict[str, Any] = {"weight": r.random(classes) if r.integers(2) else None}
    options["reduction"] = str(r.choice(REDUCTIONS))
    options["label_smoothing"] = float(r.choice([0.0, 0.3]))
    values = [r.standard_normal(shape), r.random(shape)]
    compare_functions("cross_entropy", values, device, **options)


@pytest.mark.parametrize("seed", SEEDS)
def test_nll_loss(seed: int, device: Any) -> None:
    r = np.random.default_rng(seed)
    shape, label_shape, classes = scores(r)
    labels = np.asarray(r.integers(0, classes, label_shape))
    options = class_options(r, labels, classes)
    compare_functions("nll_loss", [r.standard_normal(shape)], device, labels, **options)


ELEMENTWISE: dict[str, Any] = {
    "mse_loss": ({}, {}),
    "l1_loss": ({}, {}),
    "smooth_l1_loss": ({"beta": 0.7}, {"beta": 0.0}),
    "huber_loss": ({"delta": 0.6}, {}),
    "binary_cross_entropy": ({}, {"weight": 1}),
    "binary_cross_entropy_with_logits": ({}, {"weight": 1}, {"pos_weight": 1}),
    "kl_div": ({}, {"log_target": True}),
}
CASES = [(name, options) for name, several in ELEMENTWISE.items() for options in several]


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{o}" for n, o in CASES])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (4,), (3, 2, 3)], ids=str)
def test_elementwise(name: str, options: Any, reduction: str, shape: Any, device: Any) -> None:
    r = np.random.default_rng(len(shape))
    drawn = {key: r.random(shape[-1:]) for key in {"weight", "pos_weight"} & set(options)}
    a, target = r.standard_normal(shape), r.standard_normal(shape)
    if "entropy" in name or name == "kl_div":
        target = r.random(shape) * 0.9 + 0.05
    if name == "binary_cross_entropy":
        a = r.random(shape) * 0.9 + 0.05
    compare_functions(name, [a, target], device, reduction=reduction, **{**options, **drawn})


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_certain_predictions(name: str, device: Any) -> None:
    a = np.array([0.0, 1.0, 0.0, 1.0, 1e-30, 1.0])
    if "logits" in name:
        a = np.array([-1e3, 1e3, -1e3, 1e3, -70.0, 0.0])
    target = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.5])
    compare_functions(name, [a], device, target, reduction="none", order=1)


def test_logits_keep_small_losses(device: Any) -> None:
    """PyTorch's formula loses precision: the loss of a logit of -40 and target 0 is exp(-40)."""
    a = ndl.Tensor(np.array([-40.0, 40.0]), device=device, dtype="float64")
    loss = ndl.binary_cross_entropy_with_logits(a, np.array([0.0, 1.0]), reduction="none")
    np.testing.assert_allclose(loss.numpy(), np.exp([-40.0, -40.0]), rtol=1e-12)


@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div_by_batch_and_with_zeros(log_target: bool, device: Any) -> None:
    r = np.random.default_rng(0)
    target = r.random((3, 4))
    target[0, 0] = 0.0
    options: dict[str, Any] = {"reduction": "batchmean", "log_target": log_target}
    compare_functions("kl_div", [r.standard_normal((3, 4))], device, target, **options)


def test_no_label_counts(device: Any) -> None:
    logits, labels = np.zeros((2, 3)), np.array([-100, -100])
    for name in ("cross_entropy", "nll_loss"):
        ours = getattr(ndl, name)(ndl.Tensor(logits, device=device), labels)
        theirs = getattr(F, name)(torch.tensor(logits), torch.tensor(labels))
        assert np.isnan(ours.numpy()).all() and torch.isnan(theirs)


LOGITS, LABELS = np.zeros((2, 3)), np.array([0, 2])
REFUSED = {
    "label": both("cross_entropy", LOGITS, np.array([0, 3])),
    "negative": both("cross_entropy", LOGITS, np.array([0, -1])),
    "floats": both("cross_entropy", LOGITS, np.array([0.0, 1.0])),
    "rows": both("cross_entropy", LOGITS, np.array([0, 1, 2])),
    "reduction": both("cross_entropy", LOGITS, LABELS, reduction="average"),
    "smoothing": both("cross_entropy", LOGITS, LABELS, label_smoothing=1.5),
    "probabilities": both("cross_entropy", LOGITS, LOGITS, ignore_index=1),
    "nll": both("nll_loss", LOGITS, np.array([0, 3])),
    "nll_rows": both("nll_loss", LOGITS, np.array([[0, 1]])),
    "mse": both("mse_loss", LOGITS, np.zeros((2, 4))),
    "mse_reduction": both("mse_loss", LOGITS, LOGITS, reduction="batchmean"),
    "beta": both("smooth_l1_loss", LOGITS, LOGITS, beta=-1.0),
    "delta": both("huber_loss", LOGITS, LOGITS, delta=0.0),
    "bce": both("binary_cross_entropy", LOGITS, np.zeros(3)),
    "bce_range": both("binary_cross_entropy", LOGITS + 1.5, LOGITS),
    "bce_nan": both("binary_cross_entropy", LOGITS + np.nan, LOGITS),
    "bce_logits": both("binary_cross_entropy_with_logits", LOGITS, np.zeros(3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_pytorch(name: str) -> None:
    check_refused(REFUSED[name])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4)], ids=str)
def test_triplets(shape: Any, swap: bool, reduction: str, device: Any) -> None:
    r = np.random.default_rng(5)
    options: dict[str, Any] = {"margin": 0.7, "p": 2, "swap": swap, "reduction": reduction}
    rows = [r.standard_normal(shape) for _ in range(3)]
    compare_functions("triplet_margin_loss", rows, device, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("rows", [(6,), ()], ids=str)
def test_cosine_embedding(rows: Any, reduction: str, device: Any) -> None:
    r = np.random.default_rng(6)
    target = np.asarray(r.choice([-1, 1], rows))
    options: dict[str, Any] = {"margin": 0.2, "reduction": reduction}
    values = [r.standard_normal((*rows, 4)) for _ in range(2)]
    compare_functions("cosine_embedding_loss", values, device, target, **options)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_directions(axis: int, device: Any) -> None:
    r = np.random.default_rng(7)
    a, b = r.standard_normal((2, 3, 4)), r.standard_normal((3, 1))
    compare_functions("cosine_similarity", [a, b], device, axis)
    for p in (1, 2, 3.5):
        compare_functions("normalize", [a], device, p, axis)


@pytest.mark.parametrize("seed", SEEDS)
def test_ctc(seed: int, device: Any) -> None:
    r = np.random.default_rng(seed)
    steps, n, classes, letters = (int(r.integers(1, top)) for top in (9, 4, 6, 5))
    classes, blank = classes + 1, int(r.integers(0, classes + 1))
    targets = (blank + r.integers(1, classes, (n, letters))) % classes
    lengths = r.integers(1, steps + 1, n), r.integers(0, letters + 1, n)
    options = blank, str(r.choice(REDUCTIONS))
    compare(
        [r.standard_normal((steps, n, classes))],
        lambda z: ndl.ctc_loss(ndl.logsoftmax(z, axis=2), targets, *lengths, *options, True),
        lambda z: F.ctc_loss(
            F.log_softmax(z, 2),
            *map(torch.tensor, [targets, *lengths]),
            *options,
            zero_infinity=True,
        ),
        device,
        order=1,
    )
    layer = ndl.nn.CTCLoss(*options, zero_infinity=True)
    logs = ndl.logsoftmax(ndl.Tensor(r.standard_normal((steps, n, classes))), axis=2)
    ours, function = layer(logs, targets, *lengths), ndl.ctc_loss
    np.testing.assert_array_equal(
        ours.numpy(), function(logs, targets, *lengths, *options, True).numpy()
    )


LAYERS = [
    ("MSELoss", {}),
    ("L1Loss", {"reduction": "sum"}),
    ("SmoothL1Loss", {"beta": 0.5}),
    ("HuberLoss", {"delta": 0.5, "reduction": "none"}),
    ("BCELoss", {"weight": [0.5, 2.0, 1.0]}),
    ("BCEWithLogitsLoss", {"pos_weight": [0.5, 2.0, 1.0]}),
    ("KLDivLoss", {"reduction": "batchmean"}),
    ("CosineEmbeddingLoss", {"margin": 0.1, "reduction": "sum"}),
    ("TripletMarginLoss", {"margin": 0.5, "p": 3.0, "swap": True, "reduction": "none"}),
    ("NLLLoss", {"weight": [0.5, 2.0, 1.0], "ignore_index": 0}),
    ("CrossEntropyLoss", {"weight": [0.5, 2.0, 1.0], "label_smoothing": 0.1}),
    ("CrossEntropyLoss", {"ignore_index": 1}),
]


@pytest.mark.parametrize(("name", "options"), LAYERS, ids=str)
def test_layers(name: str, options: Any, device: Any) -> None:
    r = np.random.default_rng(3)
    a, target = r.random((4, 3)).astype("float32"), r.random((4, 3)).astype("float32")
    if name in ("NLLLoss", "CrossEntropyLoss"):
        target = np.array([0, 1, 2, 1])
    more: list[Any] = []
    if name == "CosineEmbeddingLoss":
        more = [np.array([1.0, -1.0, 1.0, -1.0])]
    if name == "TripletMarginLoss":
        more = [r.random((4, 3)).astype("float32")]
    other = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items()}
    layer = getattr(ndl.nn, name)(**options).to(device)
    theirs = getattr(torch.nn, name)(**other)
    x, y = ndl.Tensor(a, device=device), torch.tensor(a, requires_grad=True)
    ours, expected = layer(x, target, *more), theirs(y, *map(torch.tensor, [target, *more]))
    np.testing.assert_allclose(ours.numpy(), expected.detach().numpy(), rtol=2e-6)
    ours.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-7)
    assert set(layer.state_dict()) == set(theirs.state_dict())
    assert name in repr(layer)
