"""Test the course's last homework: language models and their training loop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from apps.models import LanguageModel
from apps.simple_ml import epoch_general_ptb, evaluate_ptb, train_ptb
from needle.errors import UnknownNameError
from tests.course.reference import softmax_loss

KINDS = ["rnn", "lstm", "transformer"]
TEXT = ["one two three four five", "two four six eight", "five six seven eight nine ten"]


@pytest.fixture
def corpus(tmp_path: Path) -> ndl.data.Corpus:
    for name, repeats in (("train", 12), ("test", 3)):
        (tmp_path / f"{name}.txt").write_text("\n".join(TEXT * repeats))
    return ndl.data.Corpus(str(tmp_path), max_lines=30)


def language_model(kind: str, device: Any, words: int = 7) -> LanguageModel:
    np.random.seed(1)
    return LanguageModel(6, words, 5, 2, kind, seq_len=8, device=device, dtype="float32")


@pytest.mark.parametrize("kind", KINDS)
def test_a_language_model_is_its_three_layers(kind: str, device: Any) -> None:
    model = language_model(kind, device)
    ids = np.random.randint(7, size=(4, 3)).astype("float32")
    x = ndl.Tensor(ids, device=device, dtype="float32")
    out, h = model(x)
    rows, state = model.seq_model(model.embedding(x))
    width = 6 if kind == "transformer" else 5
    expected = rows.numpy().reshape(12, width) @ model.linear.weight.numpy()
    expected = expected + model.linear.bias.numpy()
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)
    assert out.shape == (12, 7)
    if kind == "lstm":
        assert isinstance(h, tuple) and [each.shape for each in h] == [(2, 3, 5)] * 2
    elif kind == "rnn":
        assert h.shape == (2, 3, 5)
        np.testing.assert_array_equal(h.numpy(), state.numpy())
    out.backward()  # the initial gradient is 1 for every logit
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.shape == p.shape, name


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_a_language_model(kind: str, device: Any) -> None:
    model = language_model(kind, device)
    np.random.seed(1)
    place: dict[str, Any] = {"device": device, "dtype": "float32"}
    layers: list[nn.Module] = [nn.Embedding(7, 6, **place)]
    if kind == "transformer":
        layers.append(nn.Transformer(6, 5, 2, sequence_len=8, **place))
    else:
        layers.append((nn.RNN if kind == "rnn" else nn.LSTM)(6, 5, 2, **place))
    layers.append(nn.Linear(6 if kind == "transformer" else 5, 7, **place))
    expected = [p for layer in layers for p in layer.parameters()]
    for p, wanted in zip(model.parameters(), expected, strict=True):
        np.testing.assert_array_equal(p.numpy(), wanted.numpy())


def epoch_by_hand(model: Any, data: Any, steps: int, device: Any, opt: Any, clip: Any) -> Any:
    """Return the results of an explicit loop with the loss in float64."""
    h, total, right, count = None, 0.0, 0, 0
    for start in range(0, data.shape[0] - 1, steps):
        x, y = data[start : start + steps], data[start + 1 : start + 1 + steps]
        x, labels = x[: len(y)], y.reshape(-1).astype(int)
        out, h = model(ndl.Tensor(x, device=device, dtype="float32"), h)
        loss, slope = softmax_loss(out.numpy().astype("float64"), labels)
        if opt is not None:
            opt.reset_grad()
            out.backward(ndl.Tensor(slope, device=device, dtype="float32"))
            if clip:
                norm = np.sqrt(sum((p.grad.numpy() ** 2).sum() for p in opt.params))
                for p in opt.params:
                    p.grad = ndl.Tensor(
                        p.grad.numpy() * min(1.0, clip / norm), device=device, dtype="float32"
                    )
            opt.step()
        h = (h[0].detach(), h[1].detach()) if isinstance(h, tuple) else h.detach()
        total += loss * len(labels)
        right += int((out.numpy().argmax(1) == labels).sum())
        count += len(labels)
    return right / count, total / count


@pytest.mark.parametrize("clip", [None, 0.25])
@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_is_the_loop_of_the_course(
    kind: str, clip: float | None, corpus: Any, device: Any
) -> None:
    words = len(corpus.dictionary)
    data = ndl.data.batchify(corpus.train, 4, device, "float32")
    assert (len(data) - 1) % 8 != 0  # so the last sequence is shorter
    results = []
    for by_hand in (False, True):
        model = language_model(kind, device, words)
        opt = ndl.optim.SGD(model.parameters(), lr=0.05)
        if by_hand:
            results.append(epoch_by_hand(model, data, 8, device, opt, clip))
        else:
            options = {"opt": opt, "clip": clip, "device": device, "dtype": "float32"}
            results.append(epoch_general_ptb(data, model, 8, nn.SoftmaxLoss(), **options))
        results.append(np.concatenate([p.numpy().reshape(-1) for p in model.parameters()]))
    np.testing.assert_allclose(results[0], results[2], rtol=1e-4)
    np.testing.assert_allclose(results[1], results[3], rtol=1e-3, atol=1e-4)


def test_defaults_of_training_and_an_unknown_kind(corpus: Any) -> None:
    """Test the defaults: SGD with rate 4, sequences of 40 words, the device of the model."""
    data = ndl.data.batchify(corpus.train, 2)
    results = []
    for options in ({}, {"optimizer": ndl.optim.SGD, "lr": 4.0, "seq_len": 40, "n_epochs": 1}):
        np.random.seed(2)
        model = LanguageModel(4, len(corpus.dictionary), 3)
        results.append(train_ptb(model, data, **options))
    assert results[0] == results[1]
    accuracy, loss = evaluate_ptb(model, data, 40, nn.SoftmaxLoss)
    assert not model.training and 0 <= accuracy <= 1 and loss > 0
    with pytest.raises(UnknownNameError, match="unknown seq_model 'gru'; known: lstm, rnn, transf"):
        LanguageModel(4, 10, 3, seq_model="gru")
