"""Philox4x32-10: random 32-bit words as a function of seed, epoch, index and stream.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). There is no sequence and no
state; src/core/philox.h gives the same bits. Used by ``needle.data`` for orders and augmentation,
and by ``accelerated.random`` for tensors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

MAX_STREAM, MAX_WORDS = 2**24, 1024
TENSOR_STREAM = MAX_STREAM - 4
"""The stream of random tensors; the last three streams belong to the samplers of ``data``."""

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF
_FEW_BLOCKS = 16  # up to about this number, Python integers are faster than NumPy calls


def words(seed: int, epoch: int, indices: Integers, stream: int, count: int) -> Words:
    """Return ``count`` random words for each index: uint32 ``(n, count)``.

    seed: in [0, 2**64), the key. epoch: taken modulo 2**32. indices: int64 ``(n,)``, negative ones
    modulo 2**64. stream: below 2**24. count: at most 1024. ValueError if stream or count is out of
    range.
    """
    if not 0 <= stream < MAX_STREAM or not 0 <= count <= MAX_WORDS:
        raise ValueError(
            f"philox.words: stream must be in [0, 2**24) and count in [0, {MAX_WORDS}], got "
            f"stream {stream} and count {count}; draw fewer words for one sample"
        )
    places = np.asarray(indices, dtype=np.int64).reshape(-1)
    blocks = -(-count // 4)
    key = (seed & _MASK, seed >> 32 & _MASK)
    if len(places) * blocks <= _FEW_BLOCKS:
        counters = (
            (i & _MASK, i >> 32 & _MASK, epoch & _MASK, stream << 8 | block)
            for i in places.tolist()
            for block in range(blocks)
        )
        rows = [philox_block(counter, key) for counter in counters]
        few = np.array(rows, dtype=np.uint32).reshape(len(places), 4 * blocks)
        return few[:, :count]
    wide: Wide = places.view(np.uint64)[:, None]
    counter: tuple[Wide, ...] = (
        wide & np.uint64(_MASK),
        wide >> np.uint64(32),
        np.full((1, 1), epoch & _MASK, np.uint64),
        (np.uint64(stream << 8) | np.arange(blocks, dtype=np.uint64))[None, :],
    )
    many = _rounds(counter, key, (len(places), blocks))
    return many.reshape(len(places), 4 * blocks)[:, :count]


def philox_block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Return the four output words of one counter; all words are 32-bit integers."""
    ### BEGIN YOUR SOLUTION [philox]
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3
    ### END YOUR SOLUTION


def _rounds(counter: tuple[Wide, ...], key: tuple[int, int], shape: tuple[int, int]) -> Words:
    """Return ``philox_block`` of counter arrays that broadcast to ``shape``: ``(*shape, 4)``."""
    c0, c1, c2, c3 = (np.broadcast_to(c, shape) for c in counter)
    k0, k1 = key
    m0, m1 = (np.uint64(m) for m in _MULTIPLIERS)
    half, mask = np.uint64(32), np.uint64(_MASK)
    for _ in range(10):
        p0, p1 = c0 * m0, c2 * m1
        c0, c1 = (p1 >> half) ^ c1 ^ np.uint64(k0), p1 & mask
        c2, c3 = (p0 >> half) ^ c3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return np.stack((c0, c1, c2, c3), axis=-1).astype(np.uint32)
