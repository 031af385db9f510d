"""Part 2 of the course: gradients of ops, compared with formulas in NumPy."""

from typing import Any

import numpy as np
import pytest
from toy_graph import tensor

from apps.course.compare import expect
from needle import Tensor, ops
from needle.ops.broadcasting import unbroadcast

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 3))
B = RNG.standard_normal((2, 3))
ROW = RNG.standard_normal((1, 3))
G = RNG.standard_normal((2, 3))
"""A gradient of the output, used as out_grad."""


def parts_of(out: Tensor, out_grad: Array) -> tuple[Any, ...]:
    """Return the gradients that the op of ``out`` computes for ``out_grad``."""
    assert out.op is not None
    return out.op.gradient_as_tuple(tensor(out_grad, requires_grad=False), out)


# ---- unbroadcast ---------------------------------------------------------------------------------


@pytest.mark.exercise("unbroadcast")
@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 1), (1, 1), (), (2, 3)])
def test_repeated_axes_are_summed(shape: tuple[int, ...]) -> None:
    like = np.zeros(shape)
    lead = G.ndim - like.ndim
    axes = (*range(lead), *(lead + i for i, size in enumerate(shape) if size < G.shape[lead + i]))
    grad = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    expected = grad.sum(axes).reshape(shape)
    lost = grad.mean(axes).reshape(shape)
    only_left = grad.sum(tuple(range(lead)))
    mistakes = {
        "the operand's elements were repeated: sum their gradients, do not average": lost,
        "the axes that were repeated from size 1 are not summed": only_left,
        "broadcast axes are not summed": grad,
    }
    expect(
        f"a gradient of shape (2, 3) for an operand of shape {shape}",
        unbroadcast(tensor(grad), tensor(like)),
        expected,
        given={"grad": grad},
        mistakes=mistakes,
    )


@pytest.mark.exercise("unbroadcast")
def test_the_dtype_is_the_operands() -> None:
    like = Tensor(np.zeros(3), dtype="float32")
    expect(
        "the dtype of a float64 gradient for a float32 operand",
        str(unbroadcast(tensor(G), like).dtype),
        "float32",
        mistakes={"the gradient must be converted to the operand's dtype": "float64"},
    )
    whole = Tensor(np.zeros(3), dtype="int32", requires_grad=False)
    expect(
        "the dtype of a float64 gradient for an operand of integers",
        str(unbroadcast(tensor(G), whole).dtype),
        "float64",
        mistakes={"convert to floating dtypes only: integers would cut the gradient": "int32"},
    )
    same = tensor(G)
    expect("a gradient that fits already", unbroadcast(same, tensor(A)), same)
    expect("the same object comes back", unbroadcast(same, tensor(A)) is same, True)


# ---- products, quotients, powers -----------------------------------------------------------------


@pytest.mark.exercise("multiply-grad")
def test_product() -> None:
    a, b, g = np.array([2.0, 3.0]), np.array([5.0, 7.0]), np.array([1.0, 10.0])
    by_a, by_b = parts_of(tensor(a) * tensor(b), g)
    given = {"a": a, "b": b, "out_grad": g}
    mistakes = {
        "the gradients are swapped": g * a,
        "out_grad is missing: the chain rule multiplies with it": b,
    }
    expect("a * b, gradient for a", by_a, g * b, given=given, mistakes=mistakes)
    expect("a * b, gradient for b", by_b, g * a, given=given)
    by_a, by_b = parts_of(tensor(A) * tensor(ROW), G)
    given = {"a": A, "b": ROW, "out_grad": G}
    expect("a * b, gradient for a", by_a, G * ROW, given=given)
    repeated = {"b's row was used twice: its gradients must be summed, by unbroadcast": G * A}
    right = (G * A).sum(0, keepdims=True)
    expect("a * b, gradient for b", by_b, right, given=given, mistakes=repeated)


@pytest.mark.exercise("multiply-grad")
def test_product_with_a_constant() -> None:
    by_a, by_b = parts_of(tensor(A) * tensor(B, requires_grad=False), G)
    expect("a * constant, gradient for a", by_a, G * B)
    mistakes = {"a gradient was computed for a constant": by_b}
    expect("gradient for the constant, which requires none", by_b, None, mistakes=mistakes)


@pytest.mark.exercise("divide-grad")
def test_quotient() -> None:
    a, b, g = np.array([6.0, 20.0]), np.array([2.0, 4.0]), np.array([1.0, 10.0])
    by_a, by_b = parts_of(tensor(a) / tensor(b), g)
    given = {"a": a, "b": b, "out_grad": g}
    mistakes = {
        "out_grad is missing: the chain rule multiplies with it": 1 / b,
    }
    expect("a / b, gradient for a", by_a, g / b, given=given, mistakes=mistakes)
    mistakes = {
        "d(1/b) = -1/b**2: the sign is missing": g * a / b**2,
        "d(1/b) = -1/b**2: one division is missing": -g * a / b,
        "a is missing: d(a/b)/db = -a/b**2": -g / b**2,
    }
    expect("a / b, gradient for b", by_b, -g * a / b**2, given=given, mistakes=mistakes)
    by_a, by_b = parts_of(tensor(a, requires_grad=False) / tensor(b), g)
    constant = {"a gradient was computed for a constant": by_a}
    expect("gradient for a, a constant", by_a, None, mistakes=constant)
    below = np.array([[2.0, -1.0, 0.5]])
    by_a, by_b = parts_of(tensor(A) / tensor(below), G)
    given = {"a": A, "b": below, "out_grad": G}
    expect("a / b, gradient for a", by_a, G / below, given=given)
    each = -G * A / below**2
    repeated = {"b's row was used twice: its gradients must be summed, by unbroadcast": each}
    right = each.sum(0, keepdims=True)
    expect("a / b, gradient for b", by_b, right, given=given, mistakes=repeated)


