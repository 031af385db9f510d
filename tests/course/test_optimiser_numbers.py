"""Tests of SGD and Adam by exact numbers, and of what a step must not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from tests.course.reference import SINGLE, adam, dampened_sgd, softmax_loss

RANDOM = np.random.RandomState(0)
START = RANDOM.randn(3, 4).astype("float32").astype("float64")
GRADIENTS = [RANDOM.randn(3, 4).astype("float32").astype("float64") for _ in range(6)]


def parameter(device: Any) -> nn.Parameter:
    return nn.Parameter(ndl.Tensor(START, device=device, dtype="float32"))


def run(optimizer: ndl.optim.Optimizer, p: Any) -> Any:
    for gradient in GRADIENTS:
        p.grad = ndl.Tensor(gradient, device=p.device, dtype="float32")
        optimizer.step()
    assert p.dtype == "float32"
    return p.numpy()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_sgd(momentum: float, weight_decay: float, device: Any) -> None:
    p = parameter(device)
    got = run(ndl.optim.SGD([p], lr=0.1, momentum=momentum, weight_decay=weight_decay), p)
    np.testing.assert_allclose(
        got, dampened_sgd(START, GRADIENTS, 0.1, momentum, weight_decay), **SINGLE
    )


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.8)])
def test_adam(betas: tuple[float, float], weight_decay: float, device: Any) -> None:
    p = parameter(device)
    optimizer = ndl.optim.Adam(
        [p], lr=0.05, beta1=betas[0], beta2=betas[1], weight_decay=weight_decay
    )
    expected = adam(START, GRADIENTS, 0.05, *betas, weight_decay=weight_decay)
    np.testing.assert_allclose(run(optimizer, p), expected, **SINGLE)


def test_adams_eps_is_outside_the_root() -> None:
    p = parameter(ndl.cpu())
    got = run(ndl.optim.Adam([p], lr=0.1, eps=0.5), p)
    np.testing.assert_allclose(got, adam(START, GRADIENTS, 0.1, eps=0.5), **SINGLE)


@pytest.mark.parametrize("kind", [ndl.optim.SGD, ndl.optim.Adam])
def test_what_a_step_leaves_alone(kind: Any, device: Any) -> None:
    p, unused = parameter(device), parameter(device)
    optimizer = kind([p, unused], weight_decay=np.float64(0.1), lr=np.float64(0.1))
    assert optimizer.params[0] is p and len(optimizer.params) == 2
    p.grad = ndl.Tensor(GRADIENTS[0], device=device, dtype="float32")
    gradient, before = p.grad, p.grad.numpy().copy()
    old = p.data
    optimizer.step()
    assert p.grad is gradient
    np.testing.assert_array_equal(p.grad.numpy(), before)
    np.testing.assert_array_equal(old.numpy(), START.astype("float32"))
    np.testing.assert_array_equal(unused.numpy(), START.astype("float32"))
    assert unused.grad is None and p.is_leaf() and p.dtype == "float32"
    optimizer.reset_grad()
    assert p.grad is None
    optimizer.step()


def test_a_step_by_hand_through_data() -> None:
    w = nn.Parameter(ndl.Tensor(START, dtype="float32"))
    (w * w).sum().backward()
    w.data = w.data - 0.1 * w.grad.data
    np.testing.assert_allclose(w.numpy(), START * 0.8, **SINGLE)
    w.data -= np.float64(0.5) * w.grad.data
    np.testing.assert_allclose(w.numpy(), START * -0.2, **SINGLE)
    assert w.is_leaf() and w.requires_grad and w.dtype == "float32"


def test_clip_grad_norm(device: Any) -> None:
    a, b = parameter(device), parameter(device)
    optimizer = ndl.optim.SGD([a, b])
    for p, gradient in zip((a, b), GRADIENTS):
        p.grad = ndl.Tensor(gradient, device=device, dtype="float32")
    total = np.sqrt((GRADIENTS[0] ** 2).sum() + (GRADIENTS[1] ** 2).sum())
    optimizer.clip_grad_norm(max_norm=0.25)
    np.testing.assert_allclose(a.grad.numpy(), GRADIENTS[0] * 0.25 / total, rtol=1e-4)
    np.testing.assert_allclose(b.grad.numpy(), GRADIENTS[1] * 0.25 / total, rtol=1e-4)
    small = a.grad.numpy()
    optimizer.clip_grad_norm()
    np.testing.assert_allclose(a.grad.numpy(), small, rtol=1e-4)


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
