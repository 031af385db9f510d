"""Tests of whole programs: softmax regression, a two-layer net and ResNet9, by the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from tests.course.reference import SINGLE, digits, softmax_loss
from tests.nn_oracles import conv2d, normalised


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


def convbn(x: Any, parameters: Any, stride: int) -> Any:
    """Return convolution, batch norm in training mode and ReLU; uses four parameters."""
    weight, bias, scale, shift = (next(parameters) for _ in range(4))
    y = conv2d(x, weight.transpose(3, 2, 0, 1), bias, stride, weight.shape[0] // 2)
    return np.maximum(normalised(y, scale, shift, (0, 2, 3), (1, -1, 1, 1), 1e-5), 0)


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


def test_a_step_by_hand_through_data() -> None:
    start = np.random.RandomState(0).randn(3, 4)
    w = nn.Parameter(ndl.Tensor(start, dtype="float32"))
    (w * w).sum().backward()
    w.data = w.data - 0.1 * w.grad.data
    np.testing.assert_allclose(w.numpy(), start * 0.8, **SINGLE)
    w.data -= np.float64(0.5) * w.grad.data
    np.testing.assert_allclose(w.numpy(), start * -0.2, **SINGLE)
    assert w.is_leaf() and w.requires_grad and w.dtype == "float32"


def two_layer_gradients(x: Any, y: Any, weights: list[Any]) -> tuple[float, list[Any]]:
    """Return loss and gradients of Linear, ReLU, Linear, computed by hand."""
    w1, b1, w2, b2 = weights
    inner = x @ w1 + b1
    hidden = np.maximum(inner, 0)
    loss, slope = softmax_loss(hidden @ w2 + b2, y)
    back = slope @ w2.T * (inner > 0)
    gradients = [x.T @ back, back.sum(0, keepdims=True)]
    return loss, [*gradients, hidden.T @ slope, slope.sum(0, keepdims=True)]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_training_a_model_as_the_homework_does(name: str) -> None:
    """Compare every loss and weight of three epochs with the formulas."""
    np.random.seed(42)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    X = np.random.randn(64, 8)
    y = np.random.randint(4, size=64).astype(np.uint8)
    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.01}
    if name == "sgd":
        options["momentum"] = 0.8
    kind = ndl.optim.SGD if name == "sgd" else ndl.optim.Adam
    optimizer, loss_fn = kind(model.parameters(), **options), nn.SoftmaxLoss()
    weights = [p.numpy().astype("float64") for p in model.parameters()]
    firsts, seconds = ([np.zeros_like(w) for w in weights] for _ in range(2))
    step = 0
    for _ in range(3):
        for X0, y0 in zip(np.array_split(X, 4), np.array_split(y, 4)):
            optimizer.reset_grad()
            inputs = ndl.Tensor(X0, dtype="float32", device=ndl.cpu())
            loss = loss_fn(model(inputs), ndl.Tensor(y0, device=ndl.cpu()))
            loss.backward()
            optimizer.step()
            expected, gradients = two_layer_gradients(X0, y0.astype(int), weights)
            np.testing.assert_allclose(np.array(loss.numpy()), expected, rtol=1e-4)
            step += 1
            for i, gradient in enumerate(gradients):
                total = gradient + 0.01 * weights[i]
                if name == "sgd":
                    firsts[i] = 0.8 * firsts[i] + 0.2 * total
                    weights[i] = weights[i] - 0.05 * firsts[i]
                    continue
                firsts[i] = 0.9 * firsts[i] + 0.1 * total
                seconds[i] = 0.999 * seconds[i] + 0.001 * total**2
                spread = np.sqrt(seconds[i] / (1 - 0.999**step)) + 1e-8
                weights[i] = weights[i] - 0.05 * firsts[i] / (1 - 0.9**step) / spread
    for p, expected in zip(model.parameters(), weights, strict=True):
        np.testing.assert_allclose(p.numpy(), expected, rtol=1e-3, atol=1e-4)
