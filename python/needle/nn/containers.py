"""Modules composed of modules, and modules that reshape their input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import ops
from ..autograd import Tensor
from ..errors import ShapeError, check_callables
from ..shapes import product, shape_of
from .fusion import is_plain, steps, takes_residual
from .module import Module


class Identity(Module):
    """Identity function: x -> x."""

    def forward(self, x: Any) -> Any:
        return x


class Flatten(Module):
    """A layer that flattens all axes but the first: (N, ...) -> (N, product of the others)."""

    def forward(self, x: Tensor) -> Tensor:
        shape = shape_of("Flatten", x)
        if not shape:
            raise ShapeError(
                "Flatten: the input must have a batch axis, got shape (); reshape the input to (N,)"
            )
        return ops.reshape(x, (shape[0], product(shape[1:])))


class Sequential(Module):
    """Composition of modules; ``modules`` is their tuple, ``model[i]`` is one of them.

    A convolution, linear layer or batch norm runs as one kernel with a ReLU after it (``fusion``).
    TypeError for a class, a list, or anything else that cannot be called.
    """

    def __init__(self, *modules: Module) -> None:
        super().__init__()
        check_callables("Sequential", "modules", modules)
        self.modules = modules

    def named_members(self) -> Iterator[tuple[str, Any]]:
        """Yield the modules with PyTorch's names "0", "1", ... instead of "modules.0"."""
        for name, value in super().named_members():
            if name == "modules":
                yield from ((str(i), module) for i, module in enumerate(value))
            else:
                yield name, value

    def forward(self, x: Any) -> Any:
        ### BEGIN YOUR SOLUTION [compose]
        for step in steps(self.modules):
            x = step(x)
        return x
        ### END YOUR SOLUTION

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return Sequential(*self.modules[index])
        return self.modules[index]

    def __len__(self) -> int:
        return len(self.modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)


_SEQUENTIAL = Sequential.forward


class Residual(Module):
    """Residual connection: fn(x) + x.

    In a Sequential with a ReLU after it, a batch norm at the end of ``fn``, the addition and the
    ReLU run as one kernel (``fusion``).
    """

    def __init__(self, fn: Module) -> None:
        super().__init__()
        check_callables("Residual", "modules", [fn])
        self.fn = fn

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [compose]
        result: Tensor = self.fn(x) + x
        return result
        ### END YOUR SOLUTION

    def forward_relu(self, x: Tensor) -> Tensor:
        """Return relu(fn(x) + x), computed in as few passes over memory as ``fn`` allows."""
        fn = self.fn
        if not isinstance(fn, Sequential) or not fn.modules or not is_plain(fn, _SEQUENTIAL):
            return ops.relu(self.forward(x))
        before: tuple[Module, ...] = fn.modules[:-1]
        last: Any = fn.modules[-1]
        if not takes_residual(last):
            return ops.relu(self.forward(x))
        y = x
        for step in steps(before):
            y = step(y)
        if y.shape != x.shape:  # the addition broadcasts
            return ops.relu(last(y) + x)
        result: Tensor = last.forward_relu(y, x)
        return result

    fusible = forward
