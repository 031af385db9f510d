"""Part 1 of the course: no_grad, backward, hooks and gradients of functions."""

from typing import Any

import numpy as np
import pytest
from by_hand import outcome
from test_exercises_autograd import DIAMOND, diamond, recording_after_a_test  # noqa: F401
from toy_graph import Node, Product, tensor

import needle
from apps.course.compare import expect, expect_error
from needle import Tensor
from needle.autograd import derivative, graph
from needle.autograd.tensor import seed_gradient
from needle.errors import ShapeError

# ---- no-grad -------------------------------------------------------------------------------------


@pytest.mark.exercise("no-grad")
def test_recording_is_off_inside_and_on_again_after() -> None:
    context = needle.no_grad()
    with context as entered:
        expect("recording.on inside no_grad", graph.recording.on, False)
    nothing = {"__enter__ must return the context manager itself": False}
    expect("no_grad() as x: x is the context", entered is context, True, mistakes=nothing)
    left = {"recording stays off: __exit__ must restore the value before": False}
    expect("recording.on after it", graph.recording.on, True, mistakes=left)
    swallowed = True
    try:
        with needle.no_grad():
            raise KeyError
    except KeyError:
        swallowed = False
    hidden = {"a true result of __exit__ hides the error": True}
    expect("an error inside no_grad is lost", swallowed, False, mistakes=hidden)
    expect("recording.on after an error", graph.recording.on, True)


@pytest.mark.exercise("no-grad")
def test_contexts_nest() -> None:
    seen = []
    context = needle.no_grad()
    with context:
        with needle.enable_grad():
            seen.append(graph.recording.on)
        seen.append(graph.recording.on)
        with context:
            seen.append(graph.recording.on)
        seen.append(graph.recording.on)
    seen.append(graph.recording.on)
    mistakes = {
        "the exit turns recording on; it must restore the value before": [
            True,
            True,
            False,
            True,
            True,
        ],
        "recording is turned off by enable_grad too: use self.value": [False] * 4 + [True],
        "the second entry into one context overwrote the value before the first": [
            True,
            False,
            False,
            False,
            False,
        ],
    }
    expect(
        "recording.on in enable_grad in no_grad, after it, in the same no_grad again, after, "
        "at the end",
        seen,
        [True, False, False, False, True],
        mistakes=mistakes,
    )


# ---- backward ------------------------------------------------------------------------------------


@pytest.mark.exercise("backward")
def test_backward_begins_with_ones() -> None:
    a, b = tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[5.0, 6.0], [7.0, 8.0]])
    Product()(a, b).backward()
    given = {"a": a, "b": b}
    zeros = {"the initial gradient is 1 for every element, not 0": np.zeros((2, 2))}
    expect(
        "a.grad after Product()(a, b).backward()", a.grad, b.numpy(), given=given, mistakes=zeros
    )
    expect("b.grad", b.grad, a.numpy(), given=given)
    seed = seed_gradient(a)
    single = {"a 1 for every element: the seed has the shape of output": np.array(1.0)}
    expect("seed_gradient(a)", seed, np.ones((2, 2)), mistakes=single)
    constant = {"nothing is differentiated by the seed: make a constant of it": True}
    expect("its requires_grad", seed.requires_grad, False, mistakes=constant)


@pytest.mark.exercise("backward")
def test_backward_of_a_value_used_twice() -> None:
    a, b = tensor([1.0, 2.0]), tensor([3.0, 4.0])
    c = Product()(a, b)
    Product()(c, c).backward()
    x, z = a.numpy(), b.numpy()
    expect("a.grad of c * c, c = a * b", a.grad, 2 * x * z * z, given={"a": a, "b": b})


@pytest.mark.exercise("backward")
def test_a_gradient_may_be_given() -> None:
    a, weights = tensor([1.0, 2.0]), np.array([10.0, -1.0])
    for out_grad in (tensor(weights), weights):
        Product()(a, a).backward(out_grad)
        ones = {"out_grad was not used": 2 * a.numpy()}
        expect(
            "a.grad of a * a",
            a.grad,
            2 * a.numpy() * weights,
            given={"a": a, "out_grad": out_grad},
            mistakes=ones,
        )
    seed = seed_gradient(a, weights)
    expect("the type of seed_gradient of an array", type(seed).__name__, "Tensor")
    constant = {"an array becomes a Tensor that requires no gradient": True}
    expect("its requires_grad", seed.requires_grad, False, mistakes=constant)
    rule = "out_grad must have the tensor's shape"
    with expect_error("seed_gradient of shapes (2,) and (3,)", ShapeError, rule):
        seed_gradient(a, tensor([1.0, 2.0, 3.0]))
    with expect_error("seed_gradient of shapes (2,) and (2, 1)", ShapeError, rule):
        seed_gradient(a, tensor([[1.0], [2.0]]))
    seed = outcome(lambda: seed_gradient(tensor(3.0), tensor([2.0])), ShapeError)
    mistakes = {
        "with one element each, shapes may differ: reshape out_grad": "ShapeError",
    }
    what = "seed_gradient of shapes () and (1,), which have one element"
    expect(what, seed, np.array(2.0), mistakes=mistakes)


# ---- hooks ---------------------------------------------------------------------------------------


def hooked(*hooks: Any) -> Node:
    node = Node("a")
    node.hooks = dict(enumerate(hooks))
    return node


