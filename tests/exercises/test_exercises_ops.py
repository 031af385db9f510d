"""Part 2 of the course: gradients of ops, compared with formulas in NumPy."""

from typing import Any

import numpy as np
import pytest
from by_hand import numerical, outcome, softmax_of
from toy_graph import Product, tensor

from apps.course.compare import expect, expect_error
from needle import Tensor, accelerated, no_grad, ops
from needle.autograd.replay import Tape
from needle.errors import ShapeError
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
    ones = tuple(i for i, size in enumerate(shape) if size == 1)
    only_left = grad.sum(tuple(range(lead)))
    only_ones = grad.sum(ones) if lead == 0 else grad
    mistakes = {
        "the operand's elements were repeated: sum their gradients, do not average": lost,
        "the axes that were repeated from size 1 are not summed": only_left,
        "broadcast axes are not summed": grad,
        "the axes were summed, but the shape is not that of the operand": only_ones,
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
        "a/b grows with 1/b, not with b": g * b,
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
        "the exponent must become 2": g * 3 * a**3,
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
        "the factor b is missing": base ** (exponent - 1),
        "the exponent must become b - 1": exponent * base**exponent,
    }
    right = exponent * base ** (exponent - 1)
    expect("a ** b, gradient for a", by_a, right, given=given, mistakes=mistakes)
    with np.errstate(invalid="ignore"):
        mistakes = {
            "the logarithm of a is missing": base**exponent,
            "the logarithm of a, not of b": base**exponent * np.log(exponent),
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
        "the derivative of log a is 1/a: node is the result, node.inputs[0] is a": G[0] / np.log(a),
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


# ---- reductions ----------------------------------------------------------------------------------


@pytest.mark.exercise("sum-grad")
def test_sum_of_rows() -> None:
    a, weights = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0])
    (by_a,) = parts_of(ops.summation(tensor(a), 1), weights)
    right = np.array([[10.0, 10.0], [20.0, 20.0]])
    mistakes = {
        "repeated along the wrong axis: reshape out_grad to (2, 1) first": right.T,
        "a sum does not divide by the number of its elements": right / 2,
        "out_grad is missing: 1 is the derivative alone": np.ones((2, 2)),
        "the derivative of a sum is 1, not the element": right * a,
        "out_grad must be repeated to the shape before the sum": weights,
    }
    given = {"a": a, "out_grad": weights}
    expect("the sum over axis 1, gradient for a", by_a, right, given=given, mistakes=mistakes)


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
    a, weights = np.array([[9.0, 4.0], [1.0, 4.0]]), np.array([10.0, 20.0])
    (by_a,) = parts_of(ops.max(tensor(a), 1), weights)
    mistakes = {
        "only the elements that equal the maximum get a gradient": np.array([[10, 10], [20, 20.0]]),
        "the maxima stand for rows: give them the shape (2, 1) to compare": np.array(
            [[5.0, 5.0], [0.0, 20.0]]
        ),
        "the number of maxima must be counted along the axis, not everywhere": np.array(
            [[5.0, 0.0], [0.0, 10.0]]
        ),
        "out_grad is missing: this is the share alone": np.array([[1.0, 0.0], [0.0, 1.0]]),
    }
    given = {"a": a, "out_grad": weights}
    right = np.array([[10.0, 0.0], [0.0, 20.0]])
    expect("max over axis 1, gradient for a", by_a, right, given=given, mistakes=mistakes)
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
            ),
        },
    )
    (by_a,) = parts_of(ops.min(tensor(a), None, True), np.array([[3.0]]))
    expect("min over all axes, kept", by_a, np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))


# ---- matrices, axes, tuples ----------------------------------------------------------------------


@pytest.mark.exercise("matmul-grad")
def test_matrix_product() -> None:
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
    weights = np.array([[1.0, 10.0], [100.0, 1000.0]])
    by_a, by_b = parts_of(tensor(a) @ tensor(b), weights)
    given = {"a": a, "b": b, "out_grad": weights}
    mistakes = {
        "b is not transposed": weights @ b,
        "the order of the factors is swapped: out_grad stands where a @ b stands": b.T @ weights,
        "the gradients of a and b are swapped": a.T @ weights,
        "a product of matrices, not of elements": weights * b,
    }
    expect("a @ b, gradient for a", by_a, weights @ b.T, given=given, mistakes=mistakes)
    mistakes = {
        "a is not transposed": a @ weights,
        "the order of the factors is swapped: a stands on the left of a @ b": weights @ a.T,
    }
    expect("a @ b, gradient for b", by_b, a.T @ weights, given=given, mistakes=mistakes)


