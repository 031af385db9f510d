"""Tests of the course's ops as functions and classes: values, gradients, keyword names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import ops
from needle.autograd import TensorOp
from needle.backend_selection import BACKEND
from tests.course.reference import conv_nhwc

NP = BACKEND == "np"
STEP, LIMIT = (1e-5, 1e-6) if NP else (1e-2, 3e-2)


def normal(*shape: int, seed: int = 0, shift: float = 0.0) -> ndl.Tensor:
    return ndl.Tensor(np.random.RandomState(seed).randn(*shape) + shift)


def differences(f: Callable[..., Any], args: list[Any], weights: Any) -> list[Any]:
    """Return central differences of sum(weights * f), written into the live buffers."""
    results = []
    for arg in args:
        slope = np.zeros(arg.shape)
        for j in range(arg.realize_cached_data().size):
            values = []
            for step in (STEP, -2 * STEP):
                arg.realize_cached_data().flat[j] += step
                values.append(float((f(*args).numpy().astype("float64") * weights).sum()))
            arg.realize_cached_data().flat[j] += STEP
            slope.flat[j] = (values[0] - values[1]) / (2 * STEP)
        results.append(slope)
    return results


GRADIENTS: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    "matmul of stacks": lambda: (
        ndl.matmul,
        [normal(2, 3, 4), normal(2, 4, 2, seed=1)],
    ),
    "matmul broadcast left": lambda: (ndl.matmul, [normal(3, 4), normal(2, 2, 4, 2, seed=1)]),
    "matmul broadcast right": lambda: (ndl.matmul, [normal(2, 1, 3, 4), normal(4, 2, seed=1)]),
    "matmul broadcast ones": lambda: (ndl.matmul, [normal(1, 3, 4), normal(2, 4, 2, seed=1)]),
    "power": lambda: (ndl.power, [normal(2, 3, shift=5), normal(2, 3, seed=1)]),
    "power_scalar -1.5": lambda: (
        lambda a: ndl.power_scalar(a, scalar=-1.5),
        [normal(2, 3, shift=5)],
    ),
    "divide": lambda: (ndl.divide, [normal(2, 3), normal(2, 3, seed=1, shift=5)]),
    "summation middle": lambda: (lambda a: ndl.summation(a, axes=1), [normal(2, 3, 2)]),
    "summation two": lambda: (lambda a: ndl.summation(a, axes=(0, 2)), [normal(2, 3, 2)]),
    "summation negative": lambda: (lambda a: ndl.summation(a, axes=(-1,)), [normal(2, 3)]),
    "broadcast_to": lambda: (lambda a: ndl.broadcast_to(a, shape=(2, 3, 4)), [normal(3, 1)]),
    "transpose": lambda: (lambda a: ndl.transpose(a, axes=(0, -1)), [normal(2, 3, 2)]),
    "logsumexp": lambda: (lambda a: ndl.logsumexp(a, axes=(0, 2)), [normal(2, 3, 2)]),
    "logsumexp all": lambda: (ndl.logsumexp, [normal(2, 3)]),
    "logsoftmax": lambda: (ndl.logsoftmax, [normal(3, 4)]),
    "stack": lambda: (
        lambda *a: ndl.stack(list(a), axis=2),
        [normal(2, 3), normal(2, 3, seed=1)],
    ),
    "split": lambda: (lambda a: ndl.split(a, axis=1)[1], [normal(2, 3, 2)]),
    "flip": lambda: (lambda a: ndl.flip(a, axes=(0, 2)), [normal(2, 3, 2)]),
    "dilate": lambda: (lambda a: ndl.dilate(a, axes=(0, 1), dilation=2), [normal(2, 3)]),
    "undilate": lambda: (lambda a: ndl.undilate(a, axes=(1,), dilation=1), [normal(2, 4)]),
    "conv": lambda: (ndl.conv, [normal(1, 4, 4, 2), normal(3, 3, 2, 2, seed=1)]),
    "conv stride": lambda: (
        lambda a, b: ndl.conv(a, b, stride=2, padding=2),
        [normal(2, 5, 4, 1), normal(3, 3, 1, 2, seed=1)],
    ),
    "conv stride leaves rest": lambda: (
        lambda a, b: ndl.conv(a, b, stride=3, padding=0),
        [normal(1, 6, 7, 2), normal(2, 2, 2, 1, seed=1)],
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_against_differences(name: str) -> None:
    f, args = GRADIENTS[name]()
    out = f(*args)
    weights = np.random.RandomState(5).randn(*out.shape)
    expected = differences(f, args, weights)
    out = f(*args)
    (out * ndl.Tensor(weights, dtype=out.dtype)).sum().backward()
    for arg, slope in zip(args, expected, strict=True):
        assert arg.grad.shape == arg.shape and arg.grad.dtype == arg.dtype
        np.testing.assert_allclose(arg.grad.numpy(), slope, atol=LIMIT, rtol=LIMIT)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_conv_values(kernel: int, stride: int, device: Any) -> None:
    random = np.random.RandomState(kernel)
    for padding in sorted({0, kernel // 2, kernel - 1}):
        x, w = random.randn(2, 8, 9, 3), random.randn(kernel, kernel, 3, 4)
        place = {"device": device, "dtype": "float32"}
        out = ndl.conv(
            ndl.Tensor(x, **place), ndl.Tensor(w, **place), stride=stride, padding=padding
        )
        expected = conv_nhwc(x, w, stride, padding)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_conv_defaults_of_function_and_class() -> None:
    x, w = normal(1, 5, 5, 2), normal(3, 3, 2, 4)
    assert ndl.conv(x, w).shape == (1, 5, 5, 4)
    assert ops.Conv()(x, w).shape == (1, 3, 3, 4)
    assert ops.Conv(stride=2, padding=1)(x, w).shape == (1, 3, 3, 4)
    assert ndl.conv(x, w, padding=1, stride=2).shape == (1, 3, 3, 4)


def test_classes_are_called_as_functions() -> None:
    a = np.array([[1.0, 2.0], [3.0, 5.0]])
    cases: list[tuple[Any, Any]] = [
        (ops.EWiseAdd(), a + a),
        (ops.EWiseMul(), a * a),
        (ops.EWiseDiv(), a / a),
        (ops.EWisePow(), a**a),
        (ops.MatMul(), a @ a),
        (ops.AddScalar(2), a + 2),
        (ops.MulScalar(3), a * 3),
        (ops.DivScalar(4), a / 4),
        (ops.PowerScalar(2), a**2),
        (ops.Summation((0,)), a.sum(0)),
        (ops.BroadcastTo((3, 2, 2)), np.broadcast_to(a, (3, 2, 2))),
        (ops.Reshape((4,)), a.reshape(4)),
        (ops.Transpose(), a.T),
        (ops.Negate(), -a),
        (ops.Log(), np.log(a)),
        (ops.Exp(), np.exp(a)),
        (ops.ReLU(), np.maximum(a, 0)),
        (ops.Tanh(), np.tanh(a)),
        (ops.LogSumExp(axes=(1,)), np.log(np.exp(a).sum(1))),
        (ops.LogSoftmax(), a - np.log(np.exp(a).sum(1, keepdims=True))),
        (ops.Flip((1,)), a[:, ::-1]),
        (ops.Dilate((0,), 1), np.array([a[0], 0 * a[0], a[1], 0 * a[0]])),
        (ops.UnDilate((0,), 1), a[::2]),
    ]
    for made, expected in cases:
        tensors = [ndl.Tensor(a)] * (2 if type(made).__name__[:2] in ("EW", "Ma") else 1)
        out = made(*tensors)
        assert isinstance(out, ndl.Tensor) and isinstance(out.op, TensorOp)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, err_msg=repr(made))


def test_tuple_ops() -> None:
    x = ndl.Tensor([1.0, 2.0])
    pair = ndl.fused_add_scalars(x, 1, 2)
    assert isinstance(pair, ndl.TensorTuple) and len(pair) == 2
    assert isinstance(pair.op, ops.FusedAddScalars) and pair.inputs[0] is x
    np.testing.assert_array_equal(pair[0].numpy(), [2, 3])
    np.testing.assert_array_equal(pair[1].numpy(), [3, 4])
    (pair[0] * pair[1]).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [5, 7])
    pair[1].sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1, 1])
    y = ndl.Tensor([5.0, 6.0])
    both = ndl.make_tuple(x, y)
    assert ndl.tuple_get_item(both, 1) is y and both[0] is x
    total = both + both
    np.testing.assert_array_equal(total[1].numpy(), [10, 12])
    again = ndl.stack(ndl.split(ndl.stack([x, y], 1), 1), 0)
    np.testing.assert_array_equal(again.numpy(), [[1, 2], [5, 6]])
    again.sum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), [1, 1])


def test_huge_inputs_of_the_softmax_family(device: Any) -> None:
    host = np.array([[1e10, 1e9, -1e10], [3.45e5, 3.45e5 - 1, 0], [-1e10, -1e10, -1e10]])
    a = ndl.Tensor(host, device=device, dtype="float32")
    small = a.numpy().astype("float64")
    top = small.max(1)
    expected = top + np.log(np.exp(small - top[:, None]).sum(1))
    np.testing.assert_allclose(ndl.logsumexp(a, axes=(1,)).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(ndl.logsumexp(a).numpy(), 1e10, rtol=1e-6)
    shifted = small - expected[:, None]
    np.testing.assert_allclose(ndl.logsoftmax(a).numpy(), shifted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scalar", [np.random.RandomState(0).randn(1), np.float64(-1.5), 0.5, 3])
def test_scalars_of_every_kind(scalar: Any) -> None:
    a = ndl.Tensor(np.array([[0.5, 2.0, 3.0]]))
    value = float(np.asarray(scalar).reshape(()))
    for out, expected in [
        (ndl.add_scalar(a, scalar=scalar), a.numpy() + value),
        (ndl.mul_scalar(a, scalar=scalar), a.numpy() * value),
        (ndl.divide_scalar(a, scalar=scalar), a.numpy() / value),
        (ndl.power_scalar(a, scalar=scalar), a.numpy() ** value),
    ]:
        assert out.dtype == a.dtype and out.shape == (1, 3)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)


def test_power_broadcasts_and_has_a_gradient_in_the_exponent() -> None:
    a, b = ndl.Tensor(np.array([[1.0, 2.0, 3.0]])), ndl.Tensor(np.array([2.0, 3.0, -1.0]))
    out = ndl.power(a, b)
    out.backward(ndl.Tensor(np.array([[1.0, 2.0, 4.0]])))
    weights = np.array([1.0, 2.0, 4.0])
    x, y = a.numpy()[0], b.numpy()
    np.testing.assert_allclose(a.grad.numpy(), [weights * y * x ** (y - 1)], rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), weights * x**y * np.log(x), rtol=1e-5)


def test_relu_at_zero_and_below() -> None:
    x = ndl.Tensor([-1.0, 0.0, 2.0])
    ndl.relu(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 1])


def test_whole_numbers_go_through_every_function() -> None:
    """Test ints: in NumPy mode a Tensor of ints is int64, and results are NumPy's."""
    host = np.array([[1, 2, 3], [4, 5, 6]])
    for f, expected in [
        (ndl.exp, np.exp(host)),
        (ndl.log, np.log(host)),
        (ndl.tanh, np.tanh(host)),
        (ndl.logsumexp, np.log(np.exp(host).sum())),
        (ndl.logsoftmax, host - np.log(np.exp(host).sum(1, keepdims=True))),
        (lambda a: a / 4, host / 4),
        (lambda a: a**-1.5, host**-1.5),
        (lambda a: ndl.summation(a, axes=(0,)), host.sum(0)),
        (lambda a: a @ ndl.transpose(a), host @ host.T),
    ]:
        a = ndl.Tensor(host)
        out = f(a)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)
        out.sum().backward()
        assert a.grad.shape == (2, 3)


def test_dilate_beyond_the_axes_and_by_nothing() -> None:
    a = ndl.Tensor(np.arange(1.0, 5).reshape(2, 2))
    np.testing.assert_array_equal(ndl.dilate(a, axes=(1, 2, 3), dilation=0).numpy(), a.numpy())
    wide = ndl.dilate(a, dilation=1, axes=(1, 2))
    np.testing.assert_array_equal(wide.numpy(), [[1, 0, 2, 0], [3, 0, 4, 0]])
    np.testing.assert_array_equal(ndl.undilate(wide, dilation=1, axes=(1,)).numpy(), a.numpy())
