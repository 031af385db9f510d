"""Shape operators: reshape, transpose, concatenate, split, tile, pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator

PAD_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@operator("Reshape")
def _reshape(call: Call) -> Tensor:
    x, sizes = call.x, call.integers(1)
    if sizes is None:
        raise call.refuse("input 1, the shape, must be given")
    copies = not call.flag("allowzero")
    if copies and any(size == 0 and i >= len(x.shape) for i, size in enumerate(sizes)):
        raise call.refuse(f"0 copies a size of the input, got {sizes} for shape {x.shape}")
    sizes = [x.shape[i] if size == 0 and copies else size for i, size in enumerate(sizes)]
    known = math.prod(size for size in sizes if size != -1)
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1 or (-1 in sizes and not known):
        raise call.refuse(f"at most one size may be -1, and only if no other is 0, got {sizes}")
    return ops.reshape(x, tuple(sizes))


@operator("Flatten")
def _flatten(call: Call) -> Tensor:
    x, axis, ndim = call.x, call.get("axis", 1), len(call.x.shape)
    if not -ndim <= axis <= ndim:
        raise call.refuse(f"axis must be in [{-ndim}, {ndim}], got {axis}")
    axis = axis + ndim if axis < 0 else axis
    return ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose")
def _transpose(call: Call) -> Tensor:
    count = len(call.x.shape)
    order = call.listed("perm") or list(range(count))[::-1]
    if sorted(order) != list(range(count)):
        raise call.refuse(f"perm must name each of the axes 0 to {count - 1} once, got {order}")
    return ops.permute(call.x, tuple(order))


@operator("Expand")
def _expand(call: Call) -> Tensor:
    sizes = call.sized(call.integers(1) or ())
    try:
        return ops.broadcast_to(call.x, call.sized(np.broadcast_shapes(call.x.shape, sizes)))
    except ValueError as error:
        raise call.refuse(f"shape {call.x.shape} does not broadcast with {sizes}") from error


@operator("Tile")
def _tile(call: Call) -> Tensor:
    x, repeats = call.x, call.integers(1) or []
    if len(repeats) != len(x.shape):
        raise call.refuse(f"repeats must name {len(x.shape)} axes, got {repeats}")
    result = call.sized([size * n for size, n in zip(x.shape, call.sized(repeats), strict=True)])
    for axis, n in enumerate(repeats):
        if n != 1:
            x = ops.concatenate([x] * n, axis=axis) if n else x[(slice(None),) * axis + (slice(0),)]
    return ops.reshape(x, result)


@operator("Concat")
def _concat(call: Call) -> Tensor:
    tensors = [call.tensor(i) for i in range(len(call.inputs))]
    return ops.concatenate(tensors, axis=call.axis(call.get("axis", 0)))


@operator("Squeeze")
def _squeeze(call: Call) -> Tensor:
    x, axes = call.x, call.integers(1, "axes")
    if axes is None or (not axes and call.opset < 13):
        return ops.squeeze(x)
    gone = call.axes(axes)
    if any(x.shape[axis] != 1 for axis in gone):
        raise call.refuse(f"the axes {axes} must have size 1, got shape {x.shape}")
    return ops.squeeze(x, gone)


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> Tensor:
    x, axes = call.x, call.integers(1, "axes")
    if axes is None:
        raise call.refuse("axes must be given")
    ndim = len(x.shape) + len(axes)
    new, own = set(call.axes(axes, ndim)), iter(x.shape)
    return ops.reshape(x, tuple(1 if i in new else next(own) for i in range(ndim)))


@operator("Split")
def _split(call: Call) -> tuple[Tensor, ...]:
    """Return slices of the given sizes, or one of equal size per output."""
    axis, sizes = call.axis(call.get("axis", 0)), call.integers(1, "split")
    total, parts = call.x.shape[axis], call.get("num_outputs", call.listed_outputs)
    if sizes is None:
        if parts < 1 or parts != call.listed_outputs or (total % parts and call.opset < 18):
            raise call.refuse(f"size {total} cannot be split into {parts} outputs")
        each = -(-total // parts)
        sizes = [max(min(each, total - i * each), 0) for i in range(parts)]
    if min(sizes, default=0) < 0 or sum(sizes) != total or len(sizes) != call.listed_outputs:
        raise call.refuse(
            f"the sizes must add up to {total}, one for each output, got {sizes} for "
            f"{call.listed_outputs} outputs"
        )
    return tuple(ops.split_with_sizes(call.x, sizes, axis))


@operator("Pad")
def _pad(call: Call) -> Tensor:
    """Return x with padding; a negative width removes elements."""
    x, ndim = call.x, len(call.x.shape)
    mode = call.choice("mode", "constant", *PAD_MODES)
    widths, axes = call.integers(1, "pads"), call.integers(3)
    chosen = range(ndim) if axes is None else call.axes(axes)
    if widths is None or len(widths) != 2 * len(chosen):
        raise call.refuse(f"pads must be two numbers for each of {len(chosen)} axes, got {widths}")
    every = [0] * (2 * ndim)
    for i, axis in enumerate(chosen):
        every[axis], every[ndim + axis] = widths[i], widths[len(chosen) + i]
    return pad(call, x, every, call.scalar(2, 0, "value"), mode)


def pad(call: Call, x: Tensor, widths: Sequence[int], value: Any, mode: str = "constant") -> Tensor:
    """Return x with padding; ``widths`` has those before each axis, then those after each."""
    ndim = len(x.shape)
    sides = list(zip(x.shape, widths[:ndim], widths[ndim:], strict=True))
    call.sized([size + before + after for size, before, after in sides])
    for axis, (size, before, after) in enumerate(sides):
        if mode == "constant":
            x = _bordered(call, x, axis, (before, after), value)
        elif before or after:
            index: tuple[Any, ...] = (slice(None),) * axis
            x = x[(*index, _source(call, size, before, after, mode))]
    return x


def _bordered(call: Call, x: Tensor, axis: int, widths: tuple[int, int], value: Any) -> Tensor:
    size = x.shape[axis]
    low, high = max(-widths[0], 0), size - max(-widths[1], 0)
    if low > high:
        raise call.refuse(f"negative pads {widths} remove more than the {size} elements of an axis")
    if min(widths) < 0:
        x = x[(slice(None),) * axis + (slice(low, high),)]
    borders = []
    for width in widths:
        shape = [max(width, 0) if i == axis else n for i, n in enumerate(x.shape)]
        borders.append(ops.broadcast_to(call.constant([value], x.dtype), tuple(shape)))
    sides = (borders[0], x, borders[1])
    parts = [part for part in sides if part.shape[axis] or part is x]
    return ops.concatenate(parts, axis=axis) if len(parts) > 1 else x


def _source(call: Call, size: int, before: int, after: int, mode: str) -> Any:
    """Return the source position of each element of a padded axis."""
    if min(before, after) < 0:
        kept = _source(call, size, max(before, 0), max(after, 0), mode)
        return kept[max(-before, 0) : len(kept) - max(-after, 0)]
    if not size or (mode == "reflect" and max(before, after) >= size > 1):
        raise call.refuse(f"mode {mode} cannot pad {size} elements by {before} and {after}")
    return np.pad(np.arange(size), (before, after), PAD_MODES[mode])  # type: ignore[call-overload]


@operator("DepthToSpace", "SpaceToDepth")
def _depth_and_space(call: Call) -> Tensor:
    x, block = call.x, call.get("blocksize", 0)
    if len(x.shape) != 4 or block < 1:
        raise call.refuse(f"(N, C, H, W) and a positive blocksize are needed, got {x.shape}")
    n, c, h, w = x.shape
    deep = call.choice("mode", "DCR", "CRD") == "DCR"
    if call.kind == "SpaceToDepth":
        parts = ops.reshape(x, (n, c, h // block, block, w // block, block))
        moved = ops.permute(parts, (0, 3, 5, 1, 2, 4) if deep else (0, 1, 3, 5, 2, 4))
        return ops.reshape(moved, (n, c * block * block, h // block, w // block))
    sizes = (block, block, c // block**2) if deep else (c // block**2, block, block)
    parts = ops.reshape(x, (n, *sizes, h, w))
    moved = ops.permute(parts, (0, 3, 4, 1, 5, 2) if deep else (0, 1, 4, 2, 5, 3))
    return ops.reshape(moved, (n, c // block**2, h * block, w * block))


@operator("Trilu")
def _trilu(call: Call) -> Tensor:
    """Return the upper or lower triangle of matrices, with zeros elsewhere."""
    x, k = call.x, call.scalar(1, 0)
    if len(x.shape) < 2:
        raise call.refuse(f"the input must be matrices, got shape {x.shape}")
    kept = np.ones(x.shape[-2:], bool)
    kept = np.triu(kept, k) if call.flag("upper", True) else np.tril(kept, k)
    zeros = ops.broadcast_to(call.constant([0], x.dtype), tuple(x.shape))
    return ops.where(call.constant(kept), x, zeros)