@pytest.mark.exercise("matmul-grad")
def test_matrix_product_with_batch_axes() -> None:
    a, b = RNG.standard_normal((5, 2, 3)), RNG.standard_normal((3, 4))
    weights = RNG.standard_normal((5, 2, 4))
    by_a, by_b = parts_of(tensor(a) @ tensor(b), weights)
    expect("(5, 2, 3) @ (3, 4), gradient for a", by_a, weights @ b.T)
    each = np.einsum("bij,bik->bjk", a, weights)
    mistakes = {
        "all 5 products use b: sum their gradients, by unbroadcast": each,
    }
    expect("gradient for b, which all 5 products use", by_b, each.sum(0), mistakes=mistakes)
    _, by_constant = parts_of(tensor(a) @ tensor(b, requires_grad=False), weights)
    mistakes = {"a gradient was computed for a constant": by_constant}
    expect("gradient for a constant", by_constant, None, mistakes=mistakes)


@pytest.mark.exercise("permute-grad")
def test_permutation() -> None:
    a, weights = np.zeros((1, 2, 3)), np.arange(6.0).reshape(3, 1, 2)
    (by_a,) = parts_of(ops.permute(tensor(a), (2, 0, 1)), weights)
    mistakes = {
        "the same axes once more are not the inverse": weights.transpose(2, 0, 1),
        "the axes in reverse are not the inverse": weights.transpose(1, 0, 2),
        "reshape does not move elements": weights.reshape(1, 2, 3),
    }
    given = {"a": "shape (1, 2, 3)", "out_grad": weights}
    right = weights.transpose(1, 2, 0)
    expect("permute by (2, 0, 1), gradient for a", by_a, right, given=given, mistakes=mistakes)
    moved = weights.transpose(1, 0, 2)
    (by_a,) = parts_of(ops.permute(tensor(a), (0, -1, 1)), moved)
    mistakes = {"negative axes count from the end: see _permutation": moved.transpose(1, 0, 2)}
    given = {"a": "shape (1, 2, 3)", "out_grad": moved}
    expect("permute by (0, -1, 1), gradient for a", by_a, right, given=given, mistakes=mistakes)


@pytest.mark.exercise("stack-grad")
def test_split_gives_slices() -> None:
    for axis in (0, 1, -1):
        a = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        found = outcome(
            lambda: [part.numpy().tolist() for part in ops.split(tensor(a), axis)],  # noqa: B023
            IndexError,
        )
        wanted = [part.tolist() for part in np.moveaxis(a, axis, 0)]
        mistakes = {
            "the slices are those along axis 0: use self.axis": a.tolist(),
            "the slices must lack the axis; these have it with size 1": [
                part.tolist() for part in np.split(a, a.shape[axis], axis)
            ],
        }
        if axis == -1:
            mistakes = {
                "a negative axis counts from the end: normalize_axis": "IndexError",
                "the slices along axis 0: a negative axis counts from the end": a.tolist(),
            }
        expect(f"split of a along axis {axis}", found, wanted, given={"a": a}, mistakes=mistakes)


@pytest.mark.exercise("stack-grad")
def test_stack_gives_its_gradient_back_in_slices() -> None:
    out = ops.stack([tensor(A), tensor(B), tensor(A)], 1)
    weights = np.arange(18.0).reshape(2, 3, 3)
    found = parts_of(out, weights)
    given = {"out_grad": weights}
    for i, part in enumerate(found):
        mistakes = {
            "a slice along axis 0: use self.axis": weights[i] if i < 2 else None,
            "a slice along the last axis: use self.axis": weights[:, :, i],
        }
        what = f"stack of three along axis 1, gradient for number {i}"
        expect(what, part, weights[:, i], given=given, mistakes=mistakes)
    expect("the number of gradients of a stack of three", len(found), 3)
    several = ops.make_tuple(tensor(A), tensor(B))
    out = ops.Stack(0)(several)
    found = parts_of(out, np.ones((2, 2, 3)))[0]
    tuples = {"stack received one TensorTuple, so its gradient is one as well": "Tensor"}
    what = "the type of the gradient for a stacked TensorTuple"
    expect(what, type(found).__name__, "TensorTuple", mistakes=tuples)


