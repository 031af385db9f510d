"""Shape operators: reshape, transpose, concatenate, split, tile, pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator

PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
"""ops.pad's names of ONNX's modes."""


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
        raise call.refuse(
            f"at most one size may be -1, and only if no other size is 0, got {sizes}"
        )
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
    return ops.broadcast_to(call.x, call.sized(np.broadcast_shapes(call.x.shape, sizes)))


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
    """Return slices of the given sizes, or slices of equal size, one per output."""
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
    mode = call.choice("mode", *PAD_MODES)
    widths, axes = call.integers(1, "pads"), call.integers(3)
    chosen = range(ndim) if axes is None else call.axes(axes)
    if widths is None or len(widths) != 2 * len(chosen):
        raise call.refuse(f"pads must be two numbers for each of {len(chosen)} axes, got {widths}")
    every = [0] * (2 * ndim)
    for i, axis in enumerate(chosen):
        every[axis], every[ndim + axis] = widths[i], widths[len(chosen) + i]
    return pad(call, x, every, call.scalar(2, 0, "value"), mode)


def pad(call: Call, x: Tensor, widths: Sequence[int], value: Any, mode: str = "constant") -> Tensor:
    """Return x with padding; ``widths`` lists the widths before all axes, then those after."""
    pairs = list(zip(widths[: len(x.shape)], widths[len(x.shape) :], strict=True))
    sides = list(zip(x.shape, pairs, strict=True))
    call.sized([size + sum(pair) for size, pair in sides])
    if any(size < -min(before, 0) - min(after, 0) for size, (before, after) in sides):
        raise call.refuse(
            f"negative pads {pairs} remove more than the axes of shape {x.shape} have"
        )
    return ops.pad(x, pairs, PAD_MODES[mode], value)


@operator("DepthToSpace", "SpaceToDepth")
def _depth_and_space(call: Call) -> Tensor:
    x, block = call.x, call.get("blocksize", 0)
    if len(x.shape) != 4 or block < 1:
        raise call.refuse(
            f"the input must be (N, C, H, W) and blocksize positive, got shape {x.shape}"
        )
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
    return (ops.triu if call.flag("upper", True) else ops.tril)(call.x, call.scalar(1, 0))
