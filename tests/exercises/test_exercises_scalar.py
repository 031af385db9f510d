"""Part 0 of the course: a scalar autograd and a network on two moons."""

from __future__ import annotations

import math

import pytest

from apps.course.compare import expect
from apps.scalar_autograd import Network, Scalar, inputs_first, train_step, two_moons


def made(value: float, *parts: tuple[Scalar, float]) -> Scalar:
    """Return a Scalar without using an operator."""
    return Scalar(value, tuple(each for each, _ in parts), tuple(slope for _, slope in parts))


@pytest.mark.exercise("scalar-add")
def test_a_sum() -> None:
    a, b = Scalar(2), Scalar(-5)
    c = a + b
    expect("(a + b).value", c.value, -3.0, given={"a": 2, "b": -5})
    expect("(a + b).inputs", list(c.inputs), [a, b])
    expect("(a + b).slopes", list(c.slopes), [1.0, 1.0])
    expect("(a + 3).value", (a + 3).value, 5.0, given={"a": 2})


@pytest.mark.exercise("scalar-multiply")
def test_a_product() -> None:
    a, b = Scalar(2), Scalar(-5)
    c = a * b
    given = {"a": 2, "b": -5}
    expect("(a * b).value", c.value, -10.0, given=given)
    expect("(a * b).inputs", list(c.inputs), [a, b])
    swapped = {"each slope is the factor itself; it must be the other one": [2.0, -5.0]}
    expect("(a * b).slopes", list(c.slopes), [-5.0, 2.0], given=given, mistakes=swapped)


@pytest.mark.exercise("scalar-tanh")
def test_a_curve() -> None:
    for value in (0.0, 0.5, -2.0):
        a = Scalar(value)
        c, t = a.tanh(), math.tanh(value)
        given = {"a": value}
        expect("a.tanh().value", c.value, t, given=given)
        expect("len(a.tanh().inputs)", len(c.inputs), 1)
        mistakes = {"1 - a**2 instead of 1 - tanh(a)**2": 1 - value**2, "the sign": t**2 - 1}
        expect("a.tanh().slopes[0]", c.slopes[0], 1 - t**2, given=given, mistakes=mistakes)


@pytest.mark.exercise("scalar-order")
def test_inputs_come_first() -> None:
    a, b = Scalar(1), Scalar(2)
    c = made(3, (a, 1.0), (b, 1.0))
    d = made(9, (c, 3.0), (c, 3.0))
    e = made(10, (d, 1.0), (a, 1.0))
    order = inputs_first(e)
    expect("the number of nodes", len(order), 5)
    expect("the last node is the result", order[-1] is e, True)
    places = {node: place for place, node in enumerate(order)}
    for node in order:
        for source in node.inputs:
            expect("an input comes before its node", places[source] < places[node], True)


@pytest.mark.exercise("scalar-backward")
def test_gradients_of_one_operation() -> None:
    a, b = Scalar(2), Scalar(-5)
    c = a * b
    c.backward()
    given = {"a": 2, "b": -5, "c": "a * b"}
    expect("c.grad", c.grad, 1.0, given=given)
    expect("a.grad", a.grad, -5.0, given=given)
    expect("b.grad", b.grad, 2.0, given=given)


@pytest.mark.exercise("scalar-backward")
def test_a_number_that_is_used_twice() -> None:
    a = Scalar(3)
    (a * a + a).backward()
    mistakes = {"one contribution replaces the other: += instead of =": 3.0}
    given = {"result": "a * a + a", "a": 3}
    expect("a.grad", a.grad, 7.0, given=given, mistakes=mistakes)
    (a * a).backward()
    expect("a.grad of a second result", a.grad, 6.0, given={"result": "a * a", "a": 3})


@pytest.mark.exercise("scalar-backward")
def test_gradients_against_differences() -> None:
    def result(values: list[float]) -> tuple[Scalar, list[Scalar]]:
        a, b, c = inputs = [Scalar(value) for value in values]
        d = a * b + c
        return d * d * a + d * b + d, inputs

    values, step = [0.5, -1.5, 2.0], 1e-6
    top, inputs = result(values)
    top.backward()
    for place, each in enumerate(inputs):
        ends = []
        for sign in (1, -1):
            moved = [v + sign * step * (i == place) for i, v in enumerate(values)]
            ends.append(result(moved)[0].value)
        difference = (ends[0] - ends[1]) / (2 * step)
        given = {"d": "a * b + c", "result": "d * d * a + d * b + d", "a, b, c": values}
        expect(f"the gradient of {'abc'[place]}", each.grad, difference, given=given, rtol=1e-5)


@pytest.mark.exercise("scalar-network")
def test_the_answer_of_a_network() -> None:
    network = Network(2)
    network.hidden = [[Scalar(v) for v in (1, 2, 3)], [Scalar(v) for v in (-1, 0.5, 0)]]
    network.last = [Scalar(2), Scalar(-3)]
    right = 2 * math.tanh(1 * 0.1 + 2 * 0.2 + 3) - 3 * math.tanh(-0.1 + 0.5 * 0.2)
    found = network(0.1, 0.2)
    expect("network(0.1, 0.2).value", found.value, right)
    expect("network(0.1, 0.2) is a Scalar", isinstance(found, Scalar), True)


@pytest.mark.exercise("scalar-step")
def test_steps_make_the_error_smaller() -> None:
    points, targets = two_moons(20)
    network = Network(8)
    before = [parameter.value for parameter in network.parameters()]
    errors = [train_step(network, points, targets, lr=0.1) for _ in range(30)]
    after = [parameter.value for parameter in network.parameters()]
    expect("the parameters have changed", before != after, True)
    uphill = {"the error grows: the step goes along the gradient, not against it": True}
    grows = errors[-1] > errors[0]
    expect("the error after 30 steps is larger", grows, False, mistakes=uphill)
    expect("30 steps halve the error", errors[-1] < errors[0] / 2, True)
