"""``needle.grad``, which returns the gradient of a Python function as a function.

``Tensor.backward`` is in ``autograd``. Nothing here reads or sets ``.grad``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..array_namespace import array_api
from ..errors import GraphError, ShapeError
from .graph import enable_grad, gradients_of, no_grad, recording
from .tensor import Tensor, TensorOp, seed_gradient


class _Alias(TensorOp):
    """The identity op: its new node lets one tensor serve as two arguments."""

    def compute(self, a: Any) -> Any:
        """Return ``a``."""
        return a

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return ``out_grad``."""
        return out_grad


def grad(
    f: Callable[..., Tensor], argnums: int | Sequence[int] = 0
) -> Callable[..., Tensor | tuple[Tensor, ...]]:
    """Return the function that computes the gradient of a scalar ``f`` in argument ``argnums``.

    ``f`` takes and returns Tensors. A sequence of ``argnums`` returns a tuple of gradients. No
    ``.grad`` is set. Calls nest: ``grad(grad(f))`` is the second derivative. ShapeError if ``f``
    returns more than one element, GraphError if it does not return a Tensor or an argument is not
    positional.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def gradient(*args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        if not all(-len(args) <= i < len(args) for i in numbers):
            raise GraphError(
                f"grad: argnums must be indices of positional arguments, got {argnums} for "
                f"{len(args)} arguments; pass the argument by position"
            )
        given = [args[i] if isinstance(args[i], Tensor) else Tensor(args[i]) for i in numbers]
        higher = recording.on and any(isinstance(args[i], Tensor) for i in numbers)
        with enable_grad():
            points = [
                _Alias()(x) if higher and x.requires_grad else Tensor(x, requires_grad=True)
                for x in given
            ]
            inner = list(args)
            for i, point in zip(numbers, points, strict=True):
                inner[i] = point
            output = f(*inner, **kwargs)
        if not isinstance(output, Tensor):
            raise GraphError(
                f"grad: the function must return a Tensor, got {type(output).__name__}; compute "
                "it from the argument with needle's operations"
            )
        if output.size != 1:
            raise ShapeError(
                f"grad: the function must return one element, got shape {output.shape}; sum it"
            )
        found = _gradients_at(output, points, higher)
        return found[0] if isinstance(argnums, int) else tuple(found)

    return gradient


def _gradients_at(output: Tensor, points: list[Tensor], higher: bool) -> list[Tensor]:
    """Return the gradients of a one-element output; zeros where it does not depend on a point."""
    ### BEGIN YOUR SOLUTION [grad-function]
    seed = seed_gradient(output)
    with enable_grad() if higher else no_grad():
        found = gradients_of(output, seed, points) if output.requires_grad else [None] * len(points)
    return [
        Tensor.make_const(array_api.zeros_like(point.realize_cached_data())) if g is None else g
        for point, g in zip(points, found, strict=True)
    ]
    ### END YOUR SOLUTION
