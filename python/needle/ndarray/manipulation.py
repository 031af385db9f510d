"""Functions that rearrange elements: shapes, axes, joining, splitting, repeating.

Results are views wherever strides allow it. Only a view made by ``broadcast_to`` repeats elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError, UnknownNameError
from ..shapes import as_int_tuple, broadcast_shapes, distinct_axes, normalize_axes, normalize_axis
from ..torch_names import publish
from .array import NDArray, along, as_array, same_device
from .data_types import result_type


def reshape(x: NDArray, /, shape: Any, *, copy: bool | None = None) -> NDArray:
    """Return the elements in row-major order with a new shape, in which one size may be -1."""
    return as_array("reshape", x).reshape(shape, copy=copy)


def permute_dims(x: NDArray, /, axes: Any) -> NDArray:
    """Return a view whose axis i is ``x``'s axis ``axes[i]``."""
    return as_array("permute_dims", x).permute(axes)


permute = permute_dims


def transpose(x: NDArray, /, axes: Any = None) -> NDArray:
    """Return a view whose axis i is ``x``'s axis ``axes[i]``; None reverses the axes."""
    order = tuple(range(as_array("transpose", x).ndim)[::-1])
    return x.permute(order if axes is None else axes)


def swapaxes(x: NDArray, /, axis1: int, axis2: int) -> NDArray:
    """Return a view with two axes exchanged."""
    order = list(range(as_array("swapaxes", x).ndim))
    one, two = (normalize_axis("swapaxes", axis, x.ndim) for axis in (axis1, axis2))
    order[one], order[two] = two, one
    return x.permute(tuple(order))


def matrix_transpose(x: NDArray, /) -> NDArray:
    """Return a view with the last two axes swapped."""
    return as_array("matrix_transpose", x).mT


def moveaxis(x: NDArray, source: Any, destination: Any, /) -> NDArray:
    """Return a view with the axes ``source`` moved to ``destination``, the others in order."""
    ndim = as_array("moveaxis", x).ndim
    old = distinct_axes("moveaxis", source, ndim)
    new = distinct_axes("moveaxis", destination, ndim)
    if len(old) != len(new):
        raise ShapeError(
            f"moveaxis: source and destination must have the same length, got {source}, "
            f"{destination}"
        )
    order = [axis for axis in range(ndim) if axis not in old]
    for position, axis in sorted(zip(new, old, strict=True)):
        order.insert(position, axis)
    return x.permute(order)


def broadcast_to(x: NDArray, /, shape: Any) -> NDArray:
    """Return a view in which axes of size 1, and new leading axes, repeat."""
    return as_array("broadcast_to", x).broadcast_to(shape)


def broadcast_arrays(*arrays: NDArray) -> list[NDArray]:
    """Return views of the arrays, broadcast to one common shape."""
    shape = broadcast_shapes("broadcast_arrays", *(x.shape for x in arrays))
    return [x.broadcast_to(shape) for x in arrays]


def expand_dims(x: NDArray, /, axis: Any = 0) -> NDArray:
    """Return a view with new axes of size 1 at ``axis``, an int or a tuple, of the result."""
    positions = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = as_array("expand_dims", x).ndim + len(positions)
    new = distinct_axes("expand_dims", positions, ndim)
    sizes = iter(x.shape)
    return x.reshape(tuple(1 if position in new else next(sizes) for position in range(ndim)))


def squeeze(x: NDArray, /, axis: Any) -> NDArray:
    """Return a view without the axes ``axis``, each of size 1."""
    axes = normalize_axes("squeeze", axis, as_array("squeeze", x).ndim)
    if any(x.shape[i] != 1 for i in axes):
        raise ShapeError(f"squeeze: axes {axes} must have size 1, got shape {x.shape}")
    return x[tuple(0 if i in axes else slice(None) for i in range(x.ndim))]


def flip(x: NDArray, /, axis: Any = None, *, axes: Any = None) -> NDArray:
    """Return a view with the elements along ``axis`` (None: all) in reverse order.

    ``axes`` is the course's name for ``axis``.
    """
    if axis is not None and axes is not None:
        raise DTypeError("flip: only one of axis and axes may be given, got both; leave one out")
    chosen = axes if axis is None else axis
    return as_array("flip", x).reversed_view(normalize_axes("flip", chosen, x.ndim))


def roll(x: NDArray, /, shift: Any, *, axis: Any = None) -> NDArray:
    """Return the elements shifted cyclically along ``axis`` (None: along the flat array)."""
    if axis is None:
        return roll(as_array("roll", x).reshape((-1,)), shift, axis=0).reshape(x.shape)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = as_int_tuple("roll", "shift", shift)
    if len(shifts) != len(axes):
        if len(shifts) != 1 or isinstance(shift, tuple | list):
            raise ShapeError(f"roll: there must be one shift per axis, got {shift} for axes {axis}")
        shifts *= len(axes)
    for one, step in zip(axes, shifts, strict=True):
        x = _roll_axis(x, step, normalize_axis("roll", one, x.ndim))
    return x


def _roll_axis(x: NDArray, shift: int, axis: int) -> NDArray:
    cut = -shift % x.shape[axis] if x.shape[axis] else 0
    return concat([along(x, axis, slice(cut, None)), along(x, axis, slice(cut))], axis=axis)


