"""Indexing operators: Slice and the Gather and Scatter families."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator

REDUCTIONS: dict[str, Any] = {
    "none": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@operator("Slice")
def _slice(call: Call) -> Tensor:
    starts, ends = call.integers(1, "starts"), call.integers(2, "ends")
    axes, steps = call.integers(3, "axes"), call.integers(4)
    if starts is None or ends is None:
        raise call.refuse("starts and ends must be given")
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise call.refuse(
            f"starts {starts}, ends {ends}, axes {axes} and steps {steps} must have the same "
            "length, and no step may be 0"
        )
    index = [slice(None)] * len(call.x.shape)
    for axis, *bounds in zip(call.axes(axes), starts, ends, steps, strict=True):
        index[axis] = slice(*bounds)
    return call.x[tuple(index)]


def _places(call: Call, size: int, index: int = 1) -> Any:
    """Return an index input, counted from the front; raise OnnxError if one is out of bounds."""
    places = call.array(index).astype(np.int64)
    if places.size and not -size <= places.min() <= places.max() < size:
        raise call.refuse(
            f"indices must be in [{-size}, {size - 1}], got {places.min()} to {places.max()}"
        )
    return np.where(places < 0, places + size, places)


@operator("Gather")
def _gather(call: Call) -> Tensor:
    axis = call.axis(call.get("axis", 0))
    places = _places(call, call.x.shape[axis])
    call.sized((*call.x.shape[:axis], *places.shape, *call.x.shape[axis + 1 :]))
    before: tuple[Any, ...] = (slice(None),) * axis
    return call.x[(*before, places)]


def along(places: Any, axis: int) -> tuple[Any, ...]:
    """Return the index that selects ``places`` along an axis and all elements along the others."""
    grids = list(np.ogrid[tuple(slice(size) for size in places.shape)])
    grids[axis] = places
    return tuple(np.broadcast_to(grid, places.shape) for grid in grids)


def _elements(call: Call) -> tuple[Any, ...]:
    """Return the index of GatherElements and ScatterElements."""
    axis = call.axis(call.get("axis", 0))
    places = _places(call, call.x.shape[axis])
    sizes = call.x.shape
    if len(places.shape) != len(sizes) or any(
        n > size for i, (n, size) in enumerate(zip(places.shape, sizes, strict=True)) if i != axis
    ):
        raise call.refuse(f"the shape of indices must fit within {sizes}, got {places.shape}")
    return along(places, axis)


@operator("GatherElements")
def _gather_elements(call: Call) -> Tensor:
    return call.x[_elements(call)]


def _tuples(call: Call, batch: int) -> tuple[Any, ...]:
    """Return the index of GatherND and ScatterND; its last axis holds coordinates."""
    places, sizes = call.array(1).astype(np.int64), call.x.shape
    count = places.shape[-1] if places.ndim else 0
    if not 0 <= batch < max(places.ndim, 1) or not 0 < count <= len(sizes) - batch:
        raise call.refuse(
            f"indices of shape {places.shape} have too many coordinates for shape {sizes}"
        )
    if places.shape[:batch] != tuple(sizes[:batch]):
        raise call.refuse(f"the first {batch} axes of {places.shape} and {sizes} must agree")
    limits = np.array(sizes[batch : batch + count])
    if places.size and not ((places >= -limits) & (places < limits)).all():
        raise call.refuse(f"indices must be positions in {tuple(limits)}")
    places = np.where(places < 0, places + limits, places)
    grids = np.ogrid[tuple(slice(size) for size in places.shape[:batch])] if batch else ()
    rows = [g.reshape(g.shape + (1,) * (places.ndim - 1 - batch)) for g in grids]
    return (*rows, *(places[..., i] for i in range(count)))


@operator("GatherND")
def _gather_nd(call: Call) -> Tensor:
    return call.x[_tuples(call, call.get("batch_dims", 0))]


@operator("ScatterElements")
def _scatter_elements(call: Call) -> Tensor:
    return _scattered(call, call.choice("reduction", *REDUCTIONS), _elements(call))


@operator("ScatterND")
def _scatter_nd(call: Call) -> Tensor:
    return _scattered(call, call.choice("reduction", *REDUCTIONS), _tuples(call, 0))


def _scattered(call: Call, mode: str, index: tuple[Any, ...]) -> Tensor:
    """Return x with the updates written, or added, at an index.

    The result is gathered from the elements of x and of the updates, so both have gradients.
    """
    x, updates = call.x, call.tensor(2)
    flat = np.arange(x.size).reshape(x.shape)
    if flat[index].shape != tuple(updates.shape):
        raise call.refuse(f"updates must have shape {flat[index].shape}, got {updates.shape}")
    if mode == "add":
        return x + ops.scatter_add(updates, index, tuple(x.shape))
    if mode != "none":
        return call.on_host(lambda a, _, values: _reduced(REDUCTIONS[mode], a, index, values))
    flat[index] = x.size + np.arange(updates.size).reshape(updates.shape)
    both = ops.concatenate([ops.reshape(x, (-1,)), ops.reshape(updates, (-1,))])
    return both[flat]


def _reduced(function: Any, a: Any, index: tuple[Any, ...], values: Any) -> Any:
    result = a.copy()
    function.at(result, index, values)
    return result


@operator("OneHot")
def _one_hot(call: Call) -> Any:
    depth, values = call.scalar(1), call.array(2)
    ndim = len(call.x.shape) + 1
    axis = call.axis(call.get("axis", -1), ndim)
    if values.shape != (2,) or depth < 1:
        raise call.refuse(f"depth must be positive and values two numbers, got {depth}, {values}")
    call.sized((*call.x.shape, int(depth)))
    places = call.array(0).astype(np.int64)
    places = np.where((places < -depth) | (places >= depth), -1 - depth, places)
    places = np.where(places < 0, places + depth, places)
    hot = np.expand_dims(places, axis) == np.arange(int(depth)).reshape(
        [-1 if i == axis else 1 for i in range(ndim)]
    )
    return np.where(hot, values[1], values[0])


@operator("NonZero")
def _non_zero(call: Call) -> Any:
    return np.array(np.nonzero(call.array(0)), np.int64)


@operator("Compress")
def _compress(call: Call) -> Tensor:
    chosen = np.flatnonzero(call.array(1))
    axis = call.get("axis")
    x = ops.reshape(call.x, (-1,)) if axis is None else call.x
    axis = 0 if axis is None else call.axis(axis)
    if chosen.size and chosen[-1] >= x.shape[axis]:
        raise call.refuse(f"the condition is longer than the {x.shape[axis]} elements of the axis")
    before: tuple[Any, ...] = (slice(None),) * axis
    return x[(*before, chosen)]
