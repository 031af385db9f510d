"""Rows by index (gather, scatter, scatter_add), one_hot, argmax and argmin.

Indices are integers in range: the callers (``ndarray``'s indexing and ``ops``) check them and wrap
negative ones. The definitions of the row operations are plain loops over rows; NumPy's own indexing
replaces them on NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.base import Backend
from ..backends.writes import note_write
from ..dtypes import is_floating
from ..shapes import normalize_axis, reduced_shape
from .registry import Array, accelerated, as_int64, empty


def _rows(index: Array) -> list[int]:
    rows: list[int] = np.asarray(index).tolist()
    return rows


@accelerated(floating=False)
def gather(a: Array, index: Array) -> Array:
    """Return out[i, ...] = a[index[i], ...], (n, ...), for index (n,) in [0, len(a))."""
    if isinstance(a, np.ndarray):
        return a[np.asarray(index)]
    out = empty(a, (index.shape[0], *a.shape[1:]))
    for i, row in enumerate(_rows(index)):
        out[i : i + 1] = a[row : row + 1]
    return out


@gather.kernel
def _(backend: Backend, a: Array, index: Array) -> Array:
    out = empty(a, (index.shape[0], *a.shape[1:]))
    backend.gather(a.view, as_int64(index).view, out.view)
    return out


@accelerated(floating=False)
def scatter(out: Array, index: Array, src: Array) -> None:
    """Set out[index[i], ...] = src[i, ...] in order of i: the last of equal indices stays."""
    for i, row in enumerate(_rows(index)):
        out[row : row + 1] = src[i : i + 1]


@scatter.kernel
def _(backend: Backend, out: Array, index: Array, src: Array) -> None:
    note_write(out.view.handle)
    backend.scatter(_like(src, out).view, as_int64(index).view, out.view)


@accelerated(floating=False)
def scatter_add(out: Array, index: Array, src: Array) -> None:
    """Add src[i, ...] to out[index[i], ...] in place, in order of i."""
    if isinstance(out, np.ndarray):
        np.add.at(out, np.asarray(index), src)
        return
    for i, row in enumerate(_rows(index)):
        out[row : row + 1] = out[row : row + 1] + src[i : i + 1]


@scatter_add.kernel
def _(backend: Backend, out: Array, index: Array, src: Array) -> None:
    note_write(out.view.handle)
    backend.scatter_add(_like(src, out).view, as_int64(index).view, out.view)


def _like(src: Array, out: Array) -> Array:
    return src if src.dtype == out.dtype else src.astype(out.dtype)


@accelerated(floating=False)
def one_hot(index: Array, num_classes: int, dtype: Any) -> Array:
    """Return (n, num_classes): 1 where column == index[i], else 0; out of bounds, the row is 0."""
    xp = index.__array_namespace__()
    columns = xp.arange(num_classes, dtype=index.dtype, device=index.device)
    return (xp.expand_dims(index, axis=1) == columns).astype(dtype)


@one_hot.kernel
def _(backend: Backend, index: Array, num_classes: int, dtype: Any) -> Array:
    out = empty(index, (index.shape[0], num_classes), dtype)
    backend.one_hot(as_int64(index).view, out.view)
    return out


def _first_extreme(name: str, a: Array, axis: int, keepdims: bool) -> Array:
    """Return the int64 positions of the first element equal to the extreme, or of the first NaN."""
    xp = a.__array_namespace__()
    axis = normalize_axis(f"arg{name}", axis, a.ndim)
    hits = a == getattr(xp, name)(a, axis=axis, keepdims=True)
    if is_floating(a.dtype):
        hits = xp.logical_or(hits, xp.isnan(a))
    shape = [1] * a.ndim
    shape[axis] = a.shape[axis]
    places = xp.reshape(xp.arange(a.shape[axis], dtype="int64", device=a.device), tuple(shape))
    return xp.min(xp.where(hits, places, a.shape[axis]), axis=axis, keepdims=keepdims)


@accelerated(floating=False)
def argmax(a: Array, axis: int, keepdims: bool) -> Array:
    """Return the int64 positions of the first maximum along ``axis``, or of the first NaN."""
    return _first_extreme("max", a, axis, keepdims)


@argmax.kernel
def _(backend: Backend, a: Array, axis: int, keepdims: bool) -> Array:
    return _positions("argmax", backend, a, axis, keepdims)


@accelerated(floating=False)
def argmin(a: Array, axis: int, keepdims: bool) -> Array:
    """Return the int64 positions of the first minimum along ``axis``, or of the first NaN."""
    return _first_extreme("min", a, axis, keepdims)


@argmin.kernel
def _(backend: Backend, a: Array, axis: int, keepdims: bool) -> Array:
    return _positions("argmin", backend, a, axis, keepdims)


def _positions(name: str, backend: Backend, a: Array, axis: int, keepdims: bool) -> Array:
    """Return the result of a kernel along an axis, which the kernel keeps as size 1."""
    axis = normalize_axis(name, axis, a.ndim)
    out = empty(a, reduced_shape(a.shape, (axis,), True), "int64")
    getattr(backend, name)(a.view, out.view, axis)
    return out if keepdims else out.reshape(reduced_shape(a.shape, (axis,), False))
