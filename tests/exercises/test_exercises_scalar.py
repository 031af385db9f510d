"""Part 0 of the course: a scalar autograd and a network on two moons."""

import math
from collections.abc import Iterable

import numpy as np
import pytest

from apps.course.compare import expect
from apps.scalar_autograd import Network, Scalar, inputs_first, train_step


def made(value: float, *parts: tuple[Scalar, float]) -> Scalar:
    """Return a Scalar without using an operator."""
    return Scalar(value, tuple(each for each, _ in parts), tuple(slope for _, slope in parts))


def names_of(nodes: Iterable[Scalar], **known: Scalar) -> list[str]:
    """Return the names of nodes."""
    names = {id(node): name for name, node in known.items()}
    return [names.get(id(node), "another object") for node in nodes]


def expect_node(what: str, got: object, given: dict[str, float]) -> None:
    """Raise WrongAnswer unless ``got`` is a Scalar."""
    number = {"a plain number does not remember its inputs; return a Scalar": "float"}
    expect(f"the type of {what}", type(got).__name__, "Scalar", given=given, mistakes=number)


@pytest.mark.exercise("scalar-add")
def test_a_sum() -> None:
    a, b = Scalar(2), Scalar(-5)
    c = a + b
    given = {"a": 2, "b": -5}
    expect_node("a + b", c, given)
    changed = {"an input was changed; the sum is a new Scalar": -3.0}
    expect("a.value afterwards", a.value, 2.0, given=given, mistakes=changed)
    expect("(a + b).value", c.value, -3.0, given=given)
    names = names_of(c.inputs, a=a, b=b)
    leaf = {"the inputs are missing; without them no gradient flows back": []}
    expect("(a + b).inputs", names, ["a", "b"], given=given, mistakes=leaf)
    values = {"the slope of a sum is 1 for both inputs, whatever their values": [2.0, -5.0]}
    expect("(a + b).slopes", list(c.slopes), [1.0, 1.0], given=given, mistakes=values)
    expect("(a + 3).value", (a + 3).value, 5.0, given={"a": 2})


@pytest.mark.exercise("scalar-multiply")
def test_a_product() -> None:
    a, b = Scalar(2), Scalar(-5)
    c = a * b
    given = {"a": 2, "b": -5}
    expect_node("a * b", c, given)
    expect("(a * b).value", c.value, -10.0, given=given)
    leaf = {"the inputs are missing; without them no gradient flows back": []}
    names = names_of(c.inputs, a=a, b=b)
    expect("(a * b).inputs", names, ["a", "b"], given=given, mistakes=leaf)
    nodes = {"the slopes must be numbers, such as b.value": True}
    some = any(isinstance(slope, Scalar) for slope in c.slopes)
    expect("a slope of a * b is a Scalar", some, False, given=given, mistakes=nodes)
    mistakes = {
        "each slope is the factor itself; it must be the other one": [2.0, -5.0],
        "1 and 1 are the slopes of a sum": [1.0, 1.0],
    }
    expect("(a * b).slopes", list(c.slopes), [-5.0, 2.0], given=given, mistakes=mistakes)


@pytest.mark.exercise("scalar-tanh")
def test_a_curve() -> None:
    for value in (0.5, 0.0, -2.0):
        a = Scalar(value)
        c, t = a.tanh(), math.tanh(value)
        given = {"a": value, "tanh(a)": t}
        expect_node("a.tanh()", c, given)
        expect("a.tanh().value", c.value, t, given=given)
        expect("the inputs of a.tanh()", names_of(c.inputs, a=a), ["a"])
        mistakes = {
            "1 - a**2 instead of 1 - tanh(a)**2": 1 - value**2,
            "the sign is wrong": t**2 - 1,
            "the square is missing: 1 - tanh(a)": 1 - t,
            "tanh(a) itself is not its slope; that is 1 - tanh(a)**2": t,
        }
        expect("a.tanh().slopes[0]", c.slopes[0], 1 - t**2, given=given, mistakes=mistakes)


@pytest.mark.exercise("scalar-order")
def test_inputs_come_first() -> None:
    a, b = Scalar(1), Scalar(2)
    c = made(3, (a, 1.0), (b, 1.0))
    d = made(9, (c, 3.0), (c, 3.0))
    e = made(12, (c, 1.0), (d, 1.0))
    nodes = {"a": a, "b": b, "c": c, "d": d, "e": e}
    given = {"graph": "c = a + b; d = c * c; e = c + d"}
    order = inputs_first(e)
    given["inputs_first(e)"] = ", ".join(names_of(order, **nodes))
    missing = [name for name, node in nodes.items() if node not in order]
    top = {"the result itself is missing; it is the last node": ["e"]}
    expect("the nodes that the list lacks", missing, [], given=given, mistakes=top)
    repeated = [name for name, node in nodes.items() if order.count(node) > 1]
    twice = {"a node that is used twice is in the list twice; remember what was seen": repeated}
    expect("the nodes that it has more than once", repeated, [], given=given, mistakes=twice)

    def early(order: list[Scalar]) -> list[str]:
        late = (n for n in order if any(order.index(s) > order.index(n) for s in n.inputs))
        return names_of(late, **nodes)

    before = [e, c, a, b, d]
    mistakes = {
        "a node is appended before its inputs; append it after them": early(before),
        "the list of nodes before inputs, in reverse, is not enough: d was reached after c": early(
            before[::-1]
        ),
    }
    expect("the nodes before one of their inputs", early(order), [], given=given, mistakes=mistakes)