@pytest.mark.exercise("dilate")
def test_dilation() -> None:
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    given = {"a": a}
    expect(
        "dilate(a, axes=(0,), dilation=1)",
        ops.dilate(tensor(a), (0,), 1),
        np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]),
        given=given,
        mistakes={
            "zeros follow the last element, too": np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]),
            "an axis of n becomes n * (dilation + 1), not n * dilation": a,
            "the zeros come after the elements, not before": np.array(
                [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]
            ),
        },
    )
    small = Tensor(np.array([1.0]), dtype="float32")
    dtype = {"the zeros must have a's dtype": "float64"}
    got = str(ops.dilate(small, (0,), 1).dtype)
    expect("the dtype of a dilated float32", got, "float32", mistakes=dtype)
    both = np.zeros((6, 6))
    both[::3, ::3] = a
    expect(
        "dilate(a, axes=(0, 1), dilation=2)", ops.dilate(tensor(a), (0, 1), 2), both, given=given
    )
    found = outcome(lambda: ops.dilate(tensor(a), (7,), 1), IndexError)
    mistakes = {"axes that a does not have are ignored": "IndexError"}
    expect("dilate(a, axes=(7,), dilation=1)", found, a, given=given, mistakes=mistakes)
    out = ops.dilate(tensor(a), (1,), 1)
    (by_a,) = parts_of(out, np.arange(8.0).reshape(2, 4))
    expect("its gradient, by undilate", by_a, np.array([[0.0, 2.0], [4.0, 6.0]]))


# ---- the softmax family --------------------------------------------------------------------------

LARGE = np.array([[1e4, 1e4 + 1, 1e4 - 1], [-1e4, 0.0, 1.0]])


@pytest.mark.exercise("softmax")
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_any_size(axis: int) -> None:
    a = np.array([[0.0, 1.0], [2.0, 5.0]])
    low = np.exp(a - a.max(axis, keepdims=True))
    mistakes = {
        "along the other axis: use axis": softmax_of(a, 1 - axis),
        "the sum must keep its axis to divide along it: keepdims=True": low / low.sum(axis),
        "the sum is missing": low,
    }
    what = f"softmax of a along axis {axis}"
    right = softmax_of(a, axis)
    expect(what, ops.softmax(tensor(a), axis), right, given={"a": a}, mistakes=mistakes)
    for name, a in (("a", A), ("large a", LARGE)):
        expect(
            f"softmax of {name} along axis {axis}",
            ops.softmax(tensor(a), axis),
            softmax_of(a, axis),
            given={name: a},
        )
    found = outcome(lambda: ops.softmax(tensor(np.zeros((2, 0))), 1), ValueError)
    mistakes = {"an array without elements has no maximum: return zeros": "ValueError"}
    expect("softmax of an array of shape (2, 0)", found, np.zeros((2, 0)), mistakes=mistakes)


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
            ),
            "the logarithm is missing: this is softmax": softmax_of(LARGE, 1),
            "the logarithm of the sum is missing": shifted,
        },
    )


@pytest.mark.exercise("softmax-grad")
def test_softmax_gradients() -> None:
    for axis in (0, 1):
        (by_a,) = parts_of(ops.softmax(tensor(A), axis), G)
        s = softmax_of(A, axis)
        mistakes = {
            "s (1 - s) is only the diagonal of the Jacobian": G * s * (1 - s),
            "the sum must weight out_grad with softmax": s * (G - G.sum(axis, keepdims=True)),
            "the sum is over self.axis, not over all axes": s * (G - (G * s).sum()),
            "the sum is missing": s * G,
        }
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
    s, total = softmax_of(A, 1), G.sum(1, keepdims=True)
    mistakes = {
        "node is the logarithm of softmax: softmax is exp(node)": G - np.log(s) * total,
        "the sum of out_grad is missing": G - s,
        "the sum is over self.axis, not over all axes": G - s * G.sum(),
    }
    expect(
        "logsoftmax, gradient for a",
        by_a,
        numerical(lambda x: np.log(softmax_of(x, 1)), A, G),
        mistakes=mistakes,
        given={"a": A, "out_grad": G},
        rtol=1e-5,
        atol=1e-8,
    )


