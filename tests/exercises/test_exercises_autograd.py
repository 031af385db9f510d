"""Part 1 of the course: recording, order, reverse pass. Each test belongs to one exercise."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from by_hand import outcome
from toy_graph import Choose, IsPositive, Node, Plus, Product, Times, tensor

import needle
from apps.course.compare import expect, expect_error
from needle import Tensor
from needle.autograd import derivative, graph
from needle.autograd.tensor import seed_gradient
from needle.errors import ShapeError


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
        "only the last input was looked at": [False, True],
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
        "a node appears twice: record the visited nodes": ["a", "b", "c", "a", "d"],
        "breadth first: finish the first input before the second": ["a", "b", "a", "c", "d"],
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
        "the parts are swapped": {a: [20.0], b: [30.0]},
        "pending holds a list of contributions for each input": {a: 30.0, b: 20.0},
        "the gradient of c is missing: give it to gradient_as_tuple": {a: [3.0], b: [2.0]},
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
        "one of the two parts is lost: a is an input twice": {a: [1.0, 20.0]},
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
        "visit must see the gradient that the hooks return": [("top", 1.0), *expected[1:]],
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
        "a node in stops is visited; only its inputs get nothing": [*expected[:2], expected[3]],
        "the walk ends at the first node in stops; it must go on with the others": expected[:3],
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
        "with one element each, out_grad is reshaped to the shape of output": np.array([2.0]),
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
