"""Compare whole programs with formulas: softmax regression, a two-layer net and ResNet9."""

import numpy as np

import needle as ndl
import needle.nn as nn
from tests.course.reference import SINGLE, digits, softmax_loss


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


def test_a_step_by_hand_through_data() -> None:
    start = np.random.RandomState(0).randn(3, 4)
    w = nn.Parameter(ndl.Tensor(start, dtype="float32"))
    (w * w).sum().backward()
    w.data = w.data - 0.1 * w.grad.data
    np.testing.assert_allclose(w.numpy(), start * 0.8, **SINGLE)
    w.data -= np.float64(0.5) * w.grad.data
    np.testing.assert_allclose(w.numpy(), start * -0.2, **SINGLE)
    assert w.is_leaf() and w.requires_grad and w.dtype == "float32"
