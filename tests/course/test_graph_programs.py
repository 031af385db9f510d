"""Tests of programs that use the graph: own ops, topological order, second derivatives."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.autograd import (
    Op,
    TensorOp,
    TensorTupleOp,
    Value,
    compute_gradient_of_variables,
    find_topo_sort,
)
from needle.backend_selection import BACKEND

NP = BACKEND == "np"


class Cube(TensorOp):
    """An op written as in the homework."""

    def compute(self, a: Any) -> Any:
        return a * a * a

    def gradient(self, out_grad: ndl.Tensor, node: ndl.Tensor) -> ndl.Tensor:
        return out_grad * 3 * node.inputs[0] * node.inputs[0]


class Blend(TensorOp):
    """An op with options in the constructor and a list as gradient."""

    def __init__(self, share: float) -> None:
        self.share = share

    def compute(self, a: Any, b: Any) -> Any:
        return a * self.share + b * (1 - self.share)

    def gradient(self, out_grad: ndl.Tensor, node: ndl.Tensor) -> list[ndl.Tensor]:
        return [out_grad * self.share, out_grad * (1 - self.share)]


class MinMax(TensorTupleOp):
    """An op with two results in a tuple."""

    def compute(self, a: Any, b: Any) -> tuple[Any, Any]:
        return a + b, a - b

    def gradient(self, out_grad: ndl.TensorTuple, node: Value) -> tuple[ndl.Tensor, ndl.Tensor]:
        first, second = out_grad[0], out_grad[1]
        return first + second, first - second


def test_an_own_op_to_the_third_derivative() -> None:
    x = ndl.Tensor([2.0, -1.0], dtype="float32")
    y = Cube()(x)
    assert isinstance(y.op, Cube) and y.inputs[0] is x and not y.is_leaf() and x.is_leaf()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [12, 3])
    x.grad.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [12, -6])
    x.grad.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [6, 6])


def test_gradient_as_tuple_is_always_a_tuple() -> None:
    a, b = ndl.Tensor([1.0]), ndl.Tensor([2.0])
    for node, count in [(Cube()(a), 1), (Blend(0.25)(a, b), 2), (a * b, 2), (-a, 1)]:
        parts = node.op.gradient_as_tuple(ndl.Tensor([1.0]), node)
        assert type(parts) is tuple and len(parts) == count
        assert all(isinstance(part, ndl.Tensor) for part in parts)
    assert issubclass(Cube, Op) and isinstance(a, Value)


def test_own_tuple_op() -> None:
    a, b = ndl.Tensor([3.0]), ndl.Tensor([5.0])
    out = MinMax()(a, b)
    assert isinstance(out, ndl.TensorTuple) and len(out) == 2
    assert [float(t.numpy()[0]) for t in out.tuple()] == [8, -2]
    (out[0] * 2 + out[1] * 10).sum().backward()
    assert a.grad.numpy() == 12 and b.grad.numpy() == -8
    assert out.detach()[0].op is None


def test_constants_record_nothing() -> None:
    a = ndl.Tensor([1.0], requires_grad=False)
    out = a * 2 + a
    assert out.op is None and not out.requires_grad and len(out.inputs) == 0
    a.requires_grad = True
    assert (a * 2).op is not None
    assert ndl.Tensor([1.0]).requires_grad
    assert not a.detach().requires_grad and a.detach().op is None
    const = ndl.Tensor.make_const(a.realize_cached_data())
    assert not const.requires_grad and const.realize_cached_data() is a.realize_cached_data()
    made = ndl.Tensor.make_from_op(ndl.AddScalar(3.0), [a])
    assert made.inputs[0] is a and float(made.numpy()[0]) == 4


def test_topological_order_is_post_order() -> None:
    a, b = ndl.Tensor([1.0]), ndl.Tensor([2.0])
    c = a * b
    d = c + a
    e = d * c
    assert find_topo_sort([e]) == [a, b, c, d, e]
    assert find_topo_sort([d, c]) == [a, b, c, d]
    long = a
    for _ in range(5000):
        long = long + 1
    assert len(find_topo_sort([long])) == 5001
    long.backward()
    assert a.grad.numpy() == 1


def test_dfs_and_node_sums_as_the_skeleton_has_them() -> None:
    a = ndl.Tensor([2.0])
    b = a * a
    visited: set[Any] = set()
    order: list[Any] = []
    ndl.autograd.topo_sort_dfs(b, visited, order)
    assert order == [a, b]
    total = ndl.autograd.sum_node_list([a, b, a])
    assert float(total.numpy()[0]) == 8 and total.op is not None


def test_compute_gradient_of_variables_by_hand() -> None:
    x = ndl.Tensor(np.array([[1.0, 2.0], [3.0, 4.0]]))
    w = ndl.Tensor(np.array([[0.5], [-1.0]]))
    y = ndl.tanh(x @ w)
    seed = ndl.Tensor(np.array([[1.0], [2.0]]))
    compute_gradient_of_variables(y, seed)
    inner = x.numpy() @ w.numpy()
    slope = seed.numpy() * (1 - np.tanh(inner) ** 2)
    np.testing.assert_allclose(x.grad.numpy(), slope @ w.numpy().T, rtol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), x.numpy().T @ slope, rtol=1e-5)
    assert y.grad.shape == y.shape and w.grad.op is not None
    np.testing.assert_allclose(w.grad.cached_data, w.grad.numpy())
    np.testing.assert_allclose(w.grad.detach().cached_data, w.grad.numpy())


def test_backward_of_a_matrix_seeds_with_ones() -> None:
    x = ndl.Tensor(np.arange(6.0).reshape(2, 3))
    y = x * 3
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 3.0))
    assert y.grad.dtype == x.dtype and y.grad.device == x.device
    (x * 3).backward(ndl.Tensor(np.full((2, 3), 2.0)))
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 6.0))


SECOND: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "x**3": (lambda x: x**3, lambda v: 6 * v),
    "exp(2x)": (lambda x: ndl.exp(x * 2), lambda v: 4 * np.exp(2 * v)),
    "1/x": (lambda x: 1 / x, lambda v: 2 / v**3),
    "x/(x+1)": (lambda x: x / (x + 1), lambda v: -2 / (v + 1) ** 3),
    "x log x": (lambda x: x * ndl.log(x), lambda v: 1 / v),
    "tanh": (ndl.tanh, lambda v: -2 * np.tanh(v) * (1 - np.tanh(v) ** 2)),
    "x**x": (lambda x: x**x, lambda v: v**v * ((np.log(v) + 1) ** 2 + 1 / v)),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    f, second = SECOND[name]
    x = ndl.Tensor(np.array([0.5, 1.5, 2.5]))
    f(x).sum().backward()
    x.grad.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), second(x.numpy()), rtol=2e-4)


def test_a_gradient_penalty_trains() -> None:
    """Use |df/dx|^2 in a loss, with the gradient as an ordinary tensor."""
    x, w = ndl.Tensor(np.array([[1.0, 2.0]])), ndl.Tensor(np.array([[3.0], [-1.0]]))
    out = ((x @ w) ** 2).sum()
    out.backward()
    penalty = (x.grad * x.grad).sum()
    penalty.backward()
    value, weights = x.numpy(), w.numpy()
    inner = (value @ weights).item()
    expected = 8 * inner**2 * weights + 8 * inner * float((weights**2).sum()) * value.T
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-5)


def test_tensors_do_not_pile_up() -> None:
    """Only the parameters and their last gradients survive a training loop."""
    w = ndl.Tensor(np.ones((3, 3)))
    counts = []
    for _ in range(6):
        loss = (ndl.relu(w @ w) * 2).sum()
        loss.backward()
        w.data = w.data - w.grad.data * 0.001
        gc.collect()
        counts.append(ndl.autograd.TENSOR_COUNTER)
    assert counts[2:] == [counts[2]] * 4
    before = ndl.autograd.TENSOR_COUNTER
    extra = ndl.Tensor([1.0])
    assert before + 1 == ndl.autograd.TENSOR_COUNTER
    del extra
    assert before == ndl.autograd.TENSOR_COUNTER


def test_live_buffers_may_be_written(device: Any) -> None:
    """Test that the graph's leaf shares the buffer: a later forward pass uses written values."""
    x = ndl.Tensor(np.ones((2, 3)), device=device, dtype="float32")
    assert x.realize_cached_data().size == 6
    for j in range(6):
        x.realize_cached_data().flat[j] += 0.5 * j
    x.realize_cached_data().flat[0] -= 1
    np.testing.assert_allclose(x.numpy().ravel(), [0, 1.5, 2, 2.5, 3, 3.5])
    y = ndl.transpose(x)
    y.realize_cached_data().flat[1] += 7
    assert x.numpy()[1, 0] == 9.5


def test_a_tensor_of_a_tensor_shares_or_copies() -> None:
    a = ndl.Tensor([1.0, 2.0], dtype="float32")
    same, other = ndl.Tensor(a), ndl.Tensor(a, dtype="float64")
    assert same.realize_cached_data() is a.realize_cached_data() and same.op is None
    assert other.dtype == "float64" and a.dtype == "float32"
    for source in ([1, 2], (1.0, 2.0), 3.0, np.float32(2), np.ones((2, 2), "float32"), [[1], [2]]):
        made = ndl.Tensor(source, dtype="float32")
        np.testing.assert_array_equal(made.numpy(), np.asarray(source, "float32"))
        assert isinstance(made.numpy(), np.ndarray)
    assert isinstance(ndl.Tensor(a.realize_cached_data()).numpy(), np.ndarray)


def test_a_loss_prints_as_a_number() -> None:
    loss = ndl.Tensor([[1.0, 0.5]]).sum()
    assert f"loss {loss:.3f}" == "loss 1.500" and f"{loss}" == "1.5"
    assert float(loss.numpy()) == float(loss) == loss.item() == 1.5
    with pytest.raises(ValueError, match="one element"):
        format(ndl.Tensor([1.0, 2.0]), ".2f")
