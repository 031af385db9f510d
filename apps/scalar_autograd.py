"""Reverse-mode differentiation of scalars, and a small network made of them, in 60 lines.

Part 0 of the course. ``needle.autograd`` does the same for arrays.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence


class Scalar:
    """A number that records how it was computed.

    inputs: the Scalars it was computed from. slopes: its derivative with respect to each of them.
    grad: the derivative of the last result of ``backward`` with respect to this number.
    """

    def __init__(
        self, value: float, inputs: Sequence[Scalar] = (), slopes: Sequence[float] = ()
    ) -> None:
        self.value, self.grad = float(value), 0.0
        self.inputs, self.slopes = inputs, slopes

    def __add__(self, other: Scalar | float) -> Scalar:
        """Return self + other."""
        other = other if isinstance(other, Scalar) else Scalar(other)
        ### BEGIN YOUR SOLUTION [scalar-add]
        return Scalar(self.value + other.value, (self, other), (1.0, 1.0))
        ### END YOUR SOLUTION

    def __mul__(self, other: Scalar | float) -> Scalar:
        """Return self * other."""
        other = other if isinstance(other, Scalar) else Scalar(other)
        ### BEGIN YOUR SOLUTION [scalar-multiply]
        return Scalar(self.value * other.value, (self, other), (other.value, self.value))
        ### END YOUR SOLUTION

    def tanh(self) -> Scalar:
        """Return the hyperbolic tangent."""
        ### BEGIN YOUR SOLUTION [scalar-tanh]
        result = math.tanh(self.value)
        return Scalar(result, (self,), (1 - result**2,))
        ### END YOUR SOLUTION

    def backward(self) -> None:
        """Compute ``grad`` of every Scalar that this one was computed from."""
        order = inputs_first(self)
        for node in order:
            node.grad = 0.0
        ### BEGIN YOUR SOLUTION [scalar-backward]
        self.grad = 1.0
        for node in reversed(order):
            for source, slope in zip(node.inputs, node.slopes, strict=True):
                source.grad += slope * node.grad
        ### END YOUR SOLUTION

    __radd__, __rmul__ = __add__, __mul__


def inputs_first(result: Scalar) -> list[Scalar]:
    """Return all Scalars that ``result`` was computed from, each once and after its inputs."""
    ### BEGIN YOUR SOLUTION [scalar-order]
    order: list[Scalar] = []
    seen: set[Scalar] = set()

    def visit(node: Scalar) -> None:
        if node not in seen:
            seen.add(node)
            for source in node.inputs:
                visit(source)
            order.append(node)

    visit(result)
    return order
    ### END YOUR SOLUTION


class Network:
    """A network of two layers: (x, y) -> ``width`` tanh units -> one number."""

    def __init__(self, width: int, seed: int = 0) -> None:
        draw = random.Random(seed).gauss
        self.hidden = [[Scalar(draw(0, 1)) for _ in range(3)] for _ in range(width)]
        self.last = [Scalar(draw(0, 1) / math.sqrt(width)) for _ in range(width)]

    def parameters(self) -> list[Scalar]:
        """Return all weights and biases."""
        return [weight for unit in self.hidden for weight in unit] + self.last

    def __call__(self, x: float, y: float) -> Scalar:
        """Return the answer for a point: positive for one class, negative for the other."""
        ### BEGIN YOUR SOLUTION [scalar-network]
        units = [(a * x + b * y + c).tanh() for a, b, c in self.hidden]
        return sum((weight * unit for weight, unit in zip(self.last, units)), Scalar(0.0))
        ### END YOUR SOLUTION


def train_step(
    network: Network, points: Sequence[tuple[float, float]], targets: Sequence[float], lr: float
) -> float:
    """Take one step of gradient descent on the mean squared error; return the error before it.

    targets: 1.0 or -1.0 for each point. lr: the learning rate.
    """
    error = Scalar(0.0)
    for (x, y), target in zip(points, targets, strict=True):
        distance = network(x, y) + -target
        error = error + distance * distance * (1 / len(points))
    ### BEGIN YOUR SOLUTION [scalar-step]
    error.backward()
    for parameter in network.parameters():
        parameter.value -= lr * parameter.grad
    ### END YOUR SOLUTION
    return error.value


def two_moons(count: int, seed: int = 0) -> tuple[list[tuple[float, float]], list[float]]:
    """Return points on two interleaved half circles, with noise, and their classes 1.0 and -1.0."""
    noise = random.Random(seed).gauss
    points, targets = [], []
    for number in range(count):
        angle, upper = math.pi * number / (count - 1), number % 2 == 0
        x, y = math.cos(angle), math.sin(angle)
        x, y = (x, y) if upper else (1 - x, 0.5 - y)
        points.append((x + noise(0, 0.1), y + noise(0, 0.1)))
        targets.append(1.0 if upper else -1.0)
    return points, targets
