"""Test autograd: the reverse pass, which values are kept or freed, hooks, accumulated gradients."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import Tensor, autograd
from needle.autograd import TensorOp, refs
from needle.autograd.discarding import Discarded
from needle.errors import GraphError, ShapeError
from needle.testing import check_gradients

MODES = pytest.mark.parametrize("retain_graph", [None, False, True])


def leaf(values: Any, **options: Any) -> Tensor:
    return Tensor(np.array(values, dtype="float64"), dtype="float64", **options)


# ---- the reverse pass ------------------------------------------------------------------------


@MODES
def test_deep_graphs(retain_graph: bool | None) -> None:
    a = h = leaf([1.0, 2.0])
    for _ in range(10_000):
        h = h + a
    h.backward(retain_graph=retain_graph)
    assert np.array_equal(a.grad.numpy(), [10_001, 10_001])


def test_backward_of_a_constant() -> None:
    x, c = leaf([1.0]), leaf([1.0], requires_grad=False)
    with pytest.warns(UserWarning, match="backward: the tensor is a constant"):
        c.backward()
    with ndl.no_grad():
        y = x * c
    with pytest.warns(UserWarning, match="backward: the tensor is a constant"):
        y.backward(retain_graph=False, accumulate=True)
    assert x.grad is None and c.grad is None and y.grad is None


@pytest.mark.parametrize("retain_graph", [None, True])
@pytest.mark.parametrize("assign", [False, True])
def test_constants_that_operations_made_have_gradients(
    retain_graph: bool | None, assign: bool
) -> None:
    rng = np.random.default_rng(0)
    data, first, second = rng.normal(size=(5, 4)), rng.normal(size=(4, 3)), rng.normal(size=(3, 2))
    v, w = leaf(first).detach(), leaf(second) * 1
    w = w.detach()
    for _ in range(3):
        hidden = np.tanh(data @ first)
        w_grad = hidden.T @ (2 * hidden @ second)
        v_grad = data.T @ ((2 * hidden @ second @ second.T) * (1 - hidden**2))
        x = leaf(data)
        y = x.matmul(v).tanh().matmul(w)
        (y * y).sum().backward(retain_graph=retain_graph)
        np.testing.assert_allclose(v.grad.numpy(), v_grad)
        if assign:
            v.data = v - 0.01 * v.grad
        else:
            v = (v - 0.01 * v.grad).detach()
            v.grad = leaf([0.0])
        np.testing.assert_allclose(w.grad.numpy(), w_grad)
        w = w - 0.01 * w.grad
        first, second = first - 0.01 * v_grad, second - 0.01 * w_grad


def test_a_gradient_that_was_not_kept_is_an_error() -> None:
    def step(**options: Any) -> tuple[Tensor, Tensor]:
        w, x = leaf([2.0]).detach(), leaf([3.0])
        (w * x).sum().backward(**options)
        return w, x

    for options in [{"retain_graph": False}, {"accumulate": True}]:
        with pytest.raises(GraphError, match="requires_grad=True"):
            _ = step(**options)[0].grad
    w, x = step()
    x.data = leaf([4.0])
    np.testing.assert_array_equal(w.grad.numpy(), [3.0])
    w.grad = None
    assert w.grad is None
    frozen = leaf([1.0], requires_grad=False)
    (frozen * x).sum().backward()
    assert frozen.grad is None


def test_a_chain_of_updates_without_detach_is_walked() -> None:
    w, x = leaf(np.ones(5000)), leaf([2.0])
    first = w
    with pytest.warns(UserWarning, match="detach"):
        for _ in range(300):
            (w * x).sum().backward()
            w = w * 0.5 - 0.01 * w.grad.detach()
    np.testing.assert_allclose(first.grad.numpy(), np.full(5000, 2 * 0.5**299))
    before_last = w.inputs[0].inputs[0].inputs[0].inputs[0]
    if refs.TELL:
        assert type(before_last.cached_data) is Discarded  # the graph keeps no weights alive


def test_a_list_may_hold_every_value_of_a_long_chain() -> None:
    value = first = leaf(np.ones(5000))
    kept = []
    for _ in range(1000):
        value = value * 0.5 + 1.0
        kept.append(value)
    value.sum().backward()
    assert first.grad.numpy().max() == 0.5**1000


def test_a_chain_of_recomputed_steps_is_explained() -> None:
    state, v, steps = leaf([1.0]), leaf([0.5]), 0
    with pytest.warns(UserWarning, match="detach"), pytest.raises(GraphError, match="detach"):
        while steps < 400:
            state = (state * v).tanh()
            (state * state).sum().backward()
            steps += 1
    assert steps > 100


# ---- retained and freed values -----------------------------------------------------------------


def buffers_alive(retain_graph: bool | None) -> list[bool]:
    """Return True if intermediate values without other references survive a backward."""
    a = leaf(np.ones(5))
    h1 = a.exp()
    h2 = h1 * 2
    y = (h2 * h1).sum()
    references = [weakref.ref(h1), weakref.ref(h2)]
    del h1, h2
    y.backward(retain_graph=retain_graph)
    assert a.grad is not None
    return [reference() is not None for reference in references]


def test_backward_frees_intermediates_without_the_collector() -> None:
    gc.disable()
    try:
        assert buffers_alive(None) == [False, False]
        assert buffers_alive(False) == [False, False]
        assert buffers_alive(True) == [True, True]
    finally:
        gc.enable()
        gc.collect()


@pytest.mark.parametrize("retain_graph", [None, False])
def test_training_leaks_no_tensor(retain_graph: bool | None) -> None:
    """Plain tensors are replaced at every step, as in course programs, with the collector off."""
    w = leaf(np.ones((3, 2)))
    counts = []
    gc.disable()
    try:
        for _ in range(5):
            x = leaf(np.ones((4, 3)))
            loss = ((x @ w).tanh() * 2).sum()
            loss.backward(retain_graph=retain_graph)
            w = Tensor(w.numpy() - 0.1 * w.grad.numpy(), dtype="float64")
            counts.append(autograd.TENSOR_COUNTER)
    finally:
        gc.enable()
    assert counts[1:] == counts[1:2] * 4


def test_second_backward() -> None:
    a = leaf([1.0, 2.0])
    for retain_graph in (None, True):
        y = (a.exp() * a).sum()
        y.backward(retain_graph=retain_graph)
        first = a.grad.numpy()
        y.backward(retain_graph=retain_graph)
        np.testing.assert_allclose(a.grad.numpy(), first)
    y = (a.exp() * a).sum()
    y.backward(retain_graph=False)
    assert a.grad.op is None and not a.grad.requires_grad
    with pytest.raises(GraphError, match="backward: an earlier .* has released this graph"):
        y.backward()


@pytest.mark.parametrize("retain_graph", [None, True])
def test_derivatives_of_derivatives_through_grad(retain_graph: bool | None) -> None:
    a, b = leaf([0.5, -1.0]), leaf([2.0, 3.0])
    x, z = a.numpy(), b.numpy()
    (a.sin() * b * b).sum().backward(retain_graph=retain_graph)
    first = a.grad
    np.testing.assert_allclose(first.numpy(), np.cos(x) * z**2)
    first.sum().backward(retain_graph=retain_graph)
    np.testing.assert_allclose(a.grad.numpy(), -np.sin(x) * z**2)
    np.testing.assert_allclose(b.grad.numpy(), 2 * np.cos(x) * z)
    a.grad.sum().backward(retain_graph=retain_graph)
    np.testing.assert_allclose(a.grad.numpy(), -np.cos(x) * z**2)


def test_gradient_with_respect_to_out_grad() -> None:
    a, seed = leaf([2.0]), leaf([3.0])
    (a * a).backward(seed)
    a.grad.backward()
    assert np.array_equal(seed.grad.numpy(), [4.0])
    assert np.array_equal(a.grad.numpy(), [6.0])


def test_a_derivative_keeps_the_data_of_a_replaced_leaf() -> None:
    a = leaf([2.0])
    (a * a * a).backward()
    a.data = leaf([5.0])
    a.grad.backward()
    assert np.array_equal(a.grad.numpy(), [12.0])


def test_a_released_graph_does_not_depend_on_later_graphs() -> None:
    """As in a GAN, the second loss depends only on an old result of the first network."""
    g, d = leaf([2.0]), leaf([3.0])
    fake = g * g
    (fake * d).backward()
    d.data = leaf([5.0])
    (fake * d).backward()
    assert np.array_equal(g.grad.numpy(), [20.0])


def test_backward_within_no_grad_gives_constants() -> None:
    a = leaf([2.0])
    y = a * a
    with ndl.no_grad():
        y.backward()
    assert a.grad.op is None and np.array_equal(a.grad.numpy(), [4.0])


# ---- hooks -----------------------------------------------------------------------------------


def test_hooks_see_the_complete_gradient_and_may_replace_it() -> None:
    a = leaf([1.0, 2.0])
    h = a * 3
    seen = []
    h.register_hook(lambda g: seen.append(g.numpy().copy()))
    handle = h.register_hook(lambda g: g * 10)
    (h * h + h).sum().backward()
    np.testing.assert_array_equal(seen, [2 * h.numpy() + 1])
    np.testing.assert_array_equal(a.grad.numpy(), 30 * seen[0])
    handle.remove()
    handle.remove()
    (h * h + h).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), 3 * seen[0])


@pytest.mark.parametrize("retain_graph", [None, True])
def test_hooks_take_part_in_second_derivatives(retain_graph: bool | None) -> None:
    """a.grad = 10 * 2h * 2a. The second pass runs the hook of h again: 20h * 2 + 10 * 40a * 2a."""
    a = leaf([1.0, 2.0])
    h = a * a
    h.register_hook(lambda g: g * 10)
    (h * h).sum().backward(retain_graph=retain_graph)
    np.testing.assert_allclose(a.grad.numpy(), 40 * a.numpy() ** 3)
    a.grad.sum().backward(retain_graph=retain_graph)
    np.testing.assert_allclose(a.grad.numpy(), 840 * a.numpy() ** 2)


def test_hook_on_a_constant() -> None:
    with pytest.raises(GraphError, match="register_hook: the tensor must require grad"):
        leaf([1.0], requires_grad=False).register_hook(print)


# ---- needle.grad and check_gradients ---------------------------------------------------------


def test_grad_of_a_tensor_used_twice_and_of_an_unused_one() -> None:
    a = leaf([2.0])
    by_first, by_second = ndl.grad(lambda x, y: x * x * y, (0, 1))(a, a)
    assert (by_first.item(), by_second.item()) == (8.0, 4.0)
    assert ndl.grad(lambda x, y: y * 1)(a, a).item() == 0.0
    assert ndl.grad(lambda x: leaf([1.0], requires_grad=False))(a).item() == 0.0
    with pytest.raises(ShapeError, match=r"grad: the function must return one element, got shape"):
        ndl.grad(lambda x: x)(leaf([1.0, 2.0]))


class WrongGradient(TensorOp):
    def compute(self, a: Any, b: Any) -> Any:
        return a * b * b

    def gradient(self, out_grad: Tensor, node: Tensor) -> Any:
        a, b = node.inputs
        return out_grad * b * b, out_grad * a * b


class WrongSecond(TensorOp):
    def compute(self, a: Any) -> Any:
        return a * a * a

    def gradient(self, out_grad: Tensor, node: Tensor) -> Any:
        return out_grad * (node.inputs[0] * node.inputs[0]).detach() * 3


def test_check_gradients_finds_the_wrong_input_and_order() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3))
    with pytest.raises(AssertionError, match=r"order 1, input 1 of shape \(2, 3\): expected .*got"):
        check_gradients(lambda a, b: WrongGradient()(a, b), x, x + 1)
    check_gradients(lambda a: WrongSecond()(a), x)
    with pytest.raises(AssertionError, match=r"order 2, input 0 of shape"):
        check_gradients(lambda a: WrongSecond()(a), x, order=2)
    check_gradients(lambda a, i: ndl.embedding(a, i), x, np.array([1, 0]), order=3)
    with pytest.raises(AssertionError, match="at least one floating input"):
        check_gradients(lambda i: i, np.array([1]))


def test_check_gradients_names_the_function_and_the_worst_element() -> None:
    mask = np.array([1.0, 0.0, 1.0])

    def square(a: Tensor) -> Tensor:
        return a * (a * mask + (a * (1 - mask)).detach())

    worst = r"of square: order 1(.|\n)*worst element: input\[1\] = 3, expected -?\d.*, got -?\d"
    with pytest.raises(AssertionError, match=worst):
        check_gradients(square, np.array([1.0, 3.0, 5.0]))


# ---- accumulated gradients -------------------------------------------------------------------


@MODES
def test_accumulate_adds_to_the_gradient_of_leaves(retain_graph: bool | None) -> None:
    x, w = leaf([1, 2, 3]), leaf([4, 5, 6])
    expected = np.zeros(3), np.zeros(3)
    for factor in (1.0, 2.0, 5.0):
        product = x * w
        (product * product * factor).sum().backward(retain_graph=retain_graph, accumulate=True)
        gradient = 2 * factor * x.numpy() * w.numpy()
        expected = expected[0] + gradient * w.numpy(), expected[1] + gradient * x.numpy()
        np.testing.assert_allclose(x.grad.numpy(), expected[0], rtol=1e-12)
        np.testing.assert_allclose(w.grad.numpy(), expected[1], rtol=1e-12)
        np.testing.assert_allclose(product.grad.numpy(), gradient, rtol=1e-12)
        assert x.grad.is_leaf() and not x.grad.requires_grad
    (x * w).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), w.numpy())  # backward overwrites .grad


def test_accumulate_keeps_the_earlier_sum_as_it_was() -> None:
    x = leaf([1, 2])
    (x * 3).sum().backward(accumulate=True)
    first, held = x.grad, x.grad.numpy()
    (x * 4).sum().backward(accumulate=True)
    np.testing.assert_array_equal(first.numpy(), held)
    np.testing.assert_array_equal(x.grad.numpy(), [7, 7])


def test_accumulate_of_one_graph_twice_and_of_a_leaf_itself() -> None:
    x = leaf([2.0])
    y = (x * x).sum()
    for count in (1, 2, 3):
        y.backward(accumulate=True)
        assert x.grad.numpy() == 4 * count
        x.backward([0.0], accumulate=True)
        x.backward([1.0], accumulate=True)
        x.backward([-1.0], accumulate=True)


def test_accumulate_gives_hooks_the_new_gradient() -> None:
    x, seen = leaf([1.0]), []
    x.register_hook(lambda grad: seen.append(float(grad)))
    for factor in (2, 3):
        (x * factor).sum().backward(accumulate=True)
    assert seen == [2.0, 3.0] and float(x.grad) == 5.0