def concat(arrays: Sequence[NDArray], /, *, axis: int | None = 0) -> NDArray:
    """Return the arrays joined along ``axis`` (None: all flattened), in their common dtype."""
    items = [as_array("concat", x) for x in arrays]
    if not items:
        raise ShapeError(
            "concat: there must be at least one array, got none; pass a list of arrays"
        )
    if axis is None:
        items, axis = [x.reshape((-1,)) for x in items], 0
    axis = normalize_axis("concat", axis, items[0].ndim)
    shape = _joined_shape(items, axis)
    out = NDArray.make(shape, device=items[0].device, dtype=result_type(*items))
    start = 0
    for x in items:
        same_device("concat", items[0], x)
        stop = start + x.shape[axis]
        out.device.backend.copy(x.view, along(out, axis, slice(start, stop)).view)
        start = stop
    return out


concatenate = concat


def _joined_shape(items: Sequence[NDArray], axis: int) -> tuple[int, ...]:
    rest = {x.shape[:axis] + x.shape[axis + 1 :] if x.ndim else None for x in items}
    if len(rest) != 1 or len({x.ndim for x in items}) != 1:
        got = ", ".join(str(x.shape) for x in items)
        raise ShapeError(f"concat: shapes must agree except on axis {axis}, got {got}")
    first = items[0].shape
    return (*first[:axis], sum(x.shape[axis] for x in items), *first[axis + 1 :])


def stack(arrays: Sequence[NDArray], /, *, axis: int = 0) -> NDArray:
    """Return arrays of one shape joined along a new axis, at ``axis`` of the result."""
    items = [as_array("stack", x) for x in arrays]
    if len({x.shape for x in items}) != 1:
        got = ", ".join(str(x.shape) for x in items) or "none"
        raise ShapeError(f"stack: all arrays must have the same shape, got {got}")
    axis = normalize_axis("stack", axis, items[0].ndim + 1)
    return concat([expand_dims(x, axis=axis) for x in items], axis=axis)


def unstack(x: NDArray, /, *, axis: int = 0) -> tuple[NDArray, ...]:
    """Return views of the slices along ``axis``, without that axis."""
    axis = normalize_axis("unstack", axis, as_array("unstack", x).ndim)
    return tuple(along(x, axis, row) for row in range(x.shape[axis]))


def split(x: NDArray, sections: int | Sequence[int], /, *, axis: int = 0) -> list[NDArray]:
    """Return views of ``sections`` equal parts, or of the parts between positions, as in NumPy."""
    axis = normalize_axis("split", axis, as_array("split", x).ndim)
    size = x.shape[axis]
    if isinstance(sections, int):
        if sections < 1 or size % sections:
            raise ShapeError(f"split: the size must divide evenly, got {size} by {sections}")
        bounds = list(range(0, size + 1, size // sections)) if size else [0] * (sections + 1)
    else:
        bounds = [0, *as_int_tuple("split", "sections", sections), size]
    return [along(x, axis, slice(start, stop)) for start, stop in pairwise(bounds)]


def pad(
    x: NDArray, /, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0
) -> NDArray:
    """Return a copy of ``x`` with the number ``constant_values`` around it.

    ``pad_width``: one (before, after) for each axis, one for all axes, or an int, as in NumPy.
    ``mode`` must be "constant".
    """
    if mode != "constant":
        raise UnknownNameError(
            f"pad: mode must be 'constant', got {mode!r}; needle.pad of a Tensor has other modes"
        )
    ndim = as_array("pad", x).ndim
    if np.ndim(constant_values):
        raise ShapeError(
            f"pad: constant_values must be one number, got {constant_values!r}; for several, pad "
            "one axis at a time"
        )
    try:
        pairs = np.broadcast_to(pad_width, (ndim, 2)).tolist()
    except ValueError:
        raise ShapeError(
            f"pad: pad_width must be an int, or a (before, after) pair for each axis or for all, "
            f"got {pad_width!r} for shape {x.shape}"
        ) from None
    return x.pad(pairs, constant_values)


def tile(x: NDArray, repetitions: Any, /) -> NDArray:
    """Return copies of ``x`` joined ``repetitions[i]`` times along axis i."""
    times = as_int_tuple("tile", "repetitions", repetitions)
    if any(n < 0 for n in times):
        raise ShapeError(f"tile: repetitions must not be negative, got {times}; use 0 or more")
    ndim = max(len(times), as_array("tile", x).ndim)
    x = x.reshape((1,) * (ndim - x.ndim) + x.shape, copy=True)
    for axis, n in enumerate((1,) * (ndim - len(times)) + times):
        if n != 1:
            x = concat([x] * n, axis=axis) if n else along(x, axis, slice(0))
    return x


def repeat(x: NDArray, repeats: Any, /, *, axis: int | None = None) -> NDArray:
    """Return each element along ``axis`` (None: of the flat array) ``repeats`` times.

    ``repeats`` is an int, or one int per element.
    """
    if axis is None:
        return repeat(as_array("repeat", x).reshape((-1,)), repeats, axis=0)
    axis = normalize_axis("repeat", axis, x.ndim)
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any():
        raise DTypeError(f"repeat: repeats must be non-negative ints, got {repeats!r}")
    if counts.ndim and counts.size not in (1, x.shape[axis]):
        raise ShapeError(
            f"repeat: there must be one count per element, got {counts.size} for size "
            f"{x.shape[axis]}"
        )
    return along(x, axis, np.repeat(np.arange(x.shape[axis]), counts))


publish(__name__)
