"""Tests of whole programs: softmax regression, a two-layer net, a residual MLP, ResNet9."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from needle.backend_selection import BACKEND
from tests.course.reference import (
    SINGLE,
    batch_norm_images,
    conv_nhwc,
    digits,
    nn_epoch_by_hand,
    softmax_loss,
)


def softmax_loss_of_one_hot(Z: ndl.Tensor, one_hot: ndl.Tensor) -> ndl.Tensor:
    rows = ndl.log(ndl.summation(ndl.exp(Z), axes=(1,)))
    return (ndl.summation(rows) - ndl.summation(Z * one_hot)) / Z.shape[0]


def nn_epoch(X: Any, y: Any, W1: Any, W2: Any, lr: float, batch: int) -> tuple[Any, Any]:
    """Train as in the homework: NumPy batches, new weights from realised data."""
    for start in range(0, len(X), batch):
        part = X[start : start + batch]
        x = ndl.Tensor(part)
        one_hot = np.zeros((len(part), W2.shape[1]))
        one_hot[np.arange(len(part)), y[start : start + batch]] = 1
        loss = softmax_loss_of_one_hot(
            ndl.matmul(ndl.relu(ndl.matmul(x, W1)), W2), ndl.Tensor(one_hot)
        )
        loss.backward()
        W1 = ndl.Tensor(W1.realize_cached_data() - lr * W1.grad.realize_cached_data())
        W2 = ndl.Tensor(W2.realize_cached_data() - lr * W2.grad.realize_cached_data())
    return W1, W2


def test_nn_epoch() -> None:
    X, y = digits(210)
    random = np.random.RandomState(0)
    W1 = random.randn(100, 20).astype("float32") / np.sqrt(20)
    W2 = random.randn(20, 10).astype("float32") / np.sqrt(10)
    a, b = ndl.Tensor(W1), ndl.Tensor(W2)
    expected = W1.astype("float64"), W2.astype("float64")
    for _ in range(6):
        a, b = nn_epoch(X, y, a, b, lr=0.2, batch=50)
        expected = nn_epoch_by_hand(X.astype("float64"), y, *expected, lr=0.2, batch=50)
    np.testing.assert_allclose(a.numpy(), expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b.numpy(), expected[1], rtol=1e-4, atol=1e-5)
    scores = ndl.relu(ndl.Tensor(X) @ a) @ b
    assert np.mean(scores.numpy().argmax(axis=1) != y) < 0.5


def test_softmax_regression_with_data_updates() -> None:
    X, y = digits(200)
    theta = ndl.Tensor(np.zeros((100, 10)), dtype="float32")
    expected = np.zeros((100, 10))
    loss_fn = nn.SoftmaxLoss()
    for _ in range(20):
        loss = loss_fn(ndl.Tensor(X) @ theta, ndl.Tensor(y))
        loss.backward()
        theta.data = theta.data - 1.0 * theta.grad.data
        by_hand, slope = softmax_loss(X.astype("float64") @ expected, y.astype(int))
        expected = expected - X.T.astype("float64") @ slope
        np.testing.assert_allclose(loss.numpy(), by_hand, rtol=1e-4)
    np.testing.assert_allclose(theta.numpy(), expected, rtol=1e-3, atol=1e-5)
    assert np.mean((X @ theta.numpy()).argmax(1) == y) > 0.95


def residual_block(dim: int, hidden: int, device: Any) -> nn.Module:
    inner = nn.Sequential(
        nn.Linear(dim, hidden, device=device),
        nn.BatchNorm1d(hidden, device=device),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(hidden, dim, device=device),
        nn.BatchNorm1d(dim, device=device),
    )
    return nn.Sequential(nn.Residual(inner), nn.ReLU())


def epoch(loader: Any, model: nn.Module, device: Any, opt: Any = None) -> tuple[float, float]:
    """Return error rate and mean loss as in the homework; train with an optimiser."""
    np.random.seed(4)
    model.train() if opt else model.eval()
    loss_fn, wrong, total, count = nn.SoftmaxLoss(), 0.0, 0.0, 0
    for X, y in loader:
        X, y = ndl.Tensor(X, device=device), ndl.Tensor(y, device=device)
        out = model(X)
        loss = loss_fn(out, y)
        if opt:
            opt.reset_grad()
            loss.backward()
            opt.step()
        wrong += np.sum(np.argmax(out.numpy(), axis=1) != y.numpy())
        total += loss.data.numpy() * y.shape[0]
        count += y.shape[0]
    return float(wrong / count), float(total / count)


def test_mlp_resnet_learns_and_repeats(device: Any) -> None:
    X, y = digits(300)
    results = []
    for _ in range(2):
        np.random.seed(4)
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(100, 32, device=device),
            nn.ReLU(),
            residual_block(32, 16, device),
            nn.Linear(32, 10, device=device),
        )
        opt = ndl.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.001)
        dataset = ndl.data.NDArrayDataset(X.reshape(-1, 10, 10), y)
        train = ndl.data.DataLoader(dataset, batch_size=50, shuffle=True)
        history = [epoch(train, model, device, opt) for _ in range(4)]
        test = ndl.data.DataLoader(ndl.data.NDArrayDataset(*digits(100, seed=1)), batch_size=30)
        results.append([*history, epoch(test, model, device)])
    assert results[0] == results[1]
    assert results[0][0][1] > 2 * results[0][3][1] and results[0][-1][0] < 0.1


def convbn(x: Any, parameters: Any, stride: int) -> Any:
    """Return convolution, batch norm in training mode and ReLU; uses four parameters."""
    weight, bias, scale, shift = (next(parameters) for _ in range(4))
    y = conv_nhwc(x.transpose(0, 2, 3, 1), weight, stride, weight.shape[0] // 2) + bias
    y, _, _ = batch_norm_images(y.transpose(0, 3, 1, 2))
    return np.maximum(y * scale[:, None, None] + shift[:, None, None], 0)


def resnet9(x: Any, parameters: list[Any]) -> Any:
    """Return the logits of the course's ResNet9 in float64."""
    rest = iter(parameters)
    x = convbn(convbn(x, rest, 4), rest, 2)
    x = convbn(convbn(x, rest, 1), rest, 1) + x
    x = convbn(convbn(x, rest, 2), rest, 2)
    x = convbn(convbn(x, rest, 1), rest, 1) + x
    x = x.reshape(len(x), -1)
    x = np.maximum(x @ next(rest) + next(rest), 0)
    return x @ next(rest) + next(rest)