@pytest.mark.exercise("logsumexp")
@pytest.mark.parametrize(("axes", "keepdims"), [(None, False), (1, False), ((0,), True)])
def test_logsumexp_of_any_size(axes: Any, keepdims: bool) -> None:
    for name, a in (("a", A), ("large a", LARGE)):
        highest = a.max(axes, keepdims=True)
        kept = np.log(np.exp(a - highest).sum(axes, keepdims=True))
        direct = (kept + highest).reshape(np.max(a, axes, keepdims=keepdims).shape)
        with np.errstate(divide="ignore"):
            shared = np.log(np.exp(a - a.max()).sum(axes, keepdims=keepdims)) + a.max()
        mistakes = {
            "the maximum was subtracted, but not added again": kept.reshape(direct.shape),
            "the sum is missing: this is the maximum": highest.reshape(direct.shape),
            "keepdims was not looked at": (kept + highest)
            if not keepdims
            else (kept + highest).squeeze(0),
        }
        if not np.isfinite(shared).all():
            mistakes["log 0: every slice needs its own maximum"] = shared
        expect(
            f"logsumexp of {name} over {axes}, keepdims={keepdims}",
            ops.logsumexp(tensor(a), axes, keepdims=keepdims),
            direct,
            given={name: a},
            mistakes=mistakes,
        )


@pytest.mark.exercise("logsumexp")
def test_logsumexp_of_infinities() -> None:
    infinite = np.array([[-np.inf, -np.inf], [0.0, np.inf]])
    with np.errstate(all="ignore"):
        found = ops.logsumexp(tensor(infinite), 1)
    what = "logsumexp of (-inf, -inf) and of (0, inf)"
    both, low = np.full(2, np.nan), np.array([np.nan, np.inf])
    mistakes = {
        "inf - inf is NaN: subtract nothing where the maximum is infinite": both,
        "-inf + inf is NaN: subtract nothing where the maximum is -inf": low,
    }
    expect(what, found, np.array([-np.inf, np.inf]), mistakes=mistakes)


@pytest.mark.exercise("logsumexp")
def test_logsumexp_gradient() -> None:
    a, weights = np.array([[0.0, 1.0], [2.0, 5.0]]), np.array([10.0, 20.0])
    s, rows = softmax_of(a, 1), weights.reshape(2, 1)
    mistakes = {
        "out_grad stands for rows: reshape it to (2, 1)": s * weights,
        "exp(a) must be divided by its sum: exp(a - node)": rows * np.exp(a),
        "out_grad is missing: this is softmax alone": s,
    }
    given = {"a": a, "out_grad": weights}
    for keepdims in (False, True):
        out = ops.logsumexp(tensor(a), 1, keepdims=keepdims)
        (by_a,) = parts_of(out, weights.reshape(out.shape))
        what = f"logsumexp over axis 1, keepdims={keepdims}, gradient for a"
        expect(what, by_a, s * rows, given=given, mistakes=mistakes)


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
        mistakes={
            "the sign is missing: -log of the probability": -losses,
            "the logarithm is missing": softmax_of(A, 1)[[0, 1], ids],
            "the softmax is missing: -logits of the labels": -A[[0, 1], ids],
        },
    )
    smooth = -0.7 * np.log(softmax_of(A, 1))[[0, 1], ids] - 0.1 * np.log(softmax_of(A, 1)).sum(1)
    expect(
        "with label_smoothing=0.3",
        ops.cross_entropy(tensor(A), ids, label_smoothing=0.3, reduction="none"),
        smooth,
        given=given,
        mistakes={"smoothing was not used: see _targets": losses},
    )
    impossible = np.array([[0.0, -np.inf, 0.0]])
    with np.errstate(invalid="ignore"):
        loss = ops.cross_entropy(tensor(impossible), np.array([0]))
    expect(
        "if another class is impossible",
        loss,
        np.log(2.0),
        given={"logits": impossible, "ids": np.array([0])},
        mistakes={"0 * -inf is NaN: leave those terms out": np.nan},
    )


