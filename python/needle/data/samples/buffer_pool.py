"""Memory of large arrays, used again once nothing refers to them any more.

A batch of some megabytes in fresh memory costs as much in cleared pages as in work; memory that
was written a moment ago is in the cache as well. Kernels that return new arrays take them here.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST_BYTES = 1 << 20
"""Smaller arrays come from NumPy, whose allocator keeps such memory itself."""
MOST_BYTES = 1 << 26
"""What is kept for later, in all."""
LINE = 64


class _Memory:
    """Memory for arrays of up to ``size`` bytes, which begin at a line of the cache."""

    __slots__ = ("bytes", "first", "size")

    def __init__(self, size: int) -> None:
        self.bytes, self.size = np.empty(size + LINE, np.uint8), size
        self.first = -self.bytes.ctypes.data % LINE


class _Lent(weakref.ref):  # type: ignore[type-arg]
    """Tells the end of what an array's memory is seen through: the end of its last view."""

    __slots__ = ("memory",)
    memory: _Memory


_free: deque[_Memory] = deque()  # its methods need no lock; the latest is last
_lent: dict[int, _Lent] = {}  # by identity


def empty(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """As ``np.empty`` in C order: an array whose values are to be written."""
    dtype = np.dtype(dtype)
    count = dtype.itemsize
    for size in shape:
        count *= size
    if count < LEAST_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = _taken(count)
    block = _block_of(count).from_buffer(memory.bytes, memory.first)
    lent = _Lent(block, _given_back)
    lent.memory = memory
    _lent[id(lent)] = lent
    return np.ndarray(shape, dtype, buffer=block)


@lru_cache(maxsize=64)
def _block_of(count: int) -> Any:
    return ctypes.c_char * count


def _given_back(lent: _Lent) -> None:
    del _lent[id(lent)]
    if sum([each.size for each in tuple(_free)]) + lent.memory.size <= MOST_BYTES:
        _free.append(lent.memory)


def _taken(count: int) -> _Memory:
    """Memory kept for about so many bytes, else new."""
    for _ in range(len(_free)):
        try:
            memory = _free.pop()
        except IndexError:  # another thread was faster
            break
        if count <= memory.size <= 2 * count:
            return memory
        _free.appendleft(memory)
    return _Memory(count)
