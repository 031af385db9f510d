"""What ops with broadcasting operands share: the early shape check and the way back.

No op is defined here; the family files call it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_namespace import BACKEND
from ..autograd import Tensor
from ..errors import DTypeError, ShapeError
from ..shapes import broadcast_shapes

Number = bool | int | float


def check_broadcast(op: str, *arrays: Any) -> None:
    """ShapeError unless the arrays' shapes broadcast. Needle's own arrays see to that themselves,
    before any kernel runs and with the same words."""
    if BACKEND == "np":
        broadcast_shapes(op, *[tuple(a.shape) for a in arrays])


def unbroadcast(grad: Tensor, like: Tensor) -> Tensor:
    """``grad`` summed over the axes along which ``like`` was repeated, in ``like``'s dtype."""
    ### BEGIN YOUR SOLUTION [unbroadcast]
    shape = like.shape
    if grad.shape == shape and grad.dtype is like.dtype:
        return grad
    if grad.shape != shape:
        lead = len(grad.shape) - len(shape)
        axes = tuple(range(lead)) + tuple(
            axis + lead
            for axis, size in enumerate(shape)
            if size == 1 and grad.shape[axis + lead] != 1
        )
        if axes:
            grad = grad.sum(axes)
        if grad.shape != shape:
            grad = grad.reshape(shape)
    if grad.dtype != like.dtype and like.dtype.kind == "f":
        grad = grad.astype(like.dtype)
    return grad
    ### END YOUR SOLUTION


def as_number(op: str, scalar: Any) -> Number:
    """A Python number from a number, a NumPy scalar or a one-element array or Tensor.

    A Python number takes the array's dtype instead of widening it.
    """
    if type(scalar) in (float, int, bool):  # not isinstance: np.float64 is a float
        number: Number = scalar
        return number
    if isinstance(scalar, Tensor):
        scalar = scalar.numpy()
    try:
        host = np.asarray(scalar)
        if host.size != 1:
            raise ShapeError(f"{op}: the scalar must have one element, got shape {host.shape}")
        value = host.reshape(())[()].item()
    except (AttributeError, TypeError):
        value = None
    if not isinstance(value, (bool, int, float)):
        raise DTypeError(f"{op}: the scalar must be a real number, got {scalar!r}")
    return value
