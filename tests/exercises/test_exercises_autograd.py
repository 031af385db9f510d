"""Part 1 of the course: recording, order, reverse pass. Each test belongs to one exercise."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from toy_graph import Choose, IsPositive, Node, Plus, Product, Times, tensor

from apps.course.compare import expect
from needle import Tensor
from needle.autograd import graph


@pytest.fixture(autouse=True)
def recording_after_a_test() -> Iterator[None]:
    """Turn recording on again, so that a wrong no_grad does not fail the other exercises' tests."""
    yield
    graph.recording.on = True


# ---- record --------------------------------------------------------------------------------------


@pytest.mark.exercise("record")
def test_a_node_knows_its_value_and_where_it_came_from() -> None:
    a, b, op = tensor([1.0, 2.0]), tensor([3.0, 5.0]), Product()
    node = Tensor.make_from_op(op, (a, b))
    given = {"a": a, "b": b}
    expect("the value of Product()(a, b)", node, np.array([3.0, 10.0]), given=given)
    expect("node.op is the op", node.op is op, True)
    names = [{id(a): "a", id(b): "b"}.get(id(each), "another object") for each in node.inputs]
    expect("the names of node.inputs", names, ["a", "b"])
    leaf = {"the node itself must require a gradient, so that its users are recorded too": False}
    expect("node.requires_grad", node.requires_grad, True, mistakes=leaf)
    expect("its class", type(node), Tensor)


@pytest.mark.exercise("record")
def test_of_constants_nothing_is_recorded() -> None:
    a, b = tensor([1.0], requires_grad=False), tensor([3.0], requires_grad=False)
    node = Tensor.make_from_op(Product(), (a, b))
    expect("the value", node, np.array([3.0]))
    always = {"no input requires a gradient, and yet the node is recorded": node.op}
    expect("node.op of two constants", node.op, None, mistakes=always)
    expect("node.inputs of two constants", node.inputs, ())
    expect("node.requires_grad", node.requires_grad, False)
    free = tensor([1.0])
    found = [Tensor.make_from_op(Product(), pair).requires_grad for pair in ((free, b), (a, free))]
    mistakes = {
        "only the first input was looked at": [True, False],
        "one input that requires a gradient is enough": [False, False],
    }
    expect(
        "node.requires_grad, if only the first, only the second input requires a gradient",
        found,
        [True, True],
        mistakes=mistakes,
    )
    node = Tensor.make_from_op(Product(), (a, free))
    expect("node.op if the second input requires a gradient", isinstance(node.op, Product), True)
    expect("len(node.inputs): all inputs, constants too", len(node.inputs), 2)


@pytest.mark.exercise("record")
def test_flat_ops_and_no_grad_give_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    a = tensor([1.0, -2.0])
    node = Tensor.make_from_op(IsPositive(), (a,))
    expect("the value", node, np.array([1.0, 0.0]))
    flat = {"op.differentiable was not looked at": node.op}
    expect("node.op of an op with differentiable = False", node.op, None, mistakes=flat)
    expect("node.requires_grad of such an op's result", node.requires_grad, False)
    monkeypatch.setattr(graph.recording, "on", False)
    node = Tensor.make_from_op(Product(), (a, a))
    off = {"recording.on was not looked at": node.op}
    expect("node.op while recording.on is False", node.op, None, mistakes=off)
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
        "the order of the visits in reverse is not enough: c comes before its input a": [
            "b",
            "c",
            "a",
            "d",
        ],
    }
    given = {"graph": "c = a * b; d = c + a"}
    expected = ["a", "b", "c", "d"]
    expect("the order of d's graph", sorted_names(d), expected, given=given, mistakes=mistakes)
    mistakes = {
        "the last input is visited first": [*"bacd"],
        "`visited` holds what earlier calls appended; skip those nodes": [*"abcabcd"],
    }
    expect("the order of [c, d]", sorted_names(c, d), expected, given=given, mistakes=mistakes)
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
    mistakes = {
        "pending holds a list of contributions for each input": {a: 30.0, b: 20.0},
        "the inputs get c's gradient itself; gradient_as_tuple computes theirs": {
            a: [10.0],
            b: [10.0],
        },
    }
    given = {"c": "a * b", "a": 2.0, "b": 3.0, "gradient of c": 10.0}
    expect("pending", pending, {a: [30.0], b: [20.0]}, given=given, mistakes=mistakes)


