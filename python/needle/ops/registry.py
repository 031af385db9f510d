"""The ``@op`` decorator and the table that tests and docs enumerate. No op is named here.

An op is one section of a family file: the class with ``compute`` and ``gradient``, and right under
it the public function, decorated:

    class Exp(TensorOp):
        def compute(self, a): return xp.exp(a)
        def gradient(self, out_grad, node): return out_grad * node

    @op(Exp, methods=["exp"])
    def exp(a: Tensor) -> Tensor:
        \"\"\"e**a, elementwise.\"\"\"
        return Exp()(a)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..autograd import Op, Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Row:
    """One op: its public name and function, the classes behind it, the Tensor methods it gives."""

    name: str
    function: Callable[..., Any]
    classes: tuple[type[Op], ...]
    methods: tuple[str, ...]
    family: str
    """The module of ``needle.ops`` where it is written."""


REGISTRY: dict[str, Row] = {}
METHODS: dict[str, Callable[..., Any]] = {}
"""Every method that was attached to Tensor."""


def op(*classes: type[Op], methods: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Registers a public function, the op classes it is made of, and it as Tensor methods.

    ``methods`` are names on Tensor, operators too (``"__add__"``); the function's first argument
    is then the tensor. The function itself is returned unchanged: a call costs nothing extra.
    """

    def register(function: Function) -> Function:
        name = function.__name__
        assert name not in REGISTRY, f"op {name!r} is registered twice"
        family = function.__module__.rpartition(".")[2]
        REGISTRY[name] = Row(name, function, classes, tuple(methods), family)
        for method in methods:
            attach(method, function)
        return function

    return register


def attach(method: str, function: Callable[..., Any]) -> None:
    """Makes ``function`` the Tensor method of that name; a name is given once."""
    assert method not in vars(Tensor), f"Tensor.{method} is already taken"
    setattr(Tensor, method, function)
    METHODS[method] = function
