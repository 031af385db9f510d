"""Part 2 of the course: the softmax family, and replaying a tape."""

from typing import Any

import numpy as np
import pytest
from by_hand import numerical, outcome, softmax_of
from test_exercises_ops import A, G, parts_of
from toy_graph import Product, tensor

from apps.course.compare import expect, expect_error
from needle import accelerated, no_grad, ops
from needle.autograd.replay import Tape
from needle.errors import ShapeError

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
    both = np.full(2, np.nan)
    mistakes = {"inf - inf is NaN: subtract nothing where the maximum is infinite": both}
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
        "all positions up to it; only those that it depends on are wanted": [0, 1, 2, 3],
    }
    expect("sorted(tape.behind(3))", sorted(tape.behind(3)), [0, 3], given=given, mistakes=mistakes)
    direct = {"the inputs of its inputs belong to the set, too": [1, 3, 4]}
    found = sorted(tape.behind(4))
    expect("sorted(tape.behind(4))", found, [0, 1, 3, 4], given=given, mistakes=direct)
    asked: list[Any] = []
    tape.check_unchanged = asked.append  # type: ignore[method-assign]
    with no_grad():
        values = tape.run(list(tape.leaves), 3, tape.leaves)
    unasked = {"check_unchanged must see whether the leaves are as they were": []}
    expect("the calls of check_unchanged in run", asked, [{0, 3}], mistakes=unasked)
    expect("values[3]", values[3], np.array([4.0]), given=given)
    constant = {"the values must be recorded, also in no_grad: use enable_grad": False}
    expect("values[3].requires_grad", values[3].requires_grad, True, mistakes=constant)
    lost = {"the value must get the hooks of its row": False}
    expect("values[3] has the hooks of h", values[3].hooks is h.hooks, True, mistakes=lost)
    expect("values[4], which was not needed", values[4], None)