@pytest.mark.exercise("pass-on")
def test_parts_are_added_to_what_is_pending() -> None:
    a = Node("a", 2.0)
    c = Times()("c", a, a)
    pending: dict[Any, list[Any]] = {a: [1.0]}
    graph._pass_on(c, 10.0, pending)
    given = {"c": "a * a", "a": 2.0, "pending before": "{a: [1.0]}", "gradient of c": 10.0}
    mistakes = {
        "what was pending is overwritten": {a: [20.0]},
    }
    expect("pending", pending, {a: [1.0, 20.0, 20.0]}, given=given, mistakes=mistakes)


@pytest.mark.exercise("pass-on")
def test_who_wants_none_gets_none() -> None:
    a, fixed = Node("a", 2.0), Node("fixed", 3.0, requires_grad=False)
    pending: dict[Any, list[Any]] = {}
    graph._pass_on(Times()("c", a, fixed), 1.0, pending)
    constant = {"an input with requires_grad = False gets nothing": {a: [3.0], fixed: [2.0]}}
    expect("pending, if one input requires no gradient", pending, {a: [3.0]}, mistakes=constant)
    pending = {}
    b = Node("b")
    graph._pass_on(Choose()("c", a, b), 1.0, pending)
    nothing = {"a part that is None is no contribution; skip it": {a: [1.0], b: [None]}}
    expect("pending, if the op's second part is None", pending, {a: [1.0]}, mistakes=nothing)


# ---- reverse-pass --------------------------------------------------------------------------------


def walked(top: Node, order: list[Node], **options: Any) -> list[tuple[str, float]]:
    seen: list[tuple[str, float]] = []
    graph.reverse_pass(order, 1.0, lambda node, grad: seen.append((node.name, grad)), **options)
    return seen


def diamond() -> tuple[Node, list[Node]]:
    """Return top = c * c + a with c = a * b, a = 2, b = 3."""
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
    first, last = [("c", 6.0), ("b", 12.0), ("a", 1.0)], [("c", 6.0), ("b", 12.0), ("a", 18.0)]
    mistakes = {
        "only the first of several contributions counts: sum them": [*expected[:2], *first],
        "only the last of several contributions counts: sum them": [*expected[:2], *last],
        "only the last node was visited: walk backwards, and pass each gradient on": expected[:1],
    }
    expect(
        "(node, gradient) as visited",
        walked(top, order),
        expected,
        given=DIAMOND,
        mistakes=mistakes,
    )
    popped = {"without release the nodes stay in order": 0}
    expect("the length of order afterwards", len(order), 5, mistakes=popped)


@pytest.mark.exercise("reverse-pass")
def test_the_hooks_of_a_node_run_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_run_hooks", lambda node, grad: grad * 10)
    a = Node("a", 2.0)
    top = Plus()("top", a, Node("b", 3.0))
    top.hooks = {0: "a hook that multiplies by 10"}
    expected = [("top", 10.0), ("b", 10.0), ("a", 10.0)]
    mistakes = {
        "the hooks do not run": [("top", 1.0), ("b", 1.0), ("a", 1.0)],
    }
    expect(
        "(node, gradient) as visited",
        walked(top, [a, top.inputs[1], top]),
        expected,
        given={"graph": "top = a + b", "hooks of top": "multiply by 10"},
        mistakes=mistakes,
    )


@pytest.mark.exercise("reverse-pass")
def test_what_nothing_flows_to_is_not_visited() -> None:
    top, order = diamond()
    stray = Times()("stray", order[0], order[1])
    order[3:3] = [stray]
    reached = {"no gradient has reached it: skip it": ["top", "d", "stray", "c", "b", "a"]}
    expect(
        "the visited nodes, if order has one, stray, that top does not use",
        [name for name, _ in walked(top, list(order))],
        ["top", "d", "c", "b", "a"],
        mistakes=reached,
    )
    released: list[str] = []
    walked(top, order, release=lambda node: released.append(node.name))
    kept = {"a node that no gradient reached is released too": [*"top d c b a".split()]}
    expect(
        "the released nodes",
        released,
        ["top", "d", "stray", "c", "b", "a"],
        mistakes=kept,
    )


@pytest.mark.exercise("reverse-pass")
def test_the_walk_stops_where_it_is_told() -> None:
    top, order = diamond()
    c = order[2]
    expected = [("top", 1.0), ("d", 1.0), ("c", 12.0), ("a", 1.0)]
    mistakes = {
        "stops was not looked at: nothing is passed on from its nodes": [
            *expected[:3],
            ("b", 24.0),
            ("a", 37.0),
        ],
    }
    expect(
        "the visited nodes with stops = {c}",
        walked(top, order, stops={c}),
        expected,
        given=DIAMOND,
        mistakes=mistakes,
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
        "the first events with a release function: a node is popped, visited, released",
        events[:4],
        ["visit top", "release top, 4 left", "visit d", "release d, 3 left"],
    )
    expect("order afterwards", order, [])
