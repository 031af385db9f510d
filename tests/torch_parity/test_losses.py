"""Compare values and first and second gradients of losses with PyTorch's, for random options."""

from typing import Any

import numpy as np
import pytest

import needle as ndl
from tests.torch_parity.compare import F, compare, compare_functions, torch

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


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_certain_predictions(name: str, device: Any) -> None:
    a = np.array([0.0, 1.0, 0.0, 1.0, 1e-30, 1.0])
    if "logits" in name:
        a = np.array([-1e3, 1e3, -1e3, 1e3, -70.0, 0.0])
    target = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.5])
    compare_functions(name, [a], device, target, reduction="none", order=1)


def test_no_label_counts(device: Any) -> None:
    logits, labels = np.zeros((2, 3)), np.array([-100, -100])
    for name in ("cross_entropy", "nll_loss"):
        ours = getattr(ndl, name)(ndl.Tensor(logits, device=device), labels)
        theirs = getattr(F, name)(torch.tensor(logits), torch.tensor(labels))
        assert np.isnan(ours.numpy()).all() and torch.isnan(theirs)


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
