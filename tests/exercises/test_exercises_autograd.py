"""Part 1 of the course: recording, order, reverse pass. Each test belongs to one exercise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toy_graph import Choose, IsPositive, Node, Plus, Product, Times, tensor

import needle
from apps.course.compare import expect, expect_error
from needle import Tensor, autograd, graph
from needle.errors import ShapeError

# ---- record --------------------------------------------------------------------------------------


@pytest.mark.exercise("record")
def test_a_node_knows_its_value_and_where_it_came_from() -> None:
    a, b, op = tensor([1.0, 2.0]), tensor([3.0, 5.0]), Product()
    node = Tensor.make_from_op(op, (a, b))
    given = {"a": a, "b": b}
    expect("the value of Product()(a, b)", node, np.array([3.0, 10.0]), given=given)
    expect("node.op", node.op, op)
    expect("tuple(node.inputs)", tuple(node.inputs), (a, b))
    expect("node.requires_grad", node.requires_grad, True)
    expect("its class", type(node), Tensor)


@pytest.mark.exercise("record")
def test_of_constants_nothing_is_recorded() -> None:
    a, b = tensor([1.0], requires_grad=False), tensor([3.0], requires_grad=False)
    node = Tensor.make_from_op(Product(), (a, b))
    expect("the value", node, np.array([3.0]))
    expect("node.op of two constants", node.op, None)
    expect("node.inputs of two constants", node.inputs, ())
    expect("node.requires_grad", node.requires_grad, False)
    b.requires_grad = True
    node = Tensor.make_from_op(Product(), (a, b))
    expect("node.requires_grad if the second input requires it", node.requires_grad, True)
    expect("node.op if the second input requires a gradient", isinstance(node.op, Product), True)
    expect("len(node.inputs)", len(node.inputs), 2)


@pytest.mark.exercise("record")
def test_flat_ops_and_no_grad_give_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    a = tensor([1.0, -2.0])
    node = Tensor.make_from_op(IsPositive(), (a,))
    expect("the value", node, np.array([1.0, 0.0]))
    expect("node.op of an op with differentiable = False", node.op, None)
    expect("node.requires_grad of such an op's result", node.requires_grad, False)
    monkeypatch.setattr(graph.recording, "on", False)
    node = Tensor.make_from_op(Product(), (a, a))
    expect("node.op while recording.on is False", node.op, None)
    expect("the value", node, np.array([1.0, 4.0]))


# ---- topo-sort -----------------------------------------------------------------------------------


def sorted_names(*nodes: Node) -> list[str]:
    return [node.name for node in graph.find_topo_sort(nodes)]


@pytest.mark.exercise("topo-sort")
def test_inputs_come_before_users() -> None:
    a, b = Node("a"), Node("b")
    c = Times()("c", a, b)
    d = Plus()("d", c, a)
    mistakes = {
        "users come first: append a node after its inputs": ["d", "c", "a", "b"],
        "a node appears twice: record the visited nodes": ["a", "b", "c", "a", "d"],
        "breadth first: finish the first input before the second": ["a", "b", "a", "c", "d"],
    }
    given = {"graph": "c = a * b; d = c + a"}
    expected = ["a", "b", "c", "d"]
    expect("the order of d's graph", sorted_names(d), expected, given=given, mistakes=mistakes)
    expect("the order of [c, d]", sorted_names(c, d), expected)
    expect("the order of [b, d]: b comes first", sorted_names(b, d), ["b", "a", "c", "d"])


@pytest.mark.exercise("topo-sort")
def test_the_first_input_goes_first() -> None:
    a, b, c = Node("a"), Node("b"), Node("c")
    right = Plus()("r", b, c)
    top = Times()("t", right, a)
    given = {"graph": "r = b + c; t = r * a"}
    mistakes = {"the last input is visited first": ["a", "c", "b", "r", "t"]}
    expect(
        "the order", sorted_names(top), ["b", "c", "r", "a", "t"], given=given, mistakes=mistakes
    )


@pytest.mark.exercise("topo-sort")
def test_a_long_chain_is_no_recursion() -> None:
    node = Node("leaf")
    for _ in range(20_000):
        node = Plus()("h", node, node)
    expect("the length of the order of a chain of 20000 nodes", len(sorted_names(node)), 20_001)


# ---- pass-on -------------------------------------------------------------------------------------


@pytest.mark.exercise("pass-on")
def test_each_input_gets_its_part() -> None:
    a, b = Node("a", 2.0), Node("b", 3.0)
    c = Times()("c", a, b)
    pending: dict[Any, list[Any]] = {}
    graph._pass_on(c, 10.0, pending)
    mistakes = {"the parts are swapped": {a: [20.0], b: [30.0]}}
    given = {"c": "a * b", "a": 2.0, "b": 3.0, "gradient of c": 10.0}
    expect("pending", pending, {a: [30.0], b: [20.0]}, given=given, mistakes=mistakes)


@pytest.mark.exercise("pass-on")
def test_parts_are_added_to_what_is_pending() -> None:
    a = Node("a", 2.0)
    c = Times()("c", a, a)
    pending: dict[Any, list[Any]] = {a: [1.0]}
    graph._pass_on(c, 10.0, pending)
    given = {"c": "a * a", "a": 2.0, "pending before": "{a: [1.0]}", "gradient of c": 10.0}
    mistakes = {"what was pending is overwritten": {a: [20.0]}}
    expect("pending", pending, {a: [1.0, 20.0, 20.0]}, given=given, mistakes=mistakes)


@pytest.mark.exercise("pass-on")
def test_who_wants_none_gets_none() -> None:
    a, fixed = Node("a", 2.0), Node("fixed", 3.0, requires_grad=False)
    pending: dict[Any, list[Any]] = {}
    graph._pass_on(Times()("c", a, fixed), 1.0, pending)
    expect("pending, if one input requires no gradient", pending, {a: [3.0]})
    pending = {}
    graph._pass_on(Choose()("c", a, Node("b")), 1.0, pending)
    expect("pending, if the op's second part is None", pending, {a: [1.0]})


# ---- reverse-pass --------------------------------------------------------------------------------


def walked(top: Node, order: list[Node], **options: Any) -> list[tuple[str, float]]:
    seen: list[tuple[str, float]] = []
    graph.reverse_pass(order, 1.0, lambda node, grad: seen.append((node.name, grad)), **options)
    return seen


def diamond() -> tuple[Node, list[Node]]:
    """top = c * c + a with c = a * b, a = 2, b = 3."""
    a, b = Node("a", 2.0), Node("b", 3.0)
    c = Times()("c", a, b)
    d = Times()("d", c, c)
    top = Plus()("top", d, a)
    return top, [a, b, c, d, top]


DIAMOND = {"graph": "c = a * b; d = c * c; top = d + a", "a": 2.0, "b": 3.0}


@pytest.mark.exercise("reverse-pass")
def test_each_node_is_visited_once_with_its_whole_gradient() -> None:
    top, order = diamond()
    expected = [("top", 1.0), ("d", 1.0), ("c", 12.0), ("b", 24.0), ("a", 37.0)]
    mistakes = {
        "only one of several contributions counts: sum them": [
            ("top", 1.0),
            ("d", 1.0),
            ("c", 6.0),
            ("b", 12.0),
            ("a", 1.0),
        ],
    }
    expect(
        "(node, gradient) as visited",
        walked(top, order),
        expected,
        given=DIAMOND,
        mistakes=mistakes,
    )
    expect("the length of order, which must not change", len(order), 5)


@pytest.mark.exercise("reverse-pass")
def test_what_nothing_flows_to_is_not_visited() -> None:
    top, order = diamond()
    stray = Times()("stray", order[0], order[1])
    seen = walked(top, [*order[:3], stray, *order[3:]])
    expect(
        "the visited nodes, if order has one that top does not use",
        [name for name, _ in seen],
        ["top", "d", "c", "b", "a"],
    )


@pytest.mark.exercise("reverse-pass")
def test_the_walk_stops_where_it_is_told() -> None:
    top, order = diamond()
    c = order[2]
    expected = [("top", 1.0), ("d", 1.0), ("c", 12.0), ("a", 1.0)]
    expect(
        "the visited nodes with stops = {c}", walked(top, order, stops={c}), expected, given=DIAMOND
    )


@pytest.mark.exercise("reverse-pass")
def test_nodes_are_released_behind_the_walk() -> None:
    _, order = diamond()
    events: list[str] = []
    graph.reverse_pass(
        order,
        1.0,
        lambda node, grad: events.append(f"visit {node.name}"),
        lambda node: events.append(f"release {node.name}, {len(order)} left"),
    )
    expect(
        "the first events with a release function",
        events[:4],
        ["visit top", "release top, 4 left", "visit d", "release d, 3 left"],
    )
    expect("order afterwards", order, [])


# ---- no-grad -------------------------------------------------------------------------------------


@pytest.mark.exercise("no-grad")
def test_recording_is_off_inside_and_on_again_after() -> None:
    with needle.no_grad():
        expect("recording.on inside no_grad", graph.recording.on, False)
    expect("recording.on after it", graph.recording.on, True)
    with pytest.raises(KeyError), needle.no_grad():
        raise KeyError
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
        ]
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
    expect("a.grad after Product()(a, b).backward()", a.grad, b.numpy(), given=given)
    expect("b.grad", b.grad, a.numpy(), given=given)
    seed = autograd.seed_gradient(a)
    expect("seed_gradient(a)", seed, np.ones((2, 2)))
    expect("its requires_grad", seed.requires_grad, False)


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
        expect(
            "a.grad of a * a", a.grad, 2 * a.numpy() * weights, given={"a": a, "out_grad": out_grad}
        )
    rule = "out_grad must have the tensor's shape"
    with expect_error("seed_gradient of shapes (2,) and (3,)", ShapeError, rule):
        autograd.seed_gradient(a, tensor([1.0, 2.0, 3.0]))
    with expect_error("seed_gradient of shapes (2,) and (2, 1)", ShapeError, rule):
        autograd.seed_gradient(a, tensor([[1.0], [2.0]]))
    seed = autograd.seed_gradient(tensor(3.0), tensor([2.0]))
    expect("seed_gradient of shapes () and (1,), which have one element", seed, np.array(2.0))


# ---- hooks ---------------------------------------------------------------------------------------


def hooked(*hooks: Any) -> Node:
    node = Node("a")
    node.hooks = dict(enumerate(hooks))
    return node


@pytest.mark.exercise("hooks")
def test_hooks_see_and_replace_gradients() -> None:
    seen: list[float] = []
    node = hooked(lambda g: seen.append(g), lambda g: g * 10, lambda g: seen.append(g))
    expect(
        "the result of hooks that look, multiply by 10, look",
        graph._run_hooks(node, 2.0),
        20.0,
        mistakes={"a hook that returns None must leave the gradient": None},
    )
    expect("the gradients that two hooks saw", seen, [2.0, 20.0])
    expect("0 is a gradient too", graph._run_hooks(hooked(lambda g: 0.0), 2.0), 0.0)


@pytest.mark.exercise("hooks")
def test_a_hook_may_take_itself_off() -> None:
    node = hooked()
    node.hooks[0] = lambda g: node.hooks.pop(0) and None
    node.hooks[1] = lambda g: g + 1
    expect("with a hook that removes itself", graph._run_hooks(node, 1.0), 2.0)
    expect("the hooks left", list(node.hooks), [1])


# ---- gradients-of --------------------------------------------------------------------------------


@pytest.mark.exercise("gradients-of")
def test_gradients_of_what_is_asked_for() -> None:
    top, (a, b, c, _, _) = diamond()
    other = Node("other")
    found = graph.gradients_of(top, 1.0, [b, a, other])
    expect(
        "gradients of top for [b, a, an unrelated node]", found, [24.0, 37.0, None], given=DIAMOND
    )
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
    expect("a.grad, which must not be set", a.grad, None)


@pytest.mark.exercise("grad-function")
def test_zero_where_it_does_not_depend_and_derivatives_of_derivatives() -> None:
    a = tensor([2.0])
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
