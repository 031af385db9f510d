"""Random numbers and shuffled orders of ``needle.data`` from Philox's words.

The words are ``needle.philox``'s; nothing is drawn in sequence and nothing is kept.
src/data/permutation.h gives the same bits. random_source.py and the plans of augmentation take the
words, samplers the permutation.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..philox import MAX_STREAM, MAX_WORDS, Integers, Wide, Words, philox_block, words

__all__ = [
    "FEISTEL_ROUNDS",
    "MAX_STREAM",
    "MAX_WORDS",
    "ORDER_STREAM",
    "SORTED_LENGTH",
    "Integers",
    "Wide",
    "Words",
    "below",
    "happens",
    "permutation",
    "philox_block",
    "stable_order",
    "uniform",
    "words",
]

ORDER_STREAM = MAX_STREAM - 1
"""The stream of shuffled orders; transforms count theirs from 0, batch transforms from 2**23."""
SORTED_LENGTH = 2**17
"""Up to this length an order is sorted and kept, above it each place is computed by itself."""
FEISTEL_ROUNDS = 8


def uniform(drawn: Words) -> npt.NDArray[np.float64]:
    """Each word as a float64 in [0, 1), a multiple of 2**-32."""
    return np.asarray(drawn).astype(np.float64) * 2.0**-32


def below(drawn: Words, limit: int | Integers) -> Integers:
    """Each word as an int64 in [0, limit), ``limit`` in [1, 2**32]: ``word * limit >> 32``."""
    factor = np.uint64(limit) if isinstance(limit, int) else np.asarray(limit).astype(np.uint64)
    product: Wide = np.multiply(drawn, factor, dtype=np.uint64)
    product >>= np.uint64(32)
    return product.view(np.int64)


def happens(drawn: Words, probability: float) -> npt.NDArray[np.bool_]:
    """Whether something of this probability happens, for each word; 0 is never and 1 always."""
    answer: npt.NDArray[np.bool_] = np.asarray(drawn) < probability * 2.0**32
    return answer


def permutation(positions: Integers, length: int, seed: int, epoch: int) -> Integers:
    """The indices at these places of an epoch's shuffled order of ``range(length)``: int64 (n,).

    A bijection of [0, length) for each (length, seed, epoch). Short orders are the stable argsort
    of 64 random bits an index (the first word above the second), all orders equally likely;
    beyond ``SORTED_LENGTH`` nothing of the size of the order is made. ValueError for a position
    outside.
    """
    places = np.asarray(positions, dtype=np.int64).reshape(-1)
    if len(places) and not (places.min() >= 0 and places.max() < length):
        raise ValueError(
            f"permutation: positions must be in [0, {length}), got {places.min()} to "
            f"{places.max()}; the order has {length} places"
        )
    if length <= SORTED_LENGTH:
        return _sorted_order(length, seed, epoch)[places]
    return _computed_order(places, length, seed, epoch)


def stable_order(keys: Wide) -> Integers:
    """The stable argsort of random keys; quicker, since equal ones are hardly ever among them."""
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
    """Feistel network on the next even power of two, applied until the value is in range.

    The halves have ``half`` bits, the left one the high ones; a round makes (left, right) into
    (right, left ^ mixed(right ^ key) & mask). The keys are the words of index ``length``.
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
    """MurmurHash3's 32-bit finaliser (Appleby, public domain)."""
    h = values ^ (values >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    mixed: Words = h ^ (h >> np.uint32(16))
    return mixed.astype(np.uint64)
