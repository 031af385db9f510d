"""Test programs that use the graph: own ops, topological order, second derivatives."""

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


class SumAndDifference(MinMax):
    """An op with two results in a list."""

    def compute(self, a: Any, b: Any) -> Any:
        return [a + b, a - b]


@pytest.mark.parametrize("lazy", [False, True])
def test_own_tuple_op_may_return_a_list(lazy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndl.autograd, "LAZY_MODE", lazy)
    a, b = ndl.Tensor([3.0]), ndl.Tensor([5.0])
    out = SumAndDifference()(a, b)
    ndl.Tensor([1.0]).realize_cached_data()[0] = 7.0  # any write into an array
    (out[0] * 2 + out[1] * 10).sum().backward()
    assert a.grad.numpy() == 12 and b.grad.numpy() == -8
    assert isinstance(out.realize_cached_data(), tuple)


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


def test_live_buffers_may_be_written(device: Any) -> None:
    """Test that a leaf shares its array's buffer: a later forward pass uses new values in it."""
    x = ndl.Tensor(np.ones((2, 3)), device=device, dtype="float32")
    assert x.realize_cached_data().size == 6
    for j in range(6):
        x.realize_cached_data().flat[j] += 0.5 * j
    x.realize_cached_data().flat[0] -= 1
    np.testing.assert_allclose(x.numpy().ravel(), [0, 1.5, 2, 2.5, 3, 3.5])
    y = ndl.transpose(x)
    y.realize_cached_data().flat[1] += 7
    assert x.numpy()[1, 0] == 9.5
    x.realize_cached_data().flat[1] += 90
    views = [x.reshape((3, 2)), x.transpose(), x.broadcast_to((4, 2, 3)), x.detach(), x.data]
    assert [float(v.numpy().max()) for v in views] == [91.5] * 5


def test_a_loss_prints_as_a_number() -> None:
    loss = ndl.Tensor([[1.0, 0.5]]).sum()
    assert f"loss {loss:.3f}" == "loss 1.500" and f"{loss}" == "1.5"
    assert float(loss.numpy()) == float(loss) == loss.item() == 1.5
    with pytest.raises(ValueError, match="one element"):
        format(ndl.Tensor([1.0, 2.0]), ".2f")
