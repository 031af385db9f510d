"""A pool of memory for large arrays, which is reused once nothing references the array any more.

For a batch of several megabytes, clearing new pages takes as long as filling them, and recently
written memory is still in the cache. Kernels that return new arrays call ``empty``.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contexts import uninterrupted

LEAST_BYTES = 1 << 20
"""Minimum size in bytes of a pooled array; NumPy's allocator already reuses smaller ones."""
MOST_BYTES = 1 << 26
"""Maximum bytes of unused memory that the pool keeps."""
LINE = 64


_Memory = npt.NDArray[np.uint8]


class _Lent(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that calls a function when the last view of an array's memory is gone."""

    __slots__ = ("memory",)
    memory: _Memory


_free: deque[_Memory] = deque()  # A deque needs no lock; most recently used last.
_lent: dict[int, _Lent] = {}  # Keyed by id.


def empty(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Return an uninitialised array in C order, as ``np.empty`` does."""
    dtype = np.dtype(dtype)
    count = dtype.itemsize * prod(shape)
    if count < LEAST_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = _taken(count)
    block = _block_of(count).from_buffer(memory)
    lent = _Lent(block, _given_back)
    lent.memory = memory
    _lent[id(lent)] = lent
    return np.ndarray(shape, dtype, buffer=block)


@lru_cache(maxsize=64)
def _block_of(count: int) -> Any:
    return ctypes.c_char * count


@uninterrupted
def _given_back(lent: _Lent) -> None:
    _lent.pop(id(lent), None)  # a Ctrl-C may have come before it was stored
    if sum([each.nbytes for each in tuple(_free)]) + lent.memory.nbytes <= MOST_BYTES:
        _free.append(lent.memory)


def _taken(count: int) -> _Memory:
    """Return pooled memory of at most twice ``count`` bytes, or new memory if there is none.

    It is aligned to a cache line.
    """
    for _ in range(len(_free)):
        try:
            memory = _free.pop()
        except IndexError:  # another thread has taken the last one
            break
        if count <= memory.nbytes <= 2 * count:
            return memory
        _free.appendleft(memory)
    memory = np.empty(count + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + count]
