"""Ops that order elements along an axis: argmax, argmin, sort, argsort, topk.

The order is found on the host by a stable sort; NaN counts as the largest number. The values are
gathered, so that gradients return to the positions they came from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..array_namespace import array_api as xp
from ..array_namespace import device_of, from_numpy, to_numpy
from ..autograd import Tensor, TensorOp
from ..errors import ShapeError
from ..host_steps import host_step
from ..shapes import normalize_axis, reduced_shape, shape_of
from .gathering import gather
from .registry import Array, Host, op
from .shape import reshape


class _ArgExtremum(TensorOp):
    """Base class of argmax and argmin."""

    differentiable = False
    name = ""

    def __init__(self, axis: int | None = None, keepdims: bool = False) -> None:
        self.axis, self.keepdims = axis, keepdims

    def compute(self, a: Array) -> Array:
        whole = self.axis is None or a.ndim == 0
        axis = normalize_axis(self.name, self.axis or 0, 1 if whole else a.ndim)
        flat = xp.reshape(a, (-1,)) if whole else a
        if flat.shape[axis] == 0:
            raise ShapeError(
                f"{self.name}: there must be at least one element to search, got shape "
                f"{tuple(a.shape)}; leave empty inputs out"
            )
        found = (xp.argmax if self.name == "argmax" else xp.argmin)(flat, axis=axis)
        searched = range(a.ndim) if whole else (axis,)
        return xp.reshape(found, reduced_shape(tuple(a.shape), searched, self.keepdims))


class ArgMax(_ArgExtremum):
    """Position of the first maximum along an axis: ``argmax``."""

    name = "argmax"


@op(ArgMax, methods=["argmax"])
def argmax(a: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the int64 position of the first maximum along ``axis`` (None: of the flat tensor).

    NaN counts as the maximum. ShapeError if there is no element.
    """
    return ArgMax(axis, keepdims)(a)


class ArgMin(_ArgExtremum):
    """Position of the first minimum along an axis: ``argmin``."""

    name = "argmin"


@op(ArgMin, methods=["argmin"])
def argmin(a: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the int64 position of the first minimum along ``axis`` (None: of the flat tensor).

    NaN counts as the minimum. ShapeError if there is no element.
    """
    return ArgMin(axis, keepdims)(a)


class ArgSort(TensorOp):
    """Positions of the first ``count`` elements in sorted order along an axis: ``argsort``."""

    differentiable = False

    def __init__(self, axis: int, descending: bool = False, count: int | None = None) -> None:
        self.axis, self.descending, self.count = axis, descending, count

    def compute(self, a: Array) -> Array:
        return _order(a, self.axis, self.descending, self.count, device_of(a))


@host_step
def _order(a: Array, axis: int, descending: bool, count: int | None, device: Any) -> Array:
    host = np.moveaxis(to_numpy(a), axis, -1)
    if count is not None and 0 < count * 4 < host.shape[-1]:
        order = _partitioned(host, descending, count)
    else:
        order = _sorted(host, descending)[..., :count]
    return from_numpy(np.moveaxis(order, -1, axis), device, np.int64)


def _sorted(host: Host, descending: bool) -> Host:
    """Return the stable sort order along the last axis; NaN is the largest."""
    if not descending:
        return np.argsort(host, axis=-1, kind="stable")
    # Sorting the reversed elements and reversing the order is stable, with NaN first.
    order = np.argsort(host[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(host.shape[-1] - 1 - order)


def _partitioned(host: Host, descending: bool, count: int) -> Host:
    """Return the positions of the first ``count`` elements in sorted order."""
    size = host.shape[-1]
    split = size - count if descending else count - 1
    chosen = np.argpartition(host, split, axis=-1)
    chosen = np.sort(chosen[..., split:] if descending else chosen[..., :count], axis=-1)
    order = _sorted(np.take_along_axis(host, chosen, -1), descending)
    return np.take_along_axis(chosen, order, -1)


@op(ArgSort, methods=["argsort"])
def argsort(a: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """Return the int64 positions that sort ``a`` along ``axis``; equal elements stay in order."""
    if not shape_of("argsort", a):
        return reshape(argsort(reshape(a, (1,)), axis), ())
    return ArgSort(normalize_axis("argsort", axis, len(a.shape)), descending)(a)


class SortResult(NamedTuple):
    """Sorted values and the int64 positions along the axis from which they came."""

    values: Tensor
    indices: Tensor


@op(ArgSort, methods=["sort"])
def sort(a: Tensor, axis: int = -1, descending: bool = False) -> SortResult:
    """Return the sorted ``values`` of ``a`` along ``axis`` and their ``indices``.

    Equal elements keep their order; NaN counts as the largest number.
    """
    if not shape_of("sort", a):
        values, indices = sort(reshape(a, (1,)), axis)
        return SortResult(reshape(values, ()), reshape(indices, ()))
    axis = normalize_axis("sort", axis, len(a.shape))
    indices = ArgSort(axis, descending)(a)
    return SortResult(gather(a, axis, indices), indices)


@op(ArgSort, methods=["topk"])
def topk(
    a: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> SortResult:
    """Return the ``k`` largest (or smallest) ``values`` along ``axis`` and their ``indices``.

    The values are always sorted; ``sorted=False`` is accepted. ShapeError unless 0 <= k <= size of
    the axis.
    """
    if not shape_of("topk", a):
        values, indices = topk(reshape(a, (1,)), k, axis, largest)
        return SortResult(reshape(values, ()), reshape(indices, ()))
    axis = normalize_axis("topk", axis, len(a.shape))
    if not 0 <= k <= a.shape[axis]:
        raise ShapeError(
            f"topk: k must be in [0, {a.shape[axis]}], the size of axis {axis}, got {k}; lower it"
        )
    indices = ArgSort(axis, largest, k)(a)
    return SortResult(gather(a, axis, indices), indices)
