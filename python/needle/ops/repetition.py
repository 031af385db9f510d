"""Ops that repeat or shift elements: roll, tile, repeat, repeat_interleave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array_namespace import array_api as xp
from ..autograd import Tensor
from ..errors import ShapeError
from ..shapes import as_int_tuple, normalize_axis, shape_of
from .gathering import index_select
from .registry import Array, Axes, LinearOp, op
from .shape import BroadcastTo, broadcast_to, reshape


class Roll(LinearOp):
    """Cyclic shift along axes: ``roll``."""

    def __init__(self, shifts: Sequence[int], axes: Sequence[int]) -> None:
        self.shifts, self.axes = tuple(shifts), tuple(axes)

    def compute(self, a: Array) -> Array:
        return xp.roll(a, self.shifts, axis=self.axes)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return Roll([-shift for shift in self.shifts], self.axes)(out_grad)


@op(Roll, methods=["roll"])
def roll(a: Tensor, shifts: int | Sequence[int], axes: Axes = None) -> Tensor:
    """Return the elements shifted cyclically by ``shifts`` along ``axes``.

    If ``axes`` is None, the flattened tensor is shifted. An axis may be given twice. ShapeError
    unless there is one shift for each axis.
    """
    shape = shape_of("roll", a)
    steps = as_int_tuple("roll", "shifts", shifts)
    if axes is None and len(steps) == 1:
        return reshape(Roll(steps, (0,))(reshape(a, (-1,))), shape)
    along = as_int_tuple("roll", "axes", () if axes is None else axes)
    if len(steps) != len(along) or not steps:
        raise ShapeError(f"roll: there must be one shift for each axis, got {shifts} for {axes}")
    return Roll(steps, [normalize_axis("roll", axis, len(shape)) for axis in along])(a)


@op(BroadcastTo, methods=["tile"])
def tile(a: Tensor, repetitions: int | Sequence[int], *more: int) -> Tensor:
    """Return ``a`` repeated ``repetitions[i]`` times along axis i; missing ones count as 1."""
    first = (repetitions,) if isinstance(repetitions, int) else tuple(repetitions)
    times = as_int_tuple("tile", "repetitions", (*first, *more))
    if any(count < 0 for count in times):
        raise ShapeError(f"tile: repetitions must be at least 0, got {times}")
    ndim = max(len(times), len(shape_of("tile", a)))
    times = (1,) * (ndim - len(times)) + times
    if len(a.shape) < ndim:
        a = reshape(a, (1,) * (ndim - len(a.shape)) + a.shape)
    for axis, count in enumerate(times):
        if count != 1:
            a = _repeated(a, axis, count, axis)
    return a


def _repeated(a: Tensor, axis: int, count: int, at: int) -> Tensor:
    """Return ``a`` repeated along ``axis``: as a whole if ``at`` is ``axis``, else by element."""
    shape = a.shape
    one = (*shape[:at], 1, *shape[at:])
    many = (*shape[:at], count, *shape[at:])
    return reshape(
        broadcast_to(reshape(a, one), many),
        (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]),
    )


@op(BroadcastTo, methods=["repeat"])
def repeat(a: Tensor, repetitions: int | Sequence[int], *more: int) -> Tensor:
    """Return ``a`` repeated ``repetitions[i]`` times along axis i, as PyTorch's ``Tensor.repeat``.

    Unlike in ``tile``, there must be a number for every axis. ``repeat_interleave`` repeats single
    elements, as NumPy's ``repeat`` does.
    """
    first = (repetitions,) if isinstance(repetitions, int) else tuple(repetitions)
    times = as_int_tuple("repeat", "repetitions", (*first, *more))
    if len(times) < len(shape_of("repeat", a)):
        raise ShapeError(
            f"repeat: there must be a number of repetitions for each axis, got {times} for shape "
            f"{a.shape}; use tile, or repeat_interleave for single elements"
        )
    return tile(a, times)


@op(BroadcastTo, methods=["repeat_interleave"])
def repeat_interleave(a: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    """Return each element along ``axis`` (None: of the flattened tensor) ``repeats`` times.

    ``repeats`` is an int or one int for each element of the axis: a list, an array or a Tensor.
    """
    if axis is None:
        return repeat_interleave(reshape(a, (-1,)), repeats, 0)
    shape = shape_of("repeat_interleave", a)
    axis = normalize_axis("repeat_interleave", axis, len(shape))
    counts = as_int_tuple("repeat_interleave", "repeats", np.asarray(repeats).reshape(-1))
    if any(count < 0 for count in counts) or len(counts) not in (1, shape[axis]):
        raise ShapeError(
            f"repeat_interleave: repeats must be one number or {shape[axis]} numbers, none "
            f"negative, got {repeats!r} for axis {axis} of shape {shape}"
        )
    if len(counts) == 1:
        return _repeated(a, axis, counts[0], axis + 1)
    return index_select(a, axis, np.repeat(np.arange(shape[axis]), counts).tolist())
