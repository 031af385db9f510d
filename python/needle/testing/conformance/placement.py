"""Host arrays placed on a backend as views of every layout, in buffers filled with guard values.

Called by ``case``. Of a backend, it uses only ``allocate``, ``upload`` and ``download``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ...backends.base import Backend, View
from ...shapes import compact_strides, product

HostArray = NumpyArray[Any]
Strides = tuple[int, ...]

LAYOUTS = ("compact", "offset", "permuted", "sliced", "negative", "broadcast")
"""Memory orders of a view; ``broadcast`` (stride 0 along the first axis) is for inputs alone."""

GUARD = 101
MARGIN = 3


def _plan(shape: tuple[int, ...], layout: str) -> tuple[Strides, int, int]:
    """Return (strides, offset, buffer size) of a view of ``shape`` in the layout."""
    strides, size = compact_strides(shape), product(shape)
    if layout == "compact":
        return strides, 0, size
    if layout == "permuted":
        return tuple(reversed(compact_strides(tuple(reversed(shape))))), MARGIN, size + MARGIN
    if layout == "sliced":  # every second element, along each axis, of a larger array
        wide = tuple(2 * n + 1 for n in shape)
        steps = tuple(2 * s for s in compact_strides(wide))
        return steps, sum(compact_strides(wide)), product(wide)
    if layout == "negative":
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if size else 0
        return tuple(-s for s in strides), MARGIN + last, size + 2 * MARGIN
    if layout == "broadcast" and shape:
        return (0, *compact_strides(shape[1:])), MARGIN, product(shape[1:]) + 2 * MARGIN
    return strides, MARGIN, size + 2 * MARGIN


def repeated(host: HostArray) -> HostArray:
    """Return values for a broadcast layout: the first slice along axis 0, repeated."""
    return np.array(np.broadcast_to(host[:1], host.shape)) if host.ndim and host.size else host


class Placed:
    """A host array on a backend: its view, and the expected contents of the whole buffer."""

    def __init__(self, backend: Backend, host: HostArray, layout: str) -> None:
        strides, offset, size = _plan(host.shape, layout)
        self._backend = backend
        self.buffer = np.full(size, GUARD, host.dtype)
        self._strides, self._offset = strides, offset
        self._window(host.shape)[...] = host
        handle = backend.allocate(size, host.dtype)
        self._whole = View(handle, (size,), (1,), 0, host.dtype)
        backend.upload(self.buffer, self._whole)
        self.view = View(handle, host.shape, strides, offset, host.dtype)

    def _window(self, shape: tuple[int, ...], buffer: HostArray | None = None) -> HostArray:
        buffer = self.buffer if buffer is None else buffer
        if 0 in shape:
            return np.empty(shape, buffer.dtype)
        strides = tuple(s * buffer.itemsize for s in self._strides)
        return np.lib.stride_tricks.as_strided(buffer[self._offset :], shape, strides)

    def read(self) -> HostArray:
        """Return the current elements of the view."""
        got = self._backend.download(self._whole)
        return np.array(self._window(self.view.shape, got))

    def outside_is_intact(self) -> bool:
        """Return True if the buffer around the view is unchanged."""
        got = np.array(self._backend.download(self._whole))
        self._window(self.view.shape, got)[...] = self._window(self.view.shape)
        return got.tobytes() == self.buffer.tobytes()

    def is_intact(self) -> bool:
        """Return True if the whole buffer, view included, is unchanged."""
        return bool(self._backend.download(self._whole).tobytes() == self.buffer.tobytes())
