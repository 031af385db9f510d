"""Part 2 of the course: gradients of ops, compared with formulas in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toy_graph import Product, tensor

from apps.course.compare import expect, expect_error
from needle import Tensor, accelerated, ops
from needle.errors import ShapeError
from needle.ops.broadcasting import unbroadcast

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 3))
B = RNG.standard_normal((2, 3))
ROW = RNG.standard_normal((1, 3))
G = RNG.standard_normal((2, 3))
"""An out_grad."""


def parts_of(out: Tensor, out_grad: Array) -> tuple[Any, ...]:
    """Return the gradients that the op of ``out`` computes for ``out_grad``."""
    assert out.op is not None
    return out.op.gradient_as_tuple(tensor(out_grad, requires_grad=False), out)


def numerical(f: Any, x: Array, out_grad: Array, step: float = 1e-6) -> Array:
    """Return the gradient of sum(out_grad * f(x)) by central differences."""
    grad = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            ends.append(float((out_grad * f(moved)).sum()))
        grad[place] = (ends[0] - ends[1]) / (2 * step)
    return grad


# ---- unbroadcast ---------------------------------------------------------------------------------


@pytest.mark.exercise("unbroadcast")
@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 1), (1, 1), (), (2, 3)])
def test_repeated_axes_are_summed(shape: tuple[int, ...]) -> None:
    like = np.zeros(shape)
    lead = G.ndim - like.ndim
    axes = (*range(lead), *(lead + i for i, size in enumerate(shape) if size < G.shape[lead + i]))
    expected = G.sum(axes).reshape(shape)
    expect(
        f"a gradient of shape (2, 3) for an operand of shape {shape}",
        unbroadcast(tensor(G), tensor(like)),
        expected,
        given={"grad": G},
    )


@pytest.mark.exercise("unbroadcast")
def test_the_dtype_is_the_operands() -> None:
    like = Tensor(np.zeros(3), dtype="float32")
    expect(
        "the dtype of a float64 gradient for a float32 operand",
        str(unbroadcast(tensor(G), like).dtype),
        "float32",
    )
    same = tensor(G)
    expect("a gradient that fits already", unbroadcast(same, tensor(A)), same)
    expect("the same object comes back", unbroadcast(same, tensor(A)) is same, True)


# ---- products, quotients, powers -----------------------------------------------------------------


@pytest.mark.exercise("multiply-grad")
def test_product() -> None:
    by_a, by_b = parts_of(tensor(A) * tensor(ROW), G)
    given = {"a": A, "b": ROW, "out_grad": G}
    expect(
        "a * b, gradient for a",
        by_a,
        G * ROW,
        given=given,
        mistakes={"the gradients are swapped": G * A},
    )
    expect("a * b, gradient for b", by_b, (G * A).sum(0, keepdims=True), given=given)


@pytest.mark.exercise("multiply-grad")
def test_product_with_a_constant() -> None:
    by_a, by_b = parts_of(tensor(A) * tensor(B, requires_grad=False), G)
    expect("a * constant, gradient for a", by_a, G * B)
    expect("gradient for the constant, which requires none", by_b, None)


@pytest.mark.exercise("divide-grad")
def test_quotient() -> None:
    below = np.array([[2.0, -1.0, 0.5]])
    by_a, by_b = parts_of(tensor(A) / tensor(below), G)
    given = {"a": A, "b": below, "out_grad": G}
    expect("a / b, gradient for a", by_a, G / below, given=given)
    expect(
        "a / b, gradient for b",
        by_b,
        (-G * A / below**2).sum(0, keepdims=True),
        given=given,
        mistakes={
            "d(1/b) = -1/b**2: one division is missing": (-G * A / below).sum(0, keepdims=True)
        },
    )


@pytest.mark.exercise("power-grad")
def test_power_by_a_number() -> None:
    (by_a,) = parts_of(tensor(A) ** 3, G)
    expect("a ** 3, gradient for a", by_a, G * 3 * A**2, given={"a": A, "out_grad": G})
    (by_zero,) = parts_of(tensor([0.0, 2.0]) ** 0, np.ones(2))
    expect("a ** 0, gradient for a, also at a = 0", by_zero, np.zeros(2))


@pytest.mark.exercise("power-grad")
def test_power_by_a_tensor() -> None:
    base, exponent = np.array([[0.5, 2.0, 3.0]]), np.array([[2.0, -1.0, 0.5]])
    given = {"a": base, "b": exponent, "out_grad": 1.0}
    by_a, by_b = parts_of(tensor(base) ** tensor(exponent), np.ones((1, 3)))
    expect("a ** b, gradient for a", by_a, exponent * base ** (exponent - 1), given=given)
    expect("a ** b, gradient for b", by_b, base**exponent * np.log(base), given=given)
    by_a, by_b = parts_of(tensor([0.0]) ** tensor([2.0]), np.ones(1))
    expect("a ** b, gradient for b, at a = 0: the limit", by_b, np.zeros(1))


# ---- functions of one tensor ---------------------------------------------------------------------


@pytest.mark.exercise("curve-grads")
def test_log() -> None:
    a = np.array([0.5, 2.0, 10.0])
    (by_a,) = parts_of(ops.log(tensor(a)), G[0])
    expect("log a, gradient for a", by_a, G[0] / a, given={"a": a, "out_grad": G[0]})


@pytest.mark.exercise("curve-grads")
def test_exp() -> None:
    (by_a,) = parts_of(ops.exp(tensor(A)), G)
    expect("exp a, gradient for a", by_a, G * np.exp(A), given={"a": A, "out_grad": G})


@pytest.mark.exercise("curve-grads")
def test_tanh() -> None:
    (by_a,) = parts_of(ops.tanh(tensor(A)), G)
    mistakes = {
        "1 - tanh(a)**2, not 1 - a**2: node is the result, node.inputs[0] is a": G * (1 - A**2)
    }
    expect(
        "tanh a, gradient for a",
        by_a,
        G * (1 - np.tanh(A) ** 2),
        given={"a": A, "out_grad": G},
        mistakes=mistakes,
    )


@pytest.mark.exercise("relu-grad")
def test_relu() -> None:
    a, weights = np.array([-2.0, 0.0, 3.0, 0.5]), np.array([1.0, 2.0, 3.0, -4.0])
    (by_a,) = parts_of(ops.relu(tensor(a)), weights)
    expect(
        "relu a, gradient for a",
        by_a,
        np.array([0.0, 0.0, 3.0, -4.0]),
        given={"a": a, "out_grad": weights},
        mistakes={"at 0 the gradient is 0": np.array([0.0, 2.0, 3.0, -4.0])},
    )


# ---- reductions ----------------------------------------------------------------------------------


@pytest.mark.exercise("sum-grad")
@pytest.mark.parametrize(
    ("axes", "keepdims"),
    [(None, False), (0, False), (1, False), (1, True), ((0, 2), False), (-1, False)],
)
def test_sum(axes: Any, keepdims: bool) -> None:
    a = RNG.standard_normal((2, 3, 2))
    out = ops.summation(tensor(a), axes, keepdims)
    weights = np.arange(1.0, out.size + 1).reshape(out.shape)
    over = tuple(range(3)) if axes is None else axes
    kept = np.broadcast_to(weights.reshape(a.sum(over, keepdims=True).shape), a.shape)
    (by_a,) = parts_of(out, weights)
    expect(
        f"the sum of shape (2, 3, 2) over axes={axes}, keepdims={keepdims}",
        by_a,
        kept,
        given={"out_grad": weights},
    )


@pytest.mark.exercise("max-grad")
def test_maximum() -> None:
    a = np.array([[1.0, 5.0, 2.0], [7.0, 0.0, 7.0]])
    (by_a,) = parts_of(ops.max(tensor(a), 1), np.array([10.0, 20.0]))
    shared = np.array([[0.0, 10.0, 0.0], [10.0, 0.0, 10.0]])
    expect(
        "max over axis 1, where two are equal",
        by_a,
        shared,
        given={"a": a, "out_grad": np.array([10.0, 20.0])},
        mistakes={
            "equal maxima share: divide by their number": np.array(
                [[0.0, 10.0, 0.0], [20.0, 0.0, 20.0]]
            )
        },
    )
    (by_a,) = parts_of(ops.min(tensor(a), None, True), np.array([[3.0]]))
    expect("min over all axes, kept", by_a, np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))


# ---- matrices, axes, tuples ----------------------------------------------------------------------


@pytest.mark.exercise("matmul-grad")
def test_matrix_product() -> None:
    b = RNG.standard_normal((3, 4))
    weights = RNG.standard_normal((2, 4))
    by_a, by_b = parts_of(tensor(A) @ tensor(b), weights)
    given = {"a": A, "b": b, "out_grad": weights}
    expect("a @ b, gradient for a", by_a, weights @ b.T, given=given)
    expect("a @ b, gradient for b", by_b, A.T @ weights, given=given)


@pytest.mark.exercise("matmul-grad")
def test_matrix_product_with_batch_axes() -> None:
    a, b = RNG.standard_normal((5, 2, 3)), RNG.standard_normal((3, 4))
    weights = RNG.standard_normal((5, 2, 4))
    by_a, by_b = parts_of(tensor(a) @ tensor(b), weights)
    expect("(5, 2, 3) @ (3, 4), gradient for a", by_a, weights @ b.T)
    expect("gradient for b, which all 5 products use", by_b, np.einsum("bij,bik->jk", a, weights))
    _, by_constant = parts_of(tensor(a) @ tensor(b, requires_grad=False), weights)
    expect("gradient for a constant", by_constant, None)


@pytest.mark.exercise("permute-grad")
def test_permutation() -> None:
    a, weights = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((4, 2, 3))
    (by_a,) = parts_of(ops.permute(tensor(a), (2, 0, 1)), weights)
    expect(
        "permute by (2, 0, 1)",
        by_a,
        weights.transpose(1, 2, 0),
        given={"a": "shape (2, 3, 4)", "out_grad": "shape (4, 2, 3)"},
    )
    (by_a,) = parts_of(ops.permute(tensor(a), (0, -1, 1)), weights.transpose(1, 0, 2))
    expect("permute by (0, -1, 1)", by_a, weights.transpose(1, 2, 0))


@pytest.mark.exercise("stack-grad")
def test_split_gives_slices() -> None:
    for axis in (0, 1, -1):
        found = [part.numpy().tolist() for part in ops.split(tensor(A), axis)]
        wanted = [part.tolist() for part in np.moveaxis(A, axis, 0)]
        expect(f"split of a along axis {axis}", found, wanted, given={"a": A})


@pytest.mark.exercise("stack-grad")
def test_stack_gives_its_gradient_back_in_slices() -> None:
    out = ops.stack([tensor(A), tensor(B), tensor(A)], 1)
    weights = RNG.standard_normal((2, 3, 3))
    for i, part in enumerate(parts_of(out, weights)):
        expect(f"stack of three along axis 1, by number {i}", part, weights[:, i])


@pytest.mark.exercise("dilate")
def test_dilation() -> None:
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    given = {"a": a}
    expect(
        "dilate(a, axes=(0,), dilation=1)",
        ops.dilate(tensor(a), (0,), 1),
        np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]),
        given=given,
    )
    both = np.zeros((6, 6))
    both[::3, ::3] = a
    expect(
        "dilate(a, axes=(0, 1), dilation=2)", ops.dilate(tensor(a), (0, 1), 2), both, given=given
    )
    expect("axes that a does not have are ignored", ops.dilate(tensor(a), (7,), 1), a, given=given)
    out = ops.dilate(tensor(a), (1,), 1)
    (by_a,) = parts_of(out, np.arange(8.0).reshape(2, 4))
    expect("its gradient, by undilate", by_a, np.array([[0.0, 2.0], [4.0, 6.0]]))


# ---- the softmax family --------------------------------------------------------------------------

LARGE = np.array([[1e4, 1e4 + 1, 1e4 - 1], [-1e4, 0.0, 1.0]])


def softmax_of(a: Array, axis: int) -> Array:
    e = np.exp(a - a.max(axis, keepdims=True))
    result: Array = e / e.sum(axis, keepdims=True)
    return result


@pytest.mark.exercise("softmax")
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_any_size(axis: int) -> None:
    for name, a in (("a", A), ("large a", LARGE)):
        expect(
            f"softmax of {name} along axis {axis}",
            ops.softmax(tensor(a), axis),
            softmax_of(a, axis),
            given={name: a},
        )
    expect("softmax of nothing", ops.softmax(tensor(np.zeros((2, 0))), 1), np.zeros((2, 0)))


@pytest.mark.exercise("softmax")
def test_log_softmax_of_any_size() -> None:
    shifted = LARGE - LARGE.max(1, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    expect(
        "logsoftmax",
        ops.logsoftmax(tensor(LARGE)),
        expected,
        given={"a": LARGE},
        mistakes={
            "the logarithm of softmax: log 0 where a probability is too small": np.where(
                softmax_of(LARGE, 1) > 0, expected, -np.inf
            )
        },
    )


@pytest.mark.exercise("softmax-grad")
def test_softmax_gradients() -> None:
    for axis in (0, 1):
        (by_a,) = parts_of(ops.softmax(tensor(A), axis), G)
        s = softmax_of(A, axis)
        mistakes = {"s (1 - s) is only the diagonal of the Jacobian": G * s * (1 - s)}
        expect(
            f"softmax along axis {axis}, gradient for a",
            by_a,
            numerical(lambda x: softmax_of(x, axis), A, G),  # noqa: B023
            given={"a": A, "out_grad": G},
            mistakes=mistakes,
            rtol=1e-5,
            atol=1e-8,
        )
    (by_a,) = parts_of(ops.logsoftmax(tensor(A)), G)
    expect(
        "logsoftmax, gradient for a",
        by_a,
        numerical(lambda x: np.log(softmax_of(x, 1)), A, G),
        given={"a": A, "out_grad": G},
        rtol=1e-5,
        atol=1e-8,
    )


@pytest.mark.exercise("logsumexp")
@pytest.mark.parametrize(("axes", "keepdims"), [(None, False), (1, False), ((0,), True)])
def test_logsumexp_of_any_size(axes: Any, keepdims: bool) -> None:
    for name, a in (("a", A), ("large a", LARGE)):
        highest = a.max()
        with np.errstate(divide="ignore"):
            direct = np.log(np.exp(a - highest).sum(axes, keepdims=keepdims)) + highest
        if np.isfinite(direct).all():
            expect(
                f"logsumexp of {name} over {axes}, keepdims={keepdims}",
                ops.logsumexp(tensor(a), axes, keepdims=keepdims),
                direct,
                given={name: a},
            )
    low = ops.logsumexp(tensor([[-np.inf, -np.inf], [0.0, np.inf]]), 1)
    expect("logsumexp of (-inf, -inf) and of (0, inf)", low, np.array([-np.inf, np.inf]))


@pytest.mark.exercise("logsumexp")
def test_logsumexp_gradient() -> None:
    for keepdims in (False, True):
        out = ops.logsumexp(tensor(A), 1, keepdims=keepdims)
        weights = np.array([2.0, -3.0]).reshape(out.shape)
        (by_a,) = parts_of(out, weights)
        expect(
            f"logsumexp over axis 1, keepdims={keepdims}, gradient for a: softmax times out_grad",
            by_a,
            softmax_of(A, 1) * weights.reshape(2, 1),
            given={"a": A, "out_grad": weights},
        )


@pytest.mark.exercise("cross-entropy")
def test_cross_entropy() -> None:
    ids = np.array([2, 0])
    losses = -np.log(softmax_of(A, 1))[[0, 1], ids]
    given = {"logits": A, "ids": ids}
    expect(
        "cross entropy of each row",
        ops.cross_entropy(tensor(A), ids, reduction="none"),
        losses,
        given=given,
    )
    smooth = -0.7 * np.log(softmax_of(A, 1))[[0, 1], ids] - 0.1 * np.log(softmax_of(A, 1)).sum(1)
    expect(
        "with label_smoothing=0.3",
        ops.cross_entropy(tensor(A), ids, label_smoothing=0.3, reduction="none"),
        smooth,
        given=given,
    )
    impossible = tensor([[0.0, -np.inf, 0.0]])
    expect(
        "if another class is impossible",
        ops.cross_entropy(impossible, np.array([0])),
        np.log(2.0),
        mistakes={"0 * -inf is NaN: leave those terms out": np.nan},
    )


@pytest.mark.exercise("cross-entropy")
def test_cross_entropy_gradient() -> None:
    ids = np.array([2, 0])
    out = ops.cross_entropy(tensor(A), ids)
    (by_logits,) = parts_of(out, np.array(3.0))
    expect(
        "3 * mean cross entropy, gradient for the logits",
        by_logits,
        3.0 * (softmax_of(A, 1) - np.eye(3)[ids]) / 2,
        given={"logits": A, "ids": ids},
    )


@pytest.mark.exercise("cross-entropy")
def test_labels_are_checked() -> None:
    for function in (accelerated.cross_entropy, accelerated.cross_entropy_grad):
        arguments = (np.ones(2),) if function is accelerated.cross_entropy_grad else ()
        what = f"{function.__name__} of 3 classes with labels [0, 3]"
        with expect_error(what, ShapeError, "must be in"):
            function(*arguments, A, np.array([0, 3]), 0.0)


# ---- replay --------------------------------------------------------------------------------------


@pytest.mark.exercise("replay")
def test_gradients_of_gradients_after_release() -> None:
    a, b = tensor([2.0, -1.0]), tensor([3.0, 5.0])
    c = Product()(a, b)
    (Product()(c, a) + c).backward()
    x, z = a.numpy(), b.numpy()
    given = {"y": "c * a + c, c = a * b", "a": x, "b": z}
    expect("a.grad", a.grad, 2 * x * z + z, given=given)
    a.grad.backward()
    expect("a.grad of a.grad: d2y/da2", a.grad, 2 * z, given=given)
    expect("b.grad of it: d2y/da db", b.grad, 2 * x + 1, given=given)


@pytest.mark.exercise("replay")
def test_only_what_is_needed_is_computed_again() -> None:
    calls: list[str] = []

    class Told(Product):
        def __init__(self, name: str) -> None:
            self.name = name

        def compute(self, a: Any, b: Any) -> Any:
            calls.append(self.name)
            return a * b

    a = tensor([2.0])
    h = Told("first")(a, a)
    Told("second")(h, a).backward()
    calls.clear()
    h.op.gradient_as_tuple(tensor([1.0]), h)  # type: ignore[union-attr]
    mistakes = {"all rows of the tape run; `behind` says which are needed": ["first", "second"]}
    expect(
        "the products computed again for a gradient through the first",
        calls,
        ["first"],
        mistakes=mistakes,
    )