@pytest.mark.exercise("scalar-backward")
def test_gradients_of_one_operation() -> None:
    a, b = Scalar(2), Scalar(-5)
    c = a * b
    c.backward()
    given = {"a": 2, "b": -5, "c": "a * b"}
    seed = {"the gradient of the result by itself is 1; begin with it": 0.0}
    expect("c.grad", c.grad, 1.0, given=given, mistakes=seed)
    slope = {"the slope is missing: an input gets slope * gradient of the node": 1.0}
    expect("a.grad", a.grad, -5.0, given=given, mistakes=slope)
    expect("b.grad", b.grad, 2.0, given=given)


@pytest.mark.exercise("scalar-backward")
def test_a_chain() -> None:
    a = Scalar(2)
    (a * 3 * 5).backward()
    mistakes = {
        "the gradient of the node is missing: an input gets slope * gradient of the node": 3.0,
        "the gradient of a * 3 was not known yet: walk from the result to the inputs": 0.0,
    }
    given = {"result": "(a * 3) * 5", "a": 2}
    expect("a.grad", a.grad, 15.0, given=given, mistakes=mistakes)


@pytest.mark.exercise("scalar-backward")
def test_a_number_that_is_used_twice() -> None:
    a = Scalar(3)
    (a * a + a).backward()
    mistakes = {"one contribution replaces the other: += instead of =": 3.0}
    given = {"result": "a * a + a", "a": 3}
    expect("a.grad", a.grad, 7.0, given=given, mistakes=mistakes)
    (a * a).backward()
    expect("a.grad of a second result", a.grad, 6.0, given={"result": "a * a", "a": 3})


@pytest.mark.exercise("scalar-network")
def test_the_answer_of_a_network() -> None:
    network = Network(2)
    hidden, last, (x, y) = [[1.0, 2.0, 3.0], [-1.0, 0.5, -0.5]], [2.0, -3.0], (0.1, 0.2)
    network.hidden = [[Scalar(v) for v in unit] for unit in hidden]
    network.last = [Scalar(v) for v in last]
    given = {"network.hidden": hidden, "network.last": last, "x, y": (x, y)}
    found = network(x, y)
    expect("the type of network(x, y)", type(found).__name__, "Scalar", given=given)
    sums = [a * x + b * y + c for a, b, c in hidden]
    units = [math.tanh(each) for each in sums]
    flat = [math.tanh(a * x + b * y) for a, b, _ in hidden]

    def weighted(units: list[float]) -> float:
        return sum(w * unit for w, unit in zip(last, units, strict=True))

    mistakes = {
        "tanh is missing: each hidden unit is tanh(a * x + b * y + c)": weighted(sums),
        "the bias c is missing": weighted(flat),
        "the last layer has no tanh": math.tanh(weighted(units)),
        "the weights of the last layer are missing": sum(units),
    }
    expect("network(x, y).value", found.value, weighted(units), given=given, mistakes=mistakes)


@pytest.mark.exercise("scalar-step")
def test_one_step() -> None:
    network = Network(1)
    hidden, last, (x, y), target, lr = [1.0, -2.0, 0.5], 0.25, (0.5, 0.75), 1.0, 0.1
    network.hidden, network.last = [[Scalar(v) for v in hidden]], [Scalar(last)]
    unit = math.tanh(hidden[0] * x + hidden[1] * y + hidden[2])
    by_last = 2 * (last * unit - target) * unit
    by_sum = 2 * (last * unit - target) * last * (1 - unit**2)
    old = np.array([*hidden, last])
    grad = np.array([by_sum * x, by_sum * y, by_sum, by_last])
    train_step(network, [(x, y)], [target], lr=lr)
    right, only_last = old - lr * grad, old - lr * grad * np.array([0, 0, 0, 1])
    mistakes = {
        "nothing has changed: call backward first, then change the value of each parameter": old,
        "the step goes along the gradient, not against it": old + lr * grad,
        "the learning rate is missing": old - grad,
        "the parameters of the hidden layer did not change; take all parameters": only_last,
    }
    got = np.array([parameter.value for parameter in network.parameters()])
    given = {"parameters before": old, "their gradients": grad, "lr": lr}
    expect("the parameters after a step", got, right, given=given, mistakes=mistakes)
