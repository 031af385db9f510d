"""Graphs for the exercises on autograd.

Graphs of floats need no op; graphs of Tensors use ops defined here, and only + of needle.ops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from needle import Tensor, init
from needle.autograd import TensorOp
from needle.autograd.graph import Op

DEVICE = init.default_device()


class Node:
    """A node whose value and gradient are floats."""

    def __init__(self, name: str, value: float = 0.0, requires_grad: bool = True) -> None:
        self.name, self.value, self.requires_grad = name, value, requires_grad
        self.op: Any = None
        self.inputs: tuple[Node, ...] = ()
        self.hooks = self.saved = None

    def __repr__(self) -> str:
        return self.name


class NodeOp(Op):
    """An op on nodes: ``OP("name", a, b)`` returns the node of the result."""

    def __call__(self, name: str, *inputs: Node) -> Node:
        node = Node(name, self.compute(*[each.value for each in inputs]))
        node.op, node.inputs = self, inputs
        return node


class Times(NodeOp):
    def compute(self, a: float, b: float) -> float:
        return a * b

    def gradient(self, out_grad: float, node: Node) -> tuple[float, float]:
        a, b = node.inputs
        return out_grad * b.value, out_grad * a.value


class Plus(NodeOp):
    def compute(self, a: float, b: float) -> float:
        return a + b

    def gradient(self, out_grad: float, node: Node) -> list[float]:
        return [out_grad, out_grad]


class Choose(NodeOp):
    """An op that returns the first of two inputs; the second has no gradient."""

    def compute(self, a: float, b: float) -> float:
        return a

    def gradient(self, out_grad: float, node: Node) -> tuple[float, None]:
        return out_grad, None


class Product(TensorOp):
    """The product of Tensors of one shape, whose gradient uses the op itself."""

    def compute(self, a: Any, b: Any) -> Any:
        return a * b

    def gradient(self, out_grad: Tensor, node: Tensor) -> tuple[Tensor, Tensor]:
        a, b = node.inputs
        return Product()(out_grad, b), Product()(out_grad, a)


class IsPositive(TensorOp):
    """The op that is 1 where a > 0, without gradient."""

    differentiable = False

    def compute(self, a: Any) -> Any:
        return (a > 0) * 1.0


def tensor(values: Any, requires_grad: bool = True) -> Tensor:
    """Return a float64 Tensor on the default device of needle.init."""
    host = np.array(values, dtype="float64")
    return Tensor(host, device=DEVICE, dtype="float64", requires_grad=requires_grad)
