"""Memory of large arrays, used again once nothing refers to them any more.

A batch of some megabytes in fresh memory costs as much in cleared pages as in work; memory that
was written a moment ago is in the cache as well. Kernels that return new arrays take them here.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST_BYTES = 1 << 20
"""Smaller arrays come from NumPy, whose allocator keeps such memory itself."""
MOST_BYTES = 1 << 26
"""What is kept for later, in all."""
LINE = 64

_free: deque[npt.NDArray[np.uint8]] = deque()  # its methods need no lock; the latest is last


def empty(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """As ``np.empty`` in C order: an array whose values are to be written."""
    dtype = np.dtype(dtype)
    count = dtype.itemsize
    for size in shape:
        count *= size
    if count < LEAST_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = _taken(count)
    owner = _Owner(memory, shape, dtype)
    weakref.finalize(owner, _given_back, memory).atexit = False
    return np.asarray(owner)


class _Owner:
    """The base of an array; its end is the end of the last view of it."""

    def __init__(
        self, memory: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        start = memory.ctypes.data
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(shape),
            "typestr": dtype.str,
            "data": (start + -start % LINE, False),
        }


def _given_back(memory: npt.NDArray[np.uint8]) -> None:
    if sum(len(each) for each in tuple(_free)) + len(memory) <= MOST_BYTES:
        _free.append(memory)


def _taken(count: int) -> npt.NDArray[np.uint8]:
    """Memory kept for about so many bytes, else new."""
    for _ in range(len(_free)):
        try:
            memory = _free.pop()
        except IndexError:  # another thread was faster
            break
        if count <= len(memory) - LINE <= 2 * count:
            return memory
        _free.appendleft(memory)
    return np.empty(count + LINE, np.uint8)
