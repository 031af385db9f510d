"""Helpers of ops that broadcast: shape checks, gradients summed to operand shapes, and powers at 0.

No op is defined here; the family files call these functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..array_namespace import BACKEND
from ..array_namespace import array_api as xp
from ..autograd import Tensor, number_dtype
from ..dtypes import float_limits, is_floating
from ..errors import DTypeError, ShapeError
from ..shapes import broadcast_shapes

Number = bool | int | float


def check_broadcast(op: str, *arrays: Any) -> None:
    """Raise ShapeError unless the shapes of the arrays broadcast.

    Needle's own arrays check this themselves, with the same message, before any kernel runs.
    """
    if BACKEND == "np":
        broadcast_shapes(op, *[tuple(a.shape) for a in arrays])


def unbroadcast(grad: Tensor, like: Tensor) -> Tensor:
    """Sum ``grad`` to the shape of the broadcast operand ``like``, and cast it to its dtype."""
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
    if grad.dtype != like.dtype and is_floating(like.dtype):
        grad = grad.astype(like.dtype)
    return grad
    ### END YOUR SOLUTION


def as_number(op: str, scalar: Any, what: str = "the scalar") -> Number:
    """Return a number, NumPy scalar, or one-element array or Tensor as a Python number.

    A Python number takes the array's dtype instead of widening the array. ShapeError for more than
    one element, DTypeError for anything that is not a real number.
    """
    if type(scalar) in (float, int, bool):  # isinstance would accept np.float64
        number: Number = scalar
        return number
    if isinstance(scalar, Tensor):
        scalar = scalar.numpy()
    try:
        host = np.asarray(scalar)
        if host.size != 1:
            raise ShapeError(
                f"{op}: {what} must have one element, got shape {host.shape}; pass a Tensor "
                "for an elementwise operation"
            )
        value = host.reshape(())[()].item()
    except (AttributeError, TypeError):
        value = None
    if not isinstance(value, (bool, int, float)):
        raise DTypeError(f"{op}: {what} must be a real number, got {scalar!r}; convert it")
    return value


def tensors_of(op: str, args: Any) -> tuple[Any, ...]:
    """Return a sequence of tensors as a tuple; DTypeError for anything else."""
    is_sequence = isinstance(args, Iterable) and not isinstance(args, (str, Mapping))
    if is_sequence and getattr(args, "shape", None) != ():
        return tuple(args)
    raise DTypeError(
        f"{op}: the argument must be a list or tuple of tensors, got {type(args).__name__}; write "
        f"{op}([a, b])"
    )


def constant_like(x: Tensor, shape: tuple[int, ...], value: float) -> Tensor:
    """Return a constant of ``shape`` on the device of x, in a dtype that suits x and ``value``."""
    like = x.realize_cached_data()
    dtype = number_dtype(value, like.dtype)
    return Tensor.make_const(xp.full(shape, value, dtype=dtype, device=like.device))


# ---- factors in the gradients of a ** b --------------------------------------------------------


def unit_shift(a: Tensor, b: Tensor) -> Tensor:
    """Return 1, but 0 where b is 0 and a**-1 is infinite or NaN, to avoid 0 * a**-1."""
    base, exponent = a.realize_cached_data(), b.realize_cached_data()
    smallest = float(float_limits(a.dtype if is_floating(a.dtype) else b.dtype).tiny)
    regular = xp.abs(base) >= smallest
    return Tensor.make_const(xp.astype(xp.logical_or(regular, exponent != 0), b.dtype))


def log_or_zero(a: Tensor, b: Tensor) -> Tensor:
    """Return log a, but 0 where a is 0 and b is not negative."""
    base, exponent = a.realize_cached_data(), b.realize_cached_data()
    flat = xp.logical_and(base == 0, exponent >= 0)
    return (a + Tensor.make_const(xp.astype(flat, a.dtype))).log()
