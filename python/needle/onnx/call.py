"""One node of an ONNX graph at run time, and the table of functions that run nodes.

The functions are in operators.py and windows.py; importing.py calls them.
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
    """One node at run time: its operator, name, inputs and attributes."""

    kind: str
    name: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.tensor(0)

    def tensor(self, index: int) -> Tensor:
        """Return a required input; OnnxError if it is missing."""
        if index >= len(self.inputs) or self.inputs[index] is None:
            raise self.refuse(f"input {index} must be given")
        found: Tensor = self.inputs[index]
        return found

    def optional(self, index: int) -> Tensor | None:
        """Return an optional input, or None."""
        return self.inputs[index] if index < len(self.inputs) else None

    def numbers(self, index: int) -> NumpyArray[Any] | None:
        """Return the values of an optional input on the host, such as axes or sizes."""
        given = self.optional(index)
        return None if given is None else given.numpy()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute."""
        return self.attributes.get(name, default)

    def refuse(self, why: str) -> OnnxError:
        """Return an OnnxError that names this node."""
        return OnnxError(f"onnx: {self.kind} (node {self.name!r}): {why}")

    def only(self, **values: Any) -> None:
        """Raise OnnxError if an attribute differs from the only supported value."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise self.refuse(f"{name} must be {value!r}, got {self.get(name)!r}")


Operator = Callable[[Call], Any]
OPERATORS: dict[str, Operator] = {}


def operator(name: str) -> Callable[[Operator], Operator]:
    """Register the function of an operator."""

    def register(function: Operator) -> Operator:
        OPERATORS[name] = function
        return function

    return register
