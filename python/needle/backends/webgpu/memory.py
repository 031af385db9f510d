"""Buffers of a WebGPU device: a pool by size, and the 32-bit words that store elements.

| dtype | word of 32 bits | range |
|---|---|---|
| float32 | the number | that of float32 |
| int32 | the number | that of int32 |
| int64 | the number, as int32 | that of int32; others raise DTypeError when they are uploaded |
| uint8 | the number | 0 to 255 |
| bool | 0 or 1 | |
| float64 | none: WGSL has no 64-bit numbers | DTypeError |

Called by ``queue`` and ``required`` and ``optional``.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ...contexts import uninterrupted
from ...dtypes import DType
from ...errors import DeviceMemoryError, DTypeError
from ..base import Scalar

WORD = 4
GRAIN = 256
WORDS = {"float32": "<f4", "int32": "<i4", "int64": "<i4", "uint8": "<u4", "bool": "<u4"}
INT64_RANGE = (-(2**31), 2**31 - 1)

Words = NumpyArray[Any]


def require_dtype(dtype: DType) -> None:
    """Raise DTypeError for float64."""
    if dtype.name not in WORDS:
        raise DTypeError(
            f"webgpu: expected float32, int32, int64, uint8 or bool, got {dtype}; WebGPU has no "
            "64-bit floats, cast to float32 or use needle.cpu()"
        )


def to_words(source: NumpyArray[Any]) -> Words:
    """Return the elements as contiguous words; raise DTypeError for an int64 out of range."""
    require_dtype(source.dtype)
    if source.dtype == np.int64 and source.size:
        low, high = int(source.min()), int(source.max())
        if low < INT64_RANGE[0] or high > INT64_RANGE[1]:
            raise DTypeError(
                "webgpu: int64 is stored in 32 bits, expected values from -2**31 to 2**31 - 1, "
                f"got {low if low < INT64_RANGE[0] else high}; use needle.cpu() for this array"
            )
    return np.ascontiguousarray(source, WORDS[source.dtype.name])


def from_words(words: memoryview, dtype: DType) -> NumpyArray[Any]:
    """Convert words to a new array of the dtype."""
    return np.frombuffer(words, WORDS[dtype.name]).astype(dtype)


def scalar_word(value: Scalar, dtype: DType) -> int:
    """Convert a Python number to the dtype as C does, and return its word as an int32."""
    with np.errstate(all="ignore"):
        converted = np.asarray(value).astype(dtype).reshape(1)
    return int(to_words(converted).view("<i4")[0])


class Buffer:
    """A handle of ``size`` elements; its memory returns to the pool when the handle dies."""

    __slots__ = ("__weakref__", "gpu", "number", "pool", "shared", "size", "written")

    def __init__(self, pool: Pool, size: int, gpu: Any, number: int) -> None:
        self.pool, self.size, self.gpu, self.number = pool, size, gpu, number
        self.written, self.shared = 0, False

    def ptr(self) -> int:
        """Return the buffer's number, which is unique during the device's lifetime."""
        return self.number

    @uninterrupted
    def __del__(self) -> None:
        self.pool.give_back(self.number)


class Pool:
    """A pool of device memory, cached by size.

    Commands of a queue run in order, so memory can be reused immediately. The lock is the queue's,
    since concurrent calls of wgpu crash the process. ``make_room`` drops the queue's caches and
    calls ``empty``.
    """

    def __init__(
        self, device: Any, usage: int, limit: int, lock: Any, make_room: Callable[[], None]
    ) -> None:
        self._device, self._usage, self._limit = device, usage, limit
        self._lock, self._make_room = lock, make_room
        self._exhausted = importlib.import_module("wgpu").GPUOutOfMemoryError
        self._free: dict[int, list[int]] = {}
        # All buffers by number. The pool owns them, since a buffer must not die with a handle in a
        # reference cycle: the garbage collector would finalise both, and the pool would keep
        # released memory.
        self._made: dict[int, Any] = {}
        self._returned: deque[int] = deque()
        self._numbers = 0
        self.in_use = self.cached = self.peak = self.allocations = self.reuses = 0

    def take(self, size: int) -> Buffer:
        """Return an uninitialised buffer of ``size`` elements, or raise DeviceMemoryError."""
        count = max(-(-size * WORD // GRAIN), 1) * GRAIN
        if count > self._limit:
            raise DeviceMemoryError(
                f"webgpu: a buffer may have at most {self._limit} bytes on this adapter, got "
                f"{count} bytes for {size} elements; use smaller batches or needle.cpu()"
            )
        with self._lock:
            self.collect()
            free = self._free.get(count)
            if free:
                number = free.pop()
                self.cached -= count
                self.reuses += 1
            else:
                number = self._numbers
                self._made[number] = self._create(count)
                self._numbers += 1
                self.allocations += 1
            self.in_use += count
            self.peak = max(self.peak, self.in_use)
        return Buffer(self, size, self._made[number], number)

    def _create(self, count: int) -> Any:
        try:
            return self._device.create_buffer(size=count, usage=self._usage)
        except self._exhausted:
            self._make_room()
        try:
            return self._device.create_buffer(size=count, usage=self._usage)
        except self._exhausted as reason:
            raise DeviceMemoryError(
                f"webgpu: {count} bytes cannot be allocated, {self.in_use} bytes are in use; use "
                "smaller batches, or delete tensors that are not needed"
            ) from reason

    def give_back(self, number: int) -> None:
        """Cache memory to which no handle refers.

        A finaliser may call this in any thread, even in wgpu's while a reader waits for it with the
        lock held, so this takes no lock.
        """
        self._returned.append(number)

    def collect(self) -> None:
        """Move returned memory to the cache."""
        with self._lock:
            while self._returned:
                number = self._returned.popleft()
                count = self._made[number].size
                self._free.setdefault(count, []).append(number)
                self.in_use -= count
                self.cached += count

    def empty(self) -> None:
        """Release all cached memory."""
        with self._lock:
            self.collect()
            for number in chain.from_iterable(self._free.values()):
                del self._made[number]
            self._free.clear()
            self.cached = 0
