"""The call of one ONNX node at run time, and the table of functions that run nodes.

The functions are in the files of operators/; nodes.py calls them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..autograd import Tensor
from ..autograd.graph import recording
from ..dtypes import COMPUTE_DTYPES
from .package import OPSET, OnnxError

MAX_ELEMENTS = 2**28
"""Maximum number of elements of a result if a file determines its size (1 GiB of float32)."""


@dataclass(frozen=True)
class Call:
    """The call of one node: its operator, name, inputs and attributes."""

    kind: str
    name: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    opset: int = OPSET
    outputs: int = 1
    """The number of outputs up to the last one that is read."""
    listed_outputs: int = 1
    """The number of outputs named in the file."""

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.tensor(0)

    def tensor(self, index: int) -> Tensor:
        """Return a required input; raise OnnxError if it is missing."""
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
        return None if given is None else np.asarray(given.numpy())

    def array(self, index: int) -> NumpyArray[Any]:
        """Return the values of a required input on the host."""
        self.tensor(index)
        found = self.numbers(index)
        assert found is not None
        return found

    def integers(self, index: int, name: str = "") -> list[int] | None:
        """Return the integers of an optional input, or of the attribute ``name``."""
        values = self.numbers(index)
        if values is None:
            return self.listed(name) if name else None
        if values.ndim > 1 or values.dtype.kind not in "iu":
            raise self.refuse(
                f"input {index} must be a vector of integers, got {values.dtype} of shape "
                f"{values.shape}"
            )
        return [int(each) for each in values.reshape(-1)]

    def scalar(self, index: int, default: Any = None, name: str = "") -> Any:
        """Return the number in an optional input of one element, or in an attribute ``name``."""
        values = self.numbers(index)
        if values is None:
            return self.get(name, default)
        if values.size != 1:
            raise self.refuse(f"input {index} must be one number, got shape {values.shape}")
        return values.reshape(-1)[0].item()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute."""
        return self.attributes.get(name, default)

    def listed(self, name: str) -> list[int] | None:
        """Return an attribute that is a list of integers, or None."""
        values = self.get(name)
        return None if values is None else [int(each) for each in values]

    def choice(self, name: str, *allowed: str) -> str:
        """Return a string attribute, which must be in ``allowed``; the first is the default."""
        found = self.get(name, allowed[0])
        if found not in allowed:
            raise self.refuse(f"{name} must be one of {', '.join(allowed)}, got {found!r}")
        return str(found)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an attribute that is 0 or 1."""
        found = self.get(name, default)
        if found not in (0, 1):
            raise self.refuse(f"{name} must be 0 or 1, got {found!r}")
        return bool(found)

    def axis(self, axis: int, ndim: int | None = None) -> int:
        """Return an axis in [-ndim, ndim - 1], counted from the front."""
        ndim = len(self.x.shape) if ndim is None else ndim
        if not -ndim <= axis < ndim:
            raise self.refuse(f"an axis must be in [{-ndim}, {ndim - 1}], got {axis}")
        return axis % ndim

    def axes(self, axes: Sequence[int], ndim: int | None = None) -> tuple[int, ...]:
        """Return distinct axes in [-ndim, ndim - 1], counted from the front."""
        found = tuple(self.axis(int(axis), ndim) for axis in axes)
        if len(set(found)) != len(found):
            raise self.refuse(f"axes must be distinct, got {list(axes)}")
        return found

    def sized(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a result's shape; raise OnnxError if it has a negative size or is too large."""
        if any(size < 0 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
            raise self.refuse(
                f"the result would have shape {tuple(shape)}; sizes must be 0 or more, and their "
                f"product at most {MAX_ELEMENTS}"
            )
        return tuple(int(size) for size in shape)

    def broadcast(self, *values: Tensor) -> tuple[int, ...]:
        """Return the common shape of values that broadcast."""
        return self.sized(np.broadcast_shapes(*(value.shape for value in values)))

    def stretched(self, value: Tensor, shape: Sequence[int], what: str) -> Tensor:
        """Return ``value`` if it broadcasts to exactly ``shape``, else raise OnnxError."""
        own = tuple(value.shape)
        fits = len(own) <= len(shape) and all(
            mine in (1, size) for mine, size in zip(own[::-1], tuple(shape)[::-1], strict=False)
        )
        if not fits:
            raise self.refuse(f"{what} must broadcast to {tuple(shape)}, got shape {own}")
        return value

    def constant(self, array: Any, dtype: Any = None) -> Tensor:
        """Return a NumPy array as a constant on the device of the first input."""
        return constant(np.asarray(array, dtype), self.x.device)

    def on_host(self, function: Callable[..., Any]) -> Tensor:
        """Apply NumPy's ``function`` to all inputs, for operators without a gradient."""
        if recording.on and any(
            each.requires_grad and np.dtype(each.dtype).kind == "f" for each in self.inputs
        ):
            raise self.refuse("it has no gradient; run the model under no_grad()")
        arrays = [np.asarray(self.tensor(i).numpy()) for i in range(len(self.inputs))]
        return self.constant(function(*arrays))

    def refuse(self, why: str) -> OnnxError:
        """Return an OnnxError that gives ``why`` and names this node."""
        return OnnxError(f"{self.kind} (node {self.name!r}): {why}")

    def only(self, **values: Any) -> None:
        """Raise OnnxError if an attribute differs from the only supported value."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise self.refuse(f"{name} must be {value!r}, got {self.get(name)!r}")


def constant(array: NumpyArray[Any], device: Any) -> Tensor:
    """Return a NumPy array as a constant tensor on a device (None: the default)."""
    if array.dtype not in COMPUTE_DTYPES:
        raise OnnxError(
            f"values must be of {', '.join(map(str, COMPUTE_DTYPES))}, got dtype {array.dtype}; "
            "convert the model"
        )
    return Tensor(array.copy(), device=device, dtype=array.dtype, requires_grad=False)


Operator = Callable[[Call], Any]
OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Register the function of one or more operators."""

    def register(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register
