"""One node of an ONNX graph as it runs, and the table of functions that run nodes.

The functions are in operators.py and windows.py, by what they do; importing.py calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray as NumpyArray

from ..autograd import Tensor
from .package import OnnxError


@dataclass(frozen=True)
class Call:
    """One node as it runs: its operator, its name, its inputs and its attributes."""

    kind: str
    name: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.tensor(0)

    def tensor(self, index: int) -> Tensor:
        """An input that has to be there."""
        if index >= len(self.inputs) or self.inputs[index] is None:
            raise self.refuse(f"input {index} must be given")
        found: Tensor = self.inputs[index]
        return found

    def optional(self, index: int) -> Tensor | None:
        """An input that need not be there."""
        return self.inputs[index] if index < len(self.inputs) else None

    def numbers(self, index: int) -> NumpyArray[Any] | None:
        """The values of an optional input that says how to compute, on the host."""
        given = self.optional(index)
        return None if given is None else given.numpy()

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def refuse(self, why: str) -> OnnxError:
        """The error that names this node."""
        return OnnxError(f"onnx: {self.kind} (node {self.name!r}): {why}")

    def only(self, **values: Any) -> None:
        """Refuses an attribute that has another value than the one that is computed."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise self.refuse(f"{name} must be {value!r}, got {self.get(name)!r}")


Operator = Callable[[Call], Any]
OPERATORS: dict[str, Operator] = {}


def operator(name: str) -> Callable[[Operator], Operator]:
    """Registers the function of an operator."""

    def register(function: Operator) -> Operator:
        OPERATORS[name] = function
        return function

    return register
