"""Where data gets its random numbers: the global NumPy stream, or one of each sample's own.

Transforms draw from ``random_source()``. A loader with a seed keys it (``keyed``) around each
sample by (seed, epoch, index); without one, programs of the course see the global stream.
Counter-based bits (Philox) and NumPy's frozen ``RandomState`` methods keep the numbers the same
on every machine and NumPy version.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np
import numpy.typing as npt

SAMPLE_STREAM, ORDER_STREAM = 0, 1


class _Key:
    """One sample's place in the random numbers; its generator is made at the first draw."""

    def __init__(self, seed: int, epoch: int, index: int) -> None:
        self.place = (seed, epoch, index)
        self.source: np.random.RandomState | None = None


_active: ContextVar[_Key | None] = ContextVar("needle_random_key", default=None)


def random_source() -> np.random.RandomState:
    """What a transform draws from: ``rand``, ``randint``, ``uniform``, ``normal``, ``choice`` ...

    Inside a seeded loader a ``RandomState`` of its own for each (seed, epoch, sample index);
    elsewhere the module ``np.random``, whose functions have the same names.
    """
    key = _active.get()
    if key is None:
        return cast(np.random.RandomState, np.random)
    if key.source is None:
        seed, epoch, index = key.place
        key.source = np.random.RandomState(_philox(seed, epoch, index, SAMPLE_STREAM))
    return key.source


@contextmanager
def keyed(seed: int, epoch: int, index: int) -> Iterator[None]:
    """Within this block ``random_source()`` is a function of (seed, epoch, index) alone."""
    token = _active.set(_Key(seed, epoch, index))
    try:
        yield
    finally:
        _active.reset(token)


def keyed_permutation(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A permutation of ``range(n)``, int64 ``(n,)``: a pure function of (seed, epoch, n)."""
    bits = _philox(seed, epoch, 0, ORDER_STREAM).random_raw(n)
    return np.argsort(bits, kind="stable").astype(np.int64, copy=False)


def check_seed(op: str, seed: Any) -> int:
    """``seed`` as an int in [0, 2**64); TypeError or ValueError names the caller ``op``."""
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"{op}: seed must be an int or None, got {seed!r}") from None
    if not 0 <= value < 2**64:
        raise ValueError(f"{op}: seed must be in [0, 2**64), got {value}; take a smaller one")
    return value


def _philox(seed: int, epoch: int, index: int, stream: int) -> np.random.Philox:
    key = np.array([seed, epoch], dtype=np.uint64)
    place = index % 2**64  # a sampler may count from the end
    counter = np.array([0, 0, place, stream], dtype=np.uint64)  # a draw advances the first words
    return np.random.Philox(key=cast(Any, key), counter=cast(Any, counter))
