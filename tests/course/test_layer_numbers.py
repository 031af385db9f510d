"""Tests of layers against the formulas in float64, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from tests.course.reference import (
    SINGLE,
    batch_norm_images,
    batch_norm_rows,
    conv_nhwc,
    drawn,
    softmax_loss,
)


def tensor(host: Any, device: Any) -> ndl.Tensor:
    return ndl.Tensor(host, device=device, dtype="float32")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape).astype("float32").astype("float64")


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (1, 4), (4,)])
def test_linear(shape: tuple[int, ...], device: Any) -> None:
    layer = nn.Linear(4, 3, device=device)
    host = normal(*shape)
    x = tensor(host, device)
    weight, bias = (p.numpy().astype("float64") for p in layer.parameters())
    out = layer(x)
    expected = host @ weight + (bias[0] if len(shape) == 1 else bias)
    np.testing.assert_allclose(out.numpy(), expected.reshape(out.shape), **SINGLE)
    assert out.shape == (*shape[:-1], 3)
    (out**2).sum().backward()
    slope = 2 * expected.reshape(out.shape)
    np.testing.assert_allclose(x.grad.numpy(), slope @ weight.T, **SINGLE)
    rows = slope.reshape(-1, 3)
    np.testing.assert_allclose(layer.weight.grad.numpy(), host.reshape(-1, 4).T @ rows, **SINGLE)
    np.testing.assert_allclose(layer.bias.grad.numpy(), rows.sum(0, keepdims=True), **SINGLE)


@pytest.mark.parametrize("labels", ["int64", "uint8", "float32"])
def test_softmax_loss(labels: str, device: Any) -> None:
    logits, ids = normal(6, 4) * 5, np.array([0, 3, 1, 1, 2, 0])
    x = tensor(logits, device)
    loss = nn.SoftmaxLoss()(x, ndl.Tensor(ids.astype(labels), device=device))
    expected, slope = softmax_loss(logits, ids)
    np.testing.assert_allclose(loss.numpy(), expected, **SINGLE)
    assert loss.numpy().size == 1 and float(loss.numpy()) == float(loss.data.numpy())
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), slope, **SINGLE)


def test_batch_norm_rows_and_running_statistics(device: Any) -> None:
    layer = nn.BatchNorm1d(3, device=device)
    mean, var = np.zeros(3), np.ones(3)
    for step in range(3):
        host = normal(5, 3, seed=step) * 2 + 1
        y, batch_mean, batch_var = batch_norm_rows(host)
        np.testing.assert_allclose(layer(tensor(host, device)).numpy(), y, **SINGLE)
        mean, var = 0.9 * mean + 0.1 * batch_mean, 0.9 * var + 0.1 * batch_var
    for running, expected in [(layer.running_mean, mean), (layer.running_var, var)]:
        np.testing.assert_allclose(running.numpy(), expected, **SINGLE)
        assert running.dtype == "float32" and running.is_leaf() and not running.requires_grad
        assert running.shape == (3,)
    layer.eval()
    host = normal(1, 3, seed=9)
    out = layer(tensor(host, device))
    np.testing.assert_allclose(out.numpy(), (host - mean) / np.sqrt(var + 1e-5), **SINGLE)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, **SINGLE)
    assert len(layer.parameters()) == 2


def test_batch_norm_gradients(device: Any) -> None:
    layer = nn.BatchNorm1d(4, eps=0.01, device=device)
    layer.weight.data = tensor([1.0, 2.0, -1.0, 0.5], device)
    layer.bias.data = tensor([0.0, 1.0, 0.0, -1.0], device)
    host, weights = normal(6, 4), normal(6, 4, seed=1)
    x = tensor(host, device)
    (layer(x) * tensor(weights, device)).sum().backward()
    h, _, var = batch_norm_rows(host, 0.01)
    scaled = weights * layer.weight.numpy()
    slope = scaled - scaled.mean(0) - h * (scaled * h).mean(0)
    np.testing.assert_allclose(x.grad.numpy(), slope / np.sqrt(var + 0.01), **SINGLE)
    np.testing.assert_allclose(layer.weight.grad.numpy(), (weights * h).sum(0), **SINGLE)
    np.testing.assert_allclose(layer.bias.grad.numpy(), weights.sum(0), **SINGLE)


def test_batch_norm_of_images(device: Any) -> None:
    layer = nn.BatchNorm2d(3, momentum=0.3, device=device)
    host = normal(2, 3, 4, 5) + 0.5
    y, mean, var = batch_norm_images(host)
    np.testing.assert_allclose(layer(tensor(host, device)).numpy(), y, **SINGLE)
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.3 * mean, **SINGLE)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.7 + 0.3 * var, **SINGLE)


def test_layer_norm(device: Any) -> None:
    layer = nn.LayerNorm1d(5, device=device)
    host = normal(3, 5)
    x = tensor(host, device)
    expected = (host - host.mean(1, keepdims=True)) / np.sqrt(host.var(1, keepdims=True) + 1e-5)
    out = layer(x)
    np.testing.assert_allclose(out.numpy(), expected, **SINGLE)
    (out**4).sum().backward()
    slope = 4 * expected**3
    slope = slope - slope.mean(1, keepdims=True)
    slope -= expected * (4 * expected**3 * expected).mean(1, keepdims=True)
    scale = np.sqrt(host.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(x.grad.numpy(), slope / scale, rtol=1e-4, atol=1e-4)
    assert layer.weight.shape == layer.bias.shape == (5,)


def test_dropout_masks(device: Any) -> None:
    host = normal(6, 7)
    x = tensor(host, device)
    layer = nn.Dropout(0.25)
    np.random.seed(5)
    out = layer(x)
    np.random.seed(5)
    mask = drawn(np.random.rand(6, 7)) <= 0.75
    np.testing.assert_allclose(out.numpy(), host * mask / 0.75, **SINGLE)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), mask / 0.75, **SINGLE)
    layer.eval()
    state = np.random.get_state()[2]
    np.testing.assert_array_equal(layer(x).numpy(), x.numpy())
    assert np.random.get_state()[2] == state
    np.random.seed(6)  # p = 0 drops nothing but still draws
    np.testing.assert_array_equal(nn.Dropout(0.0)(x).numpy(), x.numpy())
    after = np.random.rand()
    np.random.seed(6)
    assert after == np.random.rand(43)[-1]


@pytest.mark.parametrize("kernel, stride", [(1, 1), (3, 1), (3, 2), (5, 2), (7, 4)])
def test_conv_layer(kernel: int, stride: int, device: Any) -> None:
    layer = nn.Conv(3, 4, kernel, stride=stride, device=device)
    host = normal(2, 3, 9, 8)
    out = layer(tensor(host, device))
    weight, bias = (p.numpy().astype("float64") for p in layer.parameters())
    expected = conv_nhwc(host.transpose(0, 2, 3, 1), weight, stride, kernel // 2) + bias
    np.testing.assert_allclose(out.numpy(), expected.transpose(0, 3, 1, 2), **SINGLE)
    x = tensor(host, device)
    weights = normal(*out.shape, seed=3)
    (layer(x) * tensor(weights, device)).sum().backward()
    slope = weights.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(layer.bias.grad.numpy(), slope.sum((0, 1, 2)), **SINGLE)
    probe = normal(*weight.shape, seed=4)  # the loss is linear in the weight: <grad, probe>
    directed = (conv_nhwc(host.transpose(0, 2, 3, 1), probe, stride, kernel // 2) * slope).sum()
    got = (layer.weight.grad.numpy() * probe).sum()
    np.testing.assert_allclose(got, directed, rtol=1e-4, atol=1e-3)
    probe = normal(*host.shape, seed=5)
    directed = (conv_nhwc(probe.transpose(0, 2, 3, 1), weight, stride, kernel // 2) * slope).sum()
    np.testing.assert_allclose((x.grad.numpy() * probe).sum(), directed, rtol=1e-4, atol=1e-3)


def test_containers_and_modes() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by_name = {"a": nn.Linear(2, 2), "b": [nn.Linear(2, 3), (nn.BatchNorm1d(3),)]}
            self.scale = nn.Parameter(ndl.init.ones(1, 3))
            self.tail = nn.Sequential(nn.ReLU(), nn.Residual(nn.Dropout(0.5)), nn.Identity())

        def forward(self, x: ndl.Tensor, *, shift: float = 0.0) -> ndl.Tensor:
            first, (norm,) = self.by_name["b"]
            y = norm(first(self.by_name["a"](x)))
            return self.tail(y * ndl.broadcast_to(self.scale, y.shape) + shift)

    net = Net()
    shapes = [(2, 2), (1, 2), (2, 3), (1, 3), (3,), (3,), (1, 3)]
    assert [p.shape for p in net.parameters()] == shapes
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in net.parameters())
    assert net.training and net.tail.modules[1].fn.training
    net.eval()
    assert not net.tail.modules[1].fn.training and not net.by_name["b"][1][0].training
    x = ndl.init.randn(4, 2)
    np.testing.assert_array_equal(net(x).numpy(), net(x).numpy())
    assert net(x, shift=-100.0).numpy().max() == 0
    net.train()
    assert net.by_name["b"][1][0].training
    assert [type(m) for m in net.tail.modules] == [nn.ReLU, nn.Residual, nn.Identity]
    assert {type(child) for child in net._children()} >= {nn.Linear, nn.BatchNorm1d, nn.Sequential}


def test_residual_and_flatten(device: Any) -> None:
    host = normal(3, 2, 4)
    flat = nn.Flatten()(tensor(host, device))
    np.testing.assert_array_equal(flat.numpy(), host.reshape(3, 8).astype("float32"))
    layer = nn.Residual(nn.Linear(8, 8, device=device))
    weight, bias = (p.numpy() for p in layer.parameters())
    rows = host.reshape(3, 8)
    np.testing.assert_allclose(layer(flat).numpy(), rows @ weight + bias + rows, **SINGLE)
