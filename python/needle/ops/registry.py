"""The ``@op`` decorator and the table of ops that tests and docs enumerate.

An op is one section of a family file: the class with ``compute`` and ``gradient``, followed by the
decorated public function:

    class Sin(TensorOp):
        def compute(self, a): return xp.sin(a)
        def gradient(self, out_grad, node): return out_grad * cos(node.inputs[0])

    @op(Sin, methods=["sin"])
    def sin(a: Tensor) -> Tensor:
        \"\"\"Return the sine of ``a``, elementwise.\"\"\"
        return Sin()(a)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..autograd import Op, Tensor, TensorOp
from ..torch_names import points_to_keywords

Function = TypeVar("Function", bound=Callable[..., Any])
Array = Any
"""The array type that ``compute`` receives: needle's, or NumPy's in NumPy mode."""
Host = np.ndarray[Any, Any]
Axes = int | Sequence[int] | None
Parts = tuple[Tensor | None, ...]
"""The gradients of an op's inputs; None for an input that requires none."""


class LinearOp(TensorOp):
    """An op with a gradient that reads no value: linear, a rearrangement or a step function."""

    reads = ()


@dataclass(frozen=True)
class Row:
    """One op: its public name and function, its classes and its Tensor methods."""

    name: str
    function: Callable[..., Any]
    classes: tuple[type[Op], ...]
    methods: tuple[str, ...]
    family: str
    """The module of ``needle.ops`` that contains the op."""


REGISTRY: dict[str, Row] = {}
RENAMED = frozenset("axis axes axis1 ids kernel logits repetitions start widths".split())
"""Parameters that PyTorch names differently, in functions where a wrapper costs little."""
METHODS: dict[str, Callable[..., Any] | property] = {}
"""All methods and properties attached to Tensor."""
COURSE_CLASSES = frozenset(
    "EWiseAdd AddScalar EWiseMul MulScalar EWiseDiv DivScalar EWisePow PowerScalar MatMul "
    "Summation BroadcastTo Reshape Transpose Negate Log Exp ReLU Tanh LogSumExp LogSoftmax "
    "Stack Split Flip Dilate UnDilate Conv MakeTensorTuple TupleGetItem FusedAddScalars".split()
)
"""The op classes that programs of the course use by name."""


def op(*classes: type[Op], methods: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Register a public function, the op classes behind it, and its Tensor methods.

    ``methods`` are names on Tensor, including operators (``"__add__"``); the function's first
    argument is then the tensor. The function itself is returned; if it has a parameter in
    ``RENAMED``, it is wrapped so that the TypeError for PyTorch's keyword names needle's.
    """

    def register(function: Function) -> Function:
        if not RENAMED.isdisjoint(function.__annotations__):
            function = points_to_keywords(function)
        name = function.__name__
        assert name not in REGISTRY, f"op {name!r} is registered twice"
        family = function.__module__.rpartition(".")[2]
        REGISTRY[name] = Row(name, function, classes, tuple(methods), family)
        for method in methods:
            attach(method, function)
        return function

    return register


def attach(method: str, function: Callable[..., Any] | property) -> None:
    """Make ``function`` the Tensor method ``method``; each name may be attached once."""
    assert method not in vars(Tensor), f"Tensor.{method} is already taken"
    setattr(Tensor, method, function)
    METHODS[method] = function
