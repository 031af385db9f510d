"""Pad or crop a tensor along any axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..array_namespace import array_api as xp
from ..autograd import Tensor
from ..errors import ShapeError, UnknownNameError, check_choice
from ..shapes import as_int_tuple, shape_of
from .indexing import Concatenate, GetItem
from .registry import Array, LinearOp, op
from .shape import broadcast_to, flip

Widths = tuple[tuple[int, int], ...]
MODES = ("constant", "reflect", "replicate", "circular")


class Pad(LinearOp):
    """Padding with one value: ``pad`` with mode "constant" and non-negative widths."""

    def __init__(self, widths: Sequence[tuple[int, int]], value: float = 0.0) -> None:
        self.widths, self.value = tuple(widths), value

    def compute(self, a: Array) -> Array:
        sizes = zip(a.shape, self.widths, strict=True)
        shape = tuple(before + size + after for size, (before, after) in sizes)
        out = xp.full(shape, self.value, dtype=a.dtype, device=a.device)
        out[self._inside(a.shape)] = a
        return out

    def _inside(self, shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices of the result that hold the input, which has ``shape``."""
        pairs = zip(shape, self.widths, strict=True)
        return tuple(slice(before, before + size) for size, (before, _) in pairs)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return GetItem(self._inside(node.inputs[0].shape))(out_grad)


@op(Pad)
def pad(a: Tensor, widths: Sequence[Any], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Return ``a`` with elements added before and after it along axes.

    ``widths``: one pair (before, after) for each axis, as in NumPy; or PyTorch's flat list, from
    the last axis to the first: (left, right, top, bottom, ...). Negative widths cut elements off.

    ``mode``: "constant" adds ``value``, "reflect" mirrors without repeating the edge, "replicate"
    repeats the edge, "circular" wraps around. ShapeError if the widths do not suit the shape,
    UnknownNameError for another mode.
    """
    shape = shape_of("pad", a)
    pairs = _pairs(widths, shape)
    check_choice("pad", "mode", mode, MODES, UnknownNameError)
    if any(min(pair) < 0 and size + sum(pair) < 0 for size, pair in zip(shape, pairs, strict=True)):
        raise ShapeError(f"pad: no size may become negative, got widths {pairs} for shape {shape}")
    if mode == "constant":
        return _constant(a, pairs, value)
    for axis, pair in enumerate(pairs):
        if pair != (0, 0):
            a = _continued(a, axis, pair, mode)
    return a


def _pairs(widths: Sequence[Any], shape: tuple[int, ...]) -> Widths:
    """Return one pair for each axis from either notation of ``widths``."""
    items = tuple(widths) if isinstance(widths, Iterable) else (widths,)
    if items and all(isinstance(item, Sequence) for item in items):
        pairs = [as_int_tuple("pad", "widths", item) for item in items]
    else:
        flat = as_int_tuple("pad", "widths", items)
        pairs = [flat[i : i + 2] for i in range(0, len(flat), 2)][::-1]
        pairs = [(0, 0)] * (len(shape) - len(pairs)) + pairs
    if len(pairs) != len(shape) or any(len(pair) != 2 for pair in pairs):
        raise ShapeError(
            f"pad: widths must be pairs for every axis, or an even count of numbers for the last "
            f"axes, got {widths!r} for shape {shape}"
        )
    return tuple((before, after) for before, after in pairs)


def _constant(a: Tensor, pairs: Widths, value: float) -> Tensor:
    if any(min(pair) < 0 for pair in pairs):
        kept = [
            slice(max(-before, 0), size + min(after, 0))
            for size, (before, after) in zip(a.shape, pairs, strict=True)
        ]
        # A negative width larger than the axis removes all elements, before the other side is
        # padded.
        pairs = tuple((max(before, 0), max(after, 0)) for before, after in pairs)
        a = GetItem(tuple(kept))(a)
    return Pad(pairs, value)(a)


def _continued(a: Tensor, axis: int, pair: tuple[int, int], mode: str) -> Tensor:
    """Return ``a`` padded along one axis with its own elements."""
    if (
        mode == "circular" and min(pair) < 0
    ):  # the border is taken from what is left after cropping, as in PyTorch
        a = _part(a, axis, slice(max(-pair[0], 0), a.shape[axis] + min(pair[1], 0)))
        pair = (max(pair[0], 0), max(pair[1], 0))
    size, (before, after) = a.shape[axis], pair
    limits = {"reflect": max(size - 1, 0), "replicate": max(pair) if size else 0}
    limit = limits.get(mode, size)
    if max(pair) > limit:
        raise ShapeError(
            f"pad: mode {mode!r} can add at most {limit} elements to an axis of size {size}, got "
            f"widths {pair} for axis {axis} of shape {a.shape}; pad less"
        )
    parts = [_part(a, axis, slice(max(-before, 0), size + min(after, 0)))]
    if before > 0:
        parts.insert(0, _border(a, axis, before, mode, leading=True))
    if after > 0:
        parts.append(_border(a, axis, after, mode, leading=False))
    return parts[0] if len(parts) == 1 else Concatenate(axis)(*parts)


def _part(a: Tensor, axis: int, rows: slice) -> Tensor:
    return GetItem((slice(None),) * axis + (rows,))(a)


def _border(a: Tensor, axis: int, width: int, mode: str, leading: bool) -> Tensor:
    """Return the ``width`` elements that extend an axis at its start or end."""
    size = a.shape[axis]
    if mode == "circular":
        return _part(a, axis, slice(size - width, size) if leading else slice(0, width))
    if mode == "reflect":
        mirrored = slice(1, 1 + width) if leading else slice(size - 1 - width, size - 1)
        return flip(_part(a, axis, mirrored), axis)
    edge = _part(a, axis, slice(0, 1) if leading else slice(size - 1, size))
    return broadcast_to(edge, (*a.shape[:axis], width, *a.shape[axis + 1 :]))
