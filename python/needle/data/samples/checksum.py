"""A checksum of memory, which shows whether an array has changed since the last epoch.

workers/pickling.py compares the checksums of a data set's arrays. A CRC alone would take a tenth
of an epoch of small images.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends import philox
from . import native_kernels

Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.uint64]


def checksum(memory: Any) -> int:
    """Return a checksum of a contiguous buffer; two contents share it with probability 2**-31."""
    content = np.frombuffer(memory, np.uint8)
    best: Callable[[Bytes, philox.Words], Sums] = getattr(
        native_kernels.kernels(), "block_sums", block_sums
    )
    rest = len(content) % _keys().nbytes
    whole = len(content) - rest
    sums = best(content[:whole], _keys())
    return zlib.crc32(content[whole:].data, zlib.crc32(sums.data))


def block_sums(content: Bytes, keys: philox.Words) -> Sums:
    """Return the NH hash of each block: the sum of (even word + key) * (odd word + key).

    content: uint8 ``(n * keys.nbytes,)``. keys: uint32 ``(2 * k,)``. The result is uint64 ``(n,)``.
    """
    sums = []
    for block in content.reshape(-1, keys.nbytes):
        words = block.view(np.uint32) + keys
        sums.append((words[::2].astype(np.uint64) * words[1::2]).sum())
    return np.array(sums, np.uint64)


@lru_cache(maxsize=1)
def _keys() -> philox.Words:
    """Return the keys of a block of 16 KiB; they stay in the first-level cache."""
    return native_kernels.words(0, 0, np.arange(4), 0, philox.MAX_WORDS).reshape(-1)
