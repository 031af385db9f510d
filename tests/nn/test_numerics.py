"""Test nn ops beyond the op table: huge inputs, NaN, ties, layouts."""

import numpy as np
import pytest

import needle as ndl
from needle import nn
from tests.nn_devices import NUMPY_MODE, close, tensor


def test_the_second_derivative_of_max_pool_follows_its_choice(device):
    """d/dc of the gradient of sum(max_pool(x) * c) selects the same elements."""
    x = np.array([1.0, 5.0, 5.0, 2.0, np.nan, 7.0, np.nan, 0.0]).reshape(1, 1, 2, 4)
    v = np.arange(1.0, 9.0).reshape(1, 1, 2, 4)
    a, c = tensor(x, device, "float64"), tensor(np.ones((1, 1, 1, 2)), device, "float64")
    (ndl.max_pool2d(a, 2) * c).backward(retain_graph=True)
    close(a.grad, [[[[0, 0, 0, 0], [1, 0, 1, 0]]]])
    (a.grad * tensor(v, device, "float64")).sum().backward()
    close(c.grad, [[[[5.0, 7.0]]]])


@pytest.mark.skipif(NUMPY_MODE, reason="needle's arrays keep the layout")
def test_channels_last_flows_through_a_block(device):
    """The result of a convolution is channels last in memory; the next layers need no copy."""
    block = nn.Sequential(
        nn.Conv(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv(4, 5, 3)
    ).to(device)
    y = ndl.init.randn(2, 3, 8, 8, device=device)
    for module in block:
        y = module(y)
        _, c, h, w = y.shape
        assert y.realize_cached_data().strides == (c * h * w, 1, c * w, c), module
    block.eval()
    evaluated = block[1](block[0](ndl.init.randn(2, 3, 8, 8, device=device)))
    assert evaluated.realize_cached_data().strides == (4 * 64, 1, 4 * 8, 4)


def test_images_that_are_constants_cost_no_input_gradient(device, monkeypatch):
    calls = []
    compute = ndl.ops.convolution.Conv2dInputGrad.compute
    monkeypatch.setattr(
        ndl.ops.convolution.Conv2dInputGrad,
        "compute",
        lambda *args: calls.append(1) or compute(*args),
    )
    model = nn.Sequential(nn.Conv(1, 2, 3, device=device), nn.Conv(2, 1, 3, device=device))
    for requires_grad, expected in ((False, 1), (True, 2)):
        x = ndl.init.randn(1, 1, 4, 4, device=device, requires_grad=requires_grad)
        calls.clear()
        model(x).sum().backward()
        assert len(calls) == expected
