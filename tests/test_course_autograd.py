"""Run programs that access the graph as the course's homework does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import backend_selection, ops
from needle.autograd import TensorOp

NP = backend_selection.BACKEND == "np"
STEP, TOLERANCE = (1e-5, 1e-4) if NP else (1e-2, 5e-2)


def random_tensor(*shape: int, shift: float = 0.0) -> ndl.Tensor:
    return ndl.Tensor(np.random.randn(*shape) + shift)


def numerical_gradients(f: Callable[..., Any], args: list[Any], weights: Any) -> list[Any]:
    """Return central differences, computed by writing into the live buffers."""
    gradients = [np.zeros(arg.shape) for arg in args]
    for arg, gradient in zip(args, gradients):
        for j in range(arg.realize_cached_data().size):
            arg.realize_cached_data().flat[j] += STEP
            above = float((f(*args).numpy() * weights).sum())
            arg.realize_cached_data().flat[j] -= 2 * STEP
            below = float((f(*args).numpy() * weights).sum())
            arg.realize_cached_data().flat[j] += STEP
            gradient.flat[j] = (above - below) / (2 * STEP)
    return gradients


def gradient_check(f: Callable[..., Any], *args: ndl.Tensor) -> None:
    out = f(*args)
    weights = np.random.randn(*out.shape)
    numerical = numerical_gradients(f, list(args), weights)
    computed = out.op.gradient_as_tuple(ndl.Tensor(weights), out)
    if isinstance(computed[0], ndl.TensorTuple):
        computed = computed[0].tuple()
    error = sum(np.linalg.norm(c.numpy() - n) for c, n in zip(computed, numerical, strict=True))
    assert error < TOLERANCE


CHECKS: dict[str, Callable[[], Any]] = {
    "add": lambda: (ndl.add, random_tensor(5, 4), random_tensor(5, 4)),
    "power_scalar": lambda: (
        lambda a: ndl.power_scalar(a, scalar=np.random.randint(1)),
        random_tensor(3, 2),
    ),
    "stack": lambda: (
        lambda *args: ndl.stack(list(args), axis=1),
        *(random_tensor(2, 3) for _ in range(3)),
    ),
    "conv stride": lambda: (
        lambda a, b: ndl.conv(a, b, stride=2, padding=2),
        random_tensor(2, 5, 4, 1),
        random_tensor(3, 3, 1, 2),
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_gradient_as_tuple(name: str) -> None:
    np.random.seed(0)
    f, *args = CHECKS[name]()
    gradient_check(f, *args)


def test_subtraction_is_addition_of_a_negation() -> None:
    a, b = ndl.Tensor([1.0]), ndl.Tensor([2.0])
    assert type((a - b).op) is ndl.EWiseAdd
    assert type((a - b).inputs[1].op) is ndl.Negate
    assert type((a - 2).op) is ndl.AddScalar and (a - 2).op.scalar == -2
    for out, op in [(a * 2, ndl.MulScalar), (a / 2, ndl.DivScalar), (a**2, ndl.PowerScalar)]:
        assert type(out.op) is op


SCALARS = [2, 2.5, True, np.float32(2.5), np.float64(2.5), np.int64(2), np.array([2.5])]


@pytest.mark.parametrize("number", SCALARS, ids=lambda n: type(n).__name__)
def test_operators_with_numbers(number: Any) -> None:
    values = np.array([[1.0, 2.0], [0.5, 4.0]], "float32")
    a = ndl.Tensor(values, dtype="float32")
    n = float(np.asarray(number).reshape(())[()])
    results = {
        "a+n": (a + number, values + n),
        "n+a": (number + a, n + values),
        "a-n": (a - number, values - n),
        "n-a": (number - a, n - values),
        "a*n": (a * number, values * n),
        "n*a": (number * a, n * values),
        "a/n": (a / number, values / n),
        "n/a": (number / a, n / values),
        "a**n": (a**number, values**n),
        "n**a": (number**a, n**values),
    }
    for name, (got, expected) in results.items():
        assert isinstance(got, ndl.Tensor) and got.dtype == "float32", name
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, err_msg=name)


def test_tensor_tuples() -> None:
    a = ndl.Tensor(np.arange(6.0).reshape(3, 2))
    parts = ndl.split(a, axis=0)
    assert isinstance(parts, ndl.TensorTuple) and len(parts) == 3
    assert all(isinstance(part, ndl.Tensor) for part in parts.tuple())
    doubled = parts + parts
    np.testing.assert_array_equal(doubled[1].numpy(), [4, 6])
    np.testing.assert_array_equal(parts[-1].numpy(), [4, 5])
    assert parts.detach().op is None
    with pytest.raises(IndexError, match=r"TensorTuple: index must be in \[0, 3\), got 3"):
        parts[3]
    (parts[0] * doubled[2]).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), [[8, 10], [0, 0], [0, 2]])
    stacked = ndl.Stack(1)(ndl.split(a, axis=1))
    (stacked * stacked).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 * a.numpy())
    made = ndl.make_tuple(a, a)
    assert ndl.tuple_get_item(made, 0) is a


def test_conv_defaults_of_function_and_class() -> None:
    x, w = random_tensor(1, 5, 5, 2), random_tensor(3, 3, 2, 4)
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


def test_whole_numbers_go_through_every_function() -> None:
    """Test integers: in NumPy mode a Tensor of integers is int64, and results equal NumPy's."""
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
