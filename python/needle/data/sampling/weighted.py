"""Sampling by weight, for instance to draw rare classes or hard samples more often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends.philox import ORDER_STREAM, words
from ...errors import ShapeError
from ..samples.random_source import check_seed
from .sampler import Indices, Sampler

WEIGHT_STREAM = ORDER_STREAM - 1


class WeightedRandomSampler(Sampler):
    """A sampler of ``num_samples`` indices per epoch, drawn in proportion to ``weights``.

    weights: not negative, ``(n,)``. num_samples: n by default. replacement: the draws are
    independent; without replacement no index occurs twice, as if each were drawn from the
    remaining ones. seed: see ``RandomSampler``. Raises ValueError if too few weights are positive.
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: int | None = None,
    ) -> None:
        self.weights = _check_weights(weights)
        self.num_samples = len(self.weights) if num_samples is None else int(num_samples)
        self.replacement = bool(replacement)
        self.seed = None if seed is None else check_seed("WeightedRandomSampler", seed)
        self.repeatable = seed is not None
        _check_enough(self.weights, self.num_samples, self.replacement)
        self._edges = np.cumsum(self.weights)

    def positions(self, start: int, stop: int) -> Indices | None:
        """Return the draws at these positions of the epoch; None without seed or replacement."""
        if self.seed is None or not self.replacement:
            return None
        return self._chosen(_uniform(self.seed, self.epoch, start, stop))

    def order(self) -> Indices:
        """Return the next epoch's indices as int64 ``(num_samples,)`` and advance the epoch."""
        count = self.num_samples if self.replacement else len(self.weights)
        if self.seed is None:
            drawn = np.random.random_sample(count)
        else:
            drawn = _uniform(self.seed, self.epoch, 0, count)
            self.epoch += 1
        return self._chosen(drawn) if self.replacement else self._without_replacement(drawn)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def __len__(self) -> int:
        return self.num_samples

    def _chosen(self, drawn: npt.NDArray[np.float64]) -> Indices:
        if not len(drawn):
            return np.empty(0, dtype=np.int64)
        found = np.searchsorted(self._edges, drawn * self._edges[-1], side="right")
        last = np.flatnonzero(self.weights)[-1]  # rounding may move a draw beyond the last edge
        chosen: Indices = np.minimum(found, last).astype(np.int64)
        return chosen

    def _without_replacement(self, drawn: npt.NDArray[np.float64]) -> Indices:
        """Draw without replacement by sorting exponential times whose rates are the weights."""
        with np.errstate(divide="ignore"):
            times = -np.log1p(-drawn) / self.weights
        times[self.weights == 0] = np.inf
        return np.argsort(times, kind="stable")[: self.num_samples].astype(np.int64)


def _uniform(seed: int, epoch: int, start: int, stop: int) -> npt.NDArray[np.float64]:
    """Return a float64 in [0, 1) with 53 random bits for each position."""
    drawn = words(seed, epoch, np.arange(start, stop), WEIGHT_STREAM, 2).astype(np.float64)
    high, low = np.floor(drawn[:, 0] / 32), np.floor(drawn[:, 1] / 64)
    bits: npt.NDArray[np.float64] = (high * 2.0**26 + low) * 2.0**-53
    return bits


def _check_weights(weights: Any) -> npt.NDArray[np.float64]:
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1:
        raise ShapeError(
            f"WeightedRandomSampler: weights must be one number per sample, got shape {array.shape}"
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        wrong = array[~(np.isfinite(array) & (array >= 0))][0]
        raise ValueError(
            f"WeightedRandomSampler: weights must be finite and not negative, got {wrong}"
        )
    return array


def _check_enough(weights: npt.NDArray[np.float64], num_samples: int, replacement: bool) -> None:
    if num_samples < 0:
        raise ValueError(
            f"WeightedRandomSampler: num_samples must not be negative, got {num_samples}"
        )
    positive = int(np.count_nonzero(weights))
    if replacement and num_samples and not positive:
        raise ValueError("WeightedRandomSampler: some weight must be positive, got none; raise one")
    if not replacement and positive < num_samples:
        raise ValueError(
            f"WeightedRandomSampler: {num_samples} samples without replacement need as many "
            f"positive weights, got {positive}; take fewer, or replacement=True"
        )