def test_resnet9_step(device: Any) -> None:
    from apps.models import ResNet9

    np.random.seed(0)
    model = ResNet9(device=device, dtype="float32")
    values = [p.numpy().astype("float64") for p in model.parameters()]
    X, y = np.random.randn(4, 3, 32, 32).astype("float32"), np.array([1, 0, 7, 3])
    inputs = ndl.Tensor(X, device=device)
    labels = ndl.Tensor(y, device=device)
    loss_fn = nn.SoftmaxLoss()
    out = model(inputs)
    expected = resnet9(X.astype("float64"), values)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-3)
    opt = ndl.optim.Adam(model.parameters(), lr=0.001, weight_decay=0.001)
    losses = []
    for _ in range(5):
        opt.reset_grad()
        loss = loss_fn(model(inputs), labels)
        losses.append(float(loss.numpy()))
        loss.backward()
        opt.step()
    np.testing.assert_allclose(losses[0], softmax_loss(expected, y)[0], rtol=1e-3)
    assert losses[-1] < 0.7 * losses[0]
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())
    assert all(p.dtype == "float32" and p.device == device for p in model.parameters())
    model.eval()
    assert model(inputs).shape == (4, 10)


def test_the_gradient_of_the_last_layer_of_resnet9() -> None:
    from apps.models import ResNet9

    np.random.seed(1)
    model = ResNet9(device=ndl.cpu())
    X, y = np.random.randn(2, 3, 32, 32).astype("float32"), np.array([4, 9])
    out = model(ndl.Tensor(X, device=ndl.cpu()))
    logits = out.numpy().astype("float64")
    nn.SoftmaxLoss()(out, ndl.Tensor(y, device=ndl.cpu())).backward()
    slope = softmax_loss(logits, y)[1]
    bias = model.parameters()[-1]
    np.testing.assert_allclose(bias.grad.numpy(), slope.sum(0, keepdims=True), **SINGLE)


@pytest.mark.skipif(BACKEND == "np", reason="one device only")
def test_devices_do_not_mix_by_themselves() -> None:
    assert ndl.Tensor([1.0]).device == ndl.init.ones(1).device == ndl.cpu()
    with pytest.raises(Exception, match="device"):
        ndl.Tensor([1.0], device=ndl.cpu_numpy()) + ndl.init.ones(1)