@pytest.mark.exercise("cross-entropy")
def test_cross_entropy_gradient() -> None:
    ids, s = np.array([1, 0]), softmax_of(A[:, :2], 1)
    given = {"logits": A[:, :2], "ids": ids, "grad": np.array([1.0, 10.0])}
    rows, hot = given["grad"].reshape(2, 1), np.eye(2)[ids]
    found = accelerated.cross_entropy_grad(given["grad"], A[:, :2], ids, 0.0)
    mistakes = {
        "the sign is wrong: softmax minus the targets": rows * (hot - s),
        "grad was not used": s - hot,
        "grad has an entry for each row: expand it to (N, 1)": given["grad"] * (s - hot),
        "the targets are missing: softmax minus one_hot(labels)": rows * s,
        "the softmax is missing": rows * (A[:, :2] - hot),
        "cross_entropy has a loss for each row: nothing is divided by their number": rows
        * (s - hot)
        / 2,
    }
    what = "the gradient of sum(grad * cross_entropy) for the logits"
    expect(what, found, rows * (s - hot), given=given, mistakes=mistakes)
    smooth = accelerated.cross_entropy_grad(given["grad"], A[:, :2], ids, 0.2)
    unused = {"smoothing was not used: see _targets": rows * (s - hot)}
    what = "the same with smoothing 0.2"
    expect(what, smooth, rows * (s - 0.8 * hot - 0.1), given=given, mistakes=unused)


@pytest.mark.exercise("cross-entropy")
def test_labels_are_checked() -> None:
    for function in (accelerated.cross_entropy, accelerated.cross_entropy_grad):
        arguments = (np.ones(2),) if function is accelerated.cross_entropy_grad else ()
        for labels in ([0, 3], [0, -1]):
            what = f"{function.__name__} of 3 classes with labels {labels}"
            with expect_error(what, ShapeError, "must be in"):
                function(*arguments, A, np.array(labels), 0.0)


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


@pytest.mark.exercise("replay")
def test_values_are_computed_again_as_they_were() -> None:
    a, b = tensor([2.0]), tensor([3.0])
    h = Product()(a, a)
    h.hooks = {0: lambda grad: None}
    tape = Tape([a, h, b, Product()(h, b)], tensor([1.0]))
    given = {
        "positions": "0: a, 1: b, 2: the initial gradient, 3: h = a * a, 4: h * b",
        "tape.rows": "(op, (0, 0), ...), (op, (3, 1), ...)",
    }
    mistakes = {
        "the position itself belongs to the set": [0],
        "the position alone: its inputs belong to the set": [3],
        "all positions up to it; only those that it depends on are wanted": [0, 1, 2, 3],
    }
    expect("sorted(tape.behind(3))", sorted(tape.behind(3)), [0, 3], given=given, mistakes=mistakes)
    direct = {"the inputs of its inputs belong to the set, too": [1, 3, 4]}
    found = sorted(tape.behind(4))
    expect("sorted(tape.behind(4))", found, [0, 1, 3, 4], given=given, mistakes=direct)
    asked: list[Any] = []
    tape.check_unchanged = asked.append  # type: ignore[method-assign]
    with no_grad():
        values = tape.run(list(tape.leaves), 3)
    unasked = {"check_unchanged must see whether the leaves are as they were": []}
    expect("the calls of check_unchanged in run", asked, [{0, 3}], mistakes=unasked)
    expect("values[3]", values[3], np.array([4.0]), given=given)
    constant = {"the values must be recorded, also in no_grad: use enable_grad": False}
    expect("values[3].requires_grad", values[3].requires_grad, True, mistakes=constant)
    lost = {"the value must get the hooks of its row": False}
    expect("values[3] has the hooks of h", values[3].hooks is h.hooks, True, mistakes=lost)
    expect("values[4], which was not needed", values[4], None)
