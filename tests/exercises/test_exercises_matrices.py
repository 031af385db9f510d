"""Part 2 of the course: gradients of reductions, products of matrices, moved axes and tuples."""

from typing import Any

import numpy as np
import pytest
from by_hand import outcome
from test_exercises_ops import RNG, A, B, parts_of
from toy_graph import tensor

from apps.course.compare import expect
from needle import Tensor, ops

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
        "a product of matrices, not of elements": weights * b,
    }
    expect("a @ b, gradient for a", by_a, weights @ b.T, given=given, mistakes=mistakes)
    mistakes = {
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
