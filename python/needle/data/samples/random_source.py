"""The random numbers of ``needle.data``: the global NumPy stream, or streams keyed by sample.

A loader with a seed keys the random numbers of each sample by (seed, epoch, index) (``keyed``);
without a seed, the global stream is used, as in the course. The transforms of this package use
Philox words (``draws()``) from streams numbered by transform; users' transforms may draw from
``random_source()``, an ordinary RandomState. Both produce the same numbers on every machine and
with every NumPy version.
"""

from __future__ import annotations

import operator
import random
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ...backends import philox
from ...contexts import assigned
from ...errors import ShapeError
from . import native_kernels

SAMPLE_STREAM, ORDER_STREAM, TRANSFORM_STREAMS = 0, 1, 2
LOADER_STREAM = 2**16
"""The first stream of a loader's transforms, after the streams of the dataset's transforms."""
BATCH_STREAM = 2**23
"""The first stream of batch transforms."""
RESEED_STREAM = 2**22
"""The first stream for seeding the global generators of ``random`` and NumPy."""
PART_STREAM = 2**21
"""The stream for ``reseed_globals`` before a user's ``fetch`` or collate of several samples."""

_reseeding = False


class Draws:
    """The random numbers of one sample, as words of numbered streams.

    ``stream`` is the number of the next stream. A transform occupies ``Transform.streams`` streams,
    so that its numbers depend on its position in the list, but not on how many numbers earlier
    transforms drew.
    """

    keyed = True
    """True if the numbers are a function of (seed, epoch, index)."""

    def __init__(self, seed: int, epoch: int, index: int) -> None:
        self.seed, self.epoch = operator.index(seed), operator.index(epoch)
        self.index = operator.index(index)  # a NumPy integer would overflow
        self.stream = 0
        self._source: np.random.RandomState | None = None
        self._source_stream = SAMPLE_STREAM

    def take(self, streams: int, count: int) -> philox.Words:
        """Return ``count`` words of this stream, uint32 ``(count,)``; advance by ``streams``."""
        first, self.stream = self.stream, self.stream + streams
        return self.words(first, count)

    def words(self, stream: int, count: int) -> philox.Words:
        """Return the first ``count`` words of a stream, uint32 ``(count,)``, without advancing."""
        if count == 0:
            return np.empty(0, np.uint32)
        place = np.array([self.index])
        one: philox.Words = native_kernels.words(self.seed, self.epoch, place, stream, count)[0]
        return one

    def seek(self, stream: int) -> None:
        """Continue with this stream, and give ``random_source()`` a new generator."""
        self.stream, self._source = stream, None
        self._source_stream = TRANSFORM_STREAMS + stream

    def source(self) -> np.random.RandomState:
        """Return the generator of ``random_source()``, the same one until the next ``seek``."""
        if self._source is None:
            bits = _philox(self.seed, self.epoch, self.index, self._source_stream)
            self._source = np.random.RandomState(bits)
        return self._source


class _GlobalDraws(Draws):
    """The draws outside a keyed block, which consume ``np.random`` in the order of the calls."""

    keyed = False

    def take(self, streams: int, count: int) -> philox.Words:
        return self.words(0, count)

    def words(self, stream: int, count: int) -> philox.Words:
        if count == 0:
            return np.empty(0, np.uint32)
        return np.random.randint(0, 2**32, size=count, dtype=np.uint32)

    def seek(self, stream: int) -> None:
        return

    def source(self) -> np.random.RandomState:
        return cast(np.random.RandomState, np.random)


_UNKEYED = _GlobalDraws(0, 0, 0)
_active: ContextVar[Draws] = ContextVar("needle_draws", default=_UNKEYED)


def draws() -> Draws:
    """Return the random numbers of the current sample, or the global ones outside a keyed block."""
    return _active.get()


def random_source() -> np.random.RandomState:
    """Return the generator for a user's transform, with ``rand``, ``randint``, ``uniform`` ...

    Inside a seeded loader this is a separate ``RandomState`` for each (seed, epoch, sample index,
    transform); elsewhere it is the module ``np.random``, whose functions have the same names.
    """
    return _active.get().source()


def keyed(seed: int, epoch: int, index: int) -> AbstractContextManager[Draws]:
    """Make all random numbers inside the block a function of (seed, epoch, index) only."""
    return assigned(_active, Draws(seed, epoch, index))


def reseed_every_sample(on: bool = True) -> None:
    """Enable or disable ``reseed_globals`` in this process; workers enable it."""
    global _reseeding
    _reseeding = on


def reseed_globals(seed: int, epoch: int, index: int, stream: int = 0) -> None:
    """Seed ``random`` and ``np.random`` for one sample if ``reseed_every_sample`` enabled it.

    stream: 0 before reading the sample, 1 + a transform's stream before calling the transform,
    ``PART_STREAM`` before ``fetch`` or collate of several samples, starting with ``index``.
    """
    if not _reseeding:
        return
    words = native_kernels.words(seed, epoch, np.array([index]), RESEED_STREAM + stream, 8)[0]
    np.random.seed(words[:4])
    random.seed(int.from_bytes(words[4:].tobytes(), "little"))


def keyed_permutation(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return a permutation of ``range(n)``, int64 ``(n,)``: a pure function of (seed, epoch, n)."""
    bits = _philox(seed, epoch, 0, ORDER_STREAM).random_raw(n)
    return philox.stable_order(bits)


def check_weights(op: str, weights: Any) -> npt.NDArray[np.float64]:
    """Return a read-only copy of the weights, float64 ``(n,)``; errors name the caller ``op``."""
    array = np.array(weights, dtype=np.float64)
    if array.ndim != 1:
        raise ShapeError(
            f"{op}: weights must be a 1-D list of numbers, got shape {array.shape}; give one per "
            "sample or transform"
        )
    wrong = array[~(np.isfinite(array) & (array >= 0))]
    if len(wrong):
        raise ValueError(f"{op}: weights must be finite and not negative, got {wrong[0]}")
    array.setflags(write=False)
    return array


def weight_edges(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return running sums of the weights, scaled by a power of two so that none overflows."""
    _, exponent = np.frexp(weights.max(initial=0.0))
    edges: npt.NDArray[np.float64] = np.cumsum(np.ldexp(weights, -exponent))
    return edges


def drawn_by_weight(
    edges: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Map each number in [0, 1) to an index, in proportion to the weights of these edges."""
    if not len(uniform):
        return np.empty(0, np.int64)
    found = np.searchsorted(edges, uniform * edges[-1], side="right")
    last = np.searchsorted(edges, edges[-1])  # rounding may move a draw beyond the last weight
    chosen: npt.NDArray[np.int64] = np.minimum(found, last).astype(np.int64)
    return chosen


def check_seed(op: str, seed: Any) -> int:
    """Return ``seed`` as an int in [0, 2**64), or raise an error that names the caller ``op``."""
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"{op}: seed must be an int or None, got {seed!r}") from None
    if not 0 <= value < 2**64:
        raise ValueError(f"{op}: seed must be in [0, 2**64), got {value}; use a smaller one")
    return value


def _philox(seed: int, epoch: int, index: int, stream: int) -> np.random.Philox:
    key = np.array([seed, epoch], dtype=np.uint64)
    place = index % 2**64  # A sampler may yield negative indices.
    # Each draw advances the first words.
    counter = np.array([0, 0, place, stream], dtype=np.uint64)
    return np.random.Philox(key=cast(Any, key), counter=cast(Any, counter))