@pytest.mark.exercise("power-grad")
def test_power_by_a_number() -> None:
    a, g = np.array([1.0, -2.0]), np.array([1.0, 10.0])
    (by_a,) = parts_of(tensor(a) ** 3, g)
    mistakes = {
        "the factor 3 is missing": g * a**2,
        "out_grad is missing: the chain rule multiplies with it": 3 * a**2,
    }
    given = {"a": a, "out_grad": g}
    expect("a ** 3, gradient for a", by_a, g * 3 * a**2, given=given, mistakes=mistakes)
    with np.errstate(all="ignore"):
        (by_zero,) = parts_of(tensor([0.0, 2.0]) ** 0, np.ones(2))
    infinite = {"0 * a ** -1 is NaN at a = 0: a ** 0 is constant": np.array([np.nan, 0.0])}
    given = {"a": np.array([0.0, 2.0]), "out_grad": 1.0}
    expect("a ** 0, gradient for a", by_zero, np.zeros(2), given=given, mistakes=infinite)


@pytest.mark.exercise("power-grad")
def test_power_by_a_tensor() -> None:
    base, exponent = np.array([[0.5, 2.0, 3.0]]), np.array([[2.0, -1.0, 0.5]])
    given = {"a": base, "b": exponent, "out_grad": 1.0}
    by_a, by_b = parts_of(tensor(base) ** tensor(exponent), np.ones((1, 3)))
    mistakes = {
        "the exponent must become b - 1": exponent * base**exponent,
    }
    right = exponent * base ** (exponent - 1)
    expect("a ** b, gradient for a", by_a, right, given=given, mistakes=mistakes)
    with np.errstate(invalid="ignore"):
        mistakes = {
            "the logarithm of a is missing": base**exponent,
        }
    right = base**exponent * np.log(base)
    expect("a ** b, gradient for b", by_b, right, given=given, mistakes=mistakes)
    with np.errstate(all="ignore"):
        _, by_b = parts_of(tensor([0.0]) ** tensor([2.0]), np.ones(1))
        by_a, _ = parts_of(tensor([0.0]) ** tensor([0.0]), np.ones(1))
    log = {"0 * log 0 is NaN: the limit is 0, see log_or_zero": np.array([np.nan])}
    given = {"a": np.zeros(1), "b": np.full(1, 2.0)}
    expect("a ** b, gradient for b, the limit", by_b, np.zeros(1), given=given, mistakes=log)
    shift = {"0 * 0 ** -1 is NaN: a ** 0 is constant, see unit_shift": np.array([np.nan])}
    given = {"a": np.zeros(1), "b": np.zeros(1)}
    expect("a ** b, gradient for a", by_a, np.zeros(1), given=given, mistakes=shift)


# ---- functions of one tensor ---------------------------------------------------------------------


@pytest.mark.exercise("curve-grads")
def test_log() -> None:
    a = np.array([0.5, 2.0, 10.0])
    (by_a,) = parts_of(ops.log(tensor(a)), G[0])
    mistakes = {
        "the derivative of log a is 1/a, not a": G[0] * a,
        "out_grad is missing: the chain rule multiplies with it": 1 / a,
    }
    given = {"a": a, "out_grad": G[0]}
    expect("log a, gradient for a", by_a, G[0] / a, given=given, mistakes=mistakes)


@pytest.mark.exercise("curve-grads")
def test_exp() -> None:
    (by_a,) = parts_of(ops.exp(tensor(A)), G)
    mistakes = {
        "the derivative of exp a is exp a, which is node, not a": G * A,
        "exp was applied twice: node is exp a already": G * np.exp(np.exp(A)),
        "out_grad is missing: the chain rule multiplies with it": np.exp(A),
    }
    given = {"a": A, "out_grad": G}
    expect("exp a, gradient for a", by_a, G * np.exp(A), given=given, mistakes=mistakes)


@pytest.mark.exercise("curve-grads")
def test_tanh() -> None:
    (by_a,) = parts_of(ops.tanh(tensor(A)), G)
    mistakes = {
        "1 - tanh(a)**2, not 1 - a**2: node is the result, node.inputs[0] is a": G * (1 - A**2),
        "1 - tanh(a)**2: the square is missing": G * (1 - np.tanh(A)),
        "out_grad is missing: the chain rule multiplies with it": 1 - np.tanh(A) ** 2,
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
    out, out_grad = ops.relu(tensor(a)), tensor(weights, requires_grad=False)
    (by_a,) = out.op.gradient_as_tuple(out_grad, out)  # type: ignore[union-attr]
    expect(
        "relu a, gradient for a",
        by_a,
        np.array([0.0, 0.0, 3.0, -4.0]),
        given={"a": a, "out_grad": weights},
        mistakes={
            "y > 0, not y >= 0: at 0 the gradient is 0": weights,
            "out_grad is missing: 1 where y > 0 is the derivative alone": (a > 0) * 1.0,
            "the sign of y decides, not that of grad": np.maximum(weights, 0),
            "where y > 0 grad passes, whatever its sign": np.array([0.0, 0.0, 3.0, 0.0]),
        },
    )
    changed = {"grad was changed in place; return a new array": np.array([0.0, 0.0, 3.0, -4.0])}
    expect("out_grad afterwards", out_grad, weights, mistakes=changed)
