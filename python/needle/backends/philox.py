"""Philox4x32-10: random 32-bit words as a function of seed, epoch, index and stream.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). The generator has no state;
src/core/philox.h gives the same bits. Used by ``needle.data`` for orders and augmentation, and by
``accelerated.random`` for tensors.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]

MAX_STREAM, MAX_WORDS = 2**24, 1024
TENSOR_STREAM = MAX_STREAM - 4
"""The stream of random tensors; the last three streams belong to the samplers of ``data``."""

ORDER_STREAM = MAX_STREAM - 1
"""The stream of shuffled orders; transforms count theirs from 0, batch transforms from 2**23."""
SORTED_LENGTH = 2**17
"""Up to this length an order is sorted and kept, above it each place is computed by itself."""
FEISTEL_ROUNDS = 8

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF
_FEW_BLOCKS = 16  # up to about this number, Python integers are faster than NumPy calls


def words(seed: int, epoch: int, indices: Integers, stream: int, count: int) -> Words:
    """Return ``count`` random words for each index: uint32 ``(n, count)``.

    seed: the key, in [0, 2**64). epoch: reduced modulo 2**32. indices: int64 ``(n,)``, negative
    ones modulo 2**64. stream: below 2**24. count: at most 1024. ValueError if stream or count is
    out of range.
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
    """Return ``philox_block`` for counter arrays that broadcast to ``shape``: ``(*shape, 4)``."""
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


def uniform(drawn: Words) -> npt.NDArray[np.float64]:
    """Return each word as a float64 in [0, 1), a multiple of 2**-32."""
    return np.asarray(drawn).astype(np.float64) * 2.0**-32


def below(drawn: Words, limit: int | Integers) -> Integers:
    """Return each word as an int64 in [0, limit): ``word * limit >> 32``, limit in [1, 2**32]."""
    factor = np.uint64(limit) if isinstance(limit, int) else np.asarray(limit).astype(np.uint64)
    product: Wide = np.multiply(drawn, factor, dtype=np.uint64)
    product >>= np.uint64(32)
    return product.view(np.int64)


def happens(drawn: Words, probability: float) -> npt.NDArray[np.bool_]:
    """Return, for each word, True with the given probability: never for 0, always for 1."""
    answer: npt.NDArray[np.bool_] = np.asarray(drawn) < probability * 2.0**32
    return answer


def permutation(positions: Integers, length: int, seed: int, epoch: int) -> Integers:
    """Return the indices at ``positions`` of an epoch's shuffled ``range(length)``: int64 (n,).

    A bijection of [0, length) for each (length, seed, epoch). Short orders are the stable argsort
    of 64 random bits per index (the first word above the second), and all orders are equally
    likely. Beyond ``SORTED_LENGTH`` no array of the order's length is allocated. ValueError for a
    position outside [0, length).
    """
    places = np.asarray(positions, dtype=np.int64).reshape(-1)
    if len(places) and not (places.min() >= 0 and places.max() < length):
        raise ValueError(
            f"permutation: positions must be in [0, {length}), got {places.min()} to "
            f"{places.max()}; the order has {length} positions"
        )
    if length <= SORTED_LENGTH:
        return _sorted_order(length, seed, epoch)[places]
    return _computed_order(places, length, seed, epoch)


def stable_order(keys: Wide) -> Integers:
    """Return the stable argsort of random keys.

    The default sort is faster; it is stable unless keys are equal, which is rare.
    """
    order = np.argsort(keys)
    ordered = keys[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(keys, kind="stable")
    return order.astype(np.int64, copy=False)


@lru_cache(maxsize=8)
def _sorted_order(length: int, seed: int, epoch: int) -> Integers:
    ### BEGIN YOUR SOLUTION [shuffled-order]
    drawn = words(seed, epoch, np.arange(length), ORDER_STREAM, 2).astype(np.uint64)
    keys = drawn[:, 0] << np.uint64(32) | drawn[:, 1]
    order = stable_order(keys)
    order.setflags(write=False)
    return order
    ### END YOUR SOLUTION


def _computed_order(places: Integers, length: int, seed: int, epoch: int) -> Integers:
    """Return the order by a Feistel network on the next even power of two.

    The network is applied until the value is in range. The halves have ``half`` bits, the left one
    the high ones; a round maps (left, right) to (right, left ^ mixed(right ^ key) & mask). The keys
    are the words of index ``length``.
    """
    half = (max(length - 1, 1).bit_length() + 1) // 2
    keys = words(seed, epoch, np.array([length]), ORDER_STREAM, FEISTEL_ROUNDS)[0]
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    values = places.astype(np.uint64)
    outside = np.arange(len(values))
    while len(outside):
        left, right = values[outside] >> shift, values[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right.astype(np.uint32) ^ key) & mask)
        values[outside] = left << shift | right
        outside = outside[values[outside] >= np.uint64(length)]
    return values.astype(np.int64)


def _mixed(values: Words) -> Wide:
    """Apply the 32-bit finaliser of MurmurHash3 (Appleby, public domain) to the values."""
    h = values ^ (values >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    mixed: Words = h ^ (h >> np.uint32(16))
    return mixed.astype(np.uint64)