@pytest.mark.exercise("hooks")
def test_hooks_see_and_replace_gradients() -> None:
    seen: list[float] = []
    look = hooked(lambda g: seen.append(g))
    nothing = {"a hook that returns None must leave the gradient": None}
    what = "the result of a hook that returns None"
    expect(what, graph._run_hooks(look, 2.0), 2.0, mistakes=nothing)
    zero = {"0 is a gradient too: compare a hook's result with None": 2.0}
    what = "the result of a hook that returns 0"
    expect(what, graph._run_hooks(hooked(lambda g: 0.0), 2.0), 0.0, mistakes=zero)
    node = hooked(lambda g: g * 10, lambda g: seen.append(g), lambda g: g + 1)
    mistakes = {
        "each hook gets the result of the one before, not the first gradient": 3.0,
        "the first hook that returns a gradient is not the last to run": 20.0,
    }
    what = "the result of hooks that multiply by 10, look, add 1"
    expect(what, graph._run_hooks(node, 2.0), 21.0, mistakes=mistakes)
    first = {"each hook gets the result of the one before, not the first gradient": [2.0, 2.0]}
    expect("the gradients that were looked at", seen, [2.0, 20.0], mistakes=first)


@pytest.mark.exercise("hooks")
def test_a_hook_may_take_itself_off() -> None:
    node = hooked()
    node.hooks[0] = lambda g: node.hooks.pop(0) and None
    node.hooks[1] = lambda g: g + 1
    found = outcome(lambda: graph._run_hooks(node, 1.0), RuntimeError)
    copy = {"a hook may change node.hooks: iterate over a copy": "RuntimeError"}
    expect("with a hook that removes itself", found, 2.0, mistakes=copy)
    expect("the hooks left", list(node.hooks), [1])


# ---- gradients-of --------------------------------------------------------------------------------


@pytest.mark.exercise("gradients-of")
def test_gradients_of_what_is_asked_for() -> None:
    top, (a, b, c, _, _) = diamond()
    other = Node("other")
    mistakes = {
        "a node that top does not depend on has the gradient None": [37.0, 24.0, 0.0],
        "the gradients must have the order of wanted": [24.0, 37.0, None],
        "the gradients must have the order of wanted, and one entry for each": [24.0, 37.0],
    }
    expect(
        "gradients of top for [a, b, an unrelated node]",
        graph.gradients_of(top, 1.0, [a, b, other]),
        [37.0, 24.0, None],
        given=DIAMOND,
        mistakes=mistakes,
    )
    marked = [node.name for node in (a, b, c, top) if hasattr(node, "grad")]
    expect("nodes whose grad was set", marked, [], mistakes={"nothing may set .grad": marked})
    expect("of top for [top]", graph.gradients_of(top, 5.0, [top]), [5.0])
    expect(
        "gradients of top for [c, a]: nothing passes beyond c",
        graph.gradients_of(top, 1.0, [c, a]),
        [12.0, 1.0],
        given=DIAMOND,
        mistakes={"the walk went beyond c": [12.0, 37.0]},
    )


# ---- grad-function -------------------------------------------------------------------------------


@pytest.mark.exercise("grad-function")
def test_the_gradient_of_a_function() -> None:
    a, b = tensor([3.0]), tensor([5.0])

    def f(x: Tensor, y: Tensor) -> Tensor:
        return Product()(Product()(x, x), y)

    given = {"f(x, y)": "x * x * y", "x": 3.0, "y": 5.0}
    expect("needle.grad(f)", needle.grad(f)(a, b), np.array([30.0]), given=given)
    by_x, by_y = needle.grad(f, (0, 1))(a, b)
    expect("df/dx", by_x, np.array([30.0]), given=given)
    expect("df/dy", by_y, np.array([9.0]), given=given)
    expect("a.grad, which must not be set", a.grad, None, mistakes={".grad was set": a.grad})
    with needle.no_grad():
        (by_x,) = needle.grad(f, (0,))(a, b)
    constant = {"recording must be off unless `higher` is true": True}
    expect("its requires_grad in no_grad", by_x.requires_grad, False, mistakes=constant)


@pytest.mark.exercise("grad-function")
def test_zero_where_it_does_not_depend_and_derivatives_of_derivatives() -> None:
    a, pair = tensor([2.0]), tensor([3.0, 4.0])
    (zeros,) = derivative._gradients_at(tensor([1.0]), [pair], False)
    mistakes = {
        "a point that the output does not depend on has zeros, not None": None,
        "the zeros must have the shape of the point": np.zeros(1),
        "the zeros must have the shape of the point, not ()": np.array(0.0),
    }
    what = "the gradient for a point of shape (2,) that the output does not depend on"
    expect(what, zeros, np.zeros(2), mistakes=mistakes)
    expect("df/dx of f(x, y) = y", needle.grad(lambda x, y: Product()(y, y))(a, a), np.array([0.0]))
    constant = tensor([1.0], requires_grad=False)
    expect("df/dx of a constant", needle.grad(lambda x: constant)(a), np.array([0.0]))
    swapped = needle.grad(lambda x: needle.grad(lambda y: Product()(y, x))(x))
    expect(
        "d/dx (d/dy x*y)",
        swapped(a),
        np.array([1.0]),
        mistakes={"the inner gradient was not recorded": np.array([0.0])},
    )
