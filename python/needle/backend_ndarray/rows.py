"""Stand-in for gather, scatter, argmax and argmin until ``accelerated`` has them."""

from __future__ import annotations

from ..backends.base import provides
from ..ndarray import NDArray


def gather(a: NDArray, index: NDArray) -> NDArray:
    """out[i] = a[index[i]]."""
    out = NDArray.make((index.size, *a.shape[1:]), device=a.device, dtype=a.dtype)
    backend = a.device.backend
    if provides(backend, "gather"):
        backend.gather(a._view, index._view, out._view)
        return out
    for row, place in enumerate(index.tolist()):
        out[row] = a[place]
    return out


def scatter(out: NDArray, index: NDArray, source: NDArray) -> None:
    """out[index[i]] = source[i]."""
    backend = out.device.backend
    if provides(backend, "scatter"):
        backend.scatter(source._view, index._view, out._view)
        return
    for row, place in enumerate(index.tolist()):
        out[place] = source[row]


def argmax(a: NDArray, axis: int, keepdims: bool) -> NDArray:
    """Position of the first maximum."""
    return _arg("argmax", a, axis, keepdims)


def argmin(a: NDArray, axis: int, keepdims: bool) -> NDArray:
    """Position of the first minimum."""
    return _arg("argmin", a, axis, keepdims)


def _arg(name: str, a: NDArray, axis: int, keepdims: bool) -> NDArray:
    shape = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    out = NDArray.make(shape, device=a.device, dtype="int64")
    if out.size:
        getattr(a.device.backend, name)(a._view, out._view, axis)
    return out if keepdims else out.reshape(shape[:axis] + shape[axis + 1 :])
