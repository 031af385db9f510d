"""Sample by weight, for instance to draw rare classes or hard samples more often."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends.philox import ORDER_STREAM, words
from ...errors import check_at_least
from ..samples.random_source import check_seed, check_weights, drawn_by_weight, weight_edges
from .sampler import Indices, Sampler, check_again

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
        self.weights = weights
        count = len(self.weights) if num_samples is None else num_samples
        self.num_samples = operator.index(count)
        self.replacement = bool(replacement)
        self.seed = None if seed is None else check_seed("WeightedRandomSampler", seed)
        self._check_enough()

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weights, read-only float64 ``(n,)``; new weights may be set between epochs."""
        return self._weights

    @weights.setter
    def weights(self, weights: Any) -> None:
        check_again("WeightedRandomSampler", "weights", weights)
        self._weights = check_weights("WeightedRandomSampler", weights)
        self._edges = weight_edges(self._weights)
        self._positive = int(np.count_nonzero(self._weights))

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        """True with a seed."""
        return self.seed is not None

    def positions(self, start: int, stop: int) -> Indices | None:
        """Return the draws at these positions of the epoch; None without seed or replacement."""
        if self.seed is None or not self.replacement:
            return None
        self._check_enough()
        return drawn_by_weight(self._edges, _uniform(self.seed, self.epoch, start, stop))

    def order(self) -> Indices:
        """Return the next epoch's indices as int64 ``(num_samples,)`` and advance the epoch."""
        self._check_enough()
        count = self.num_samples if self.replacement else len(self.weights)
        if self.seed is None:
            drawn = np.random.random_sample(count)
        else:
            drawn = _uniform(self.seed, self.epoch, 0, count)
            self.epoch += 1
        if self.replacement:
            return drawn_by_weight(self._edges, drawn)
        return self._without_replacement(drawn)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def __len__(self) -> int:
        return self.num_samples

    def _without_replacement(self, drawn: npt.NDArray[np.float64]) -> Indices:
        """Draw without replacement by sorting exponential times, with the weights as rates.

        The logarithms of the times are finite for any positive weight.
        """
        with np.errstate(divide="ignore"):
            times = np.log(-np.log1p(-drawn)) - np.log(self.weights)
        times[self.weights == 0] = np.inf
        return np.argsort(times, kind="stable")[: self.num_samples].astype(np.int64)

    def _check_enough(self) -> None:
        op, count, positive = "WeightedRandomSampler", self.num_samples, self._positive
        check_at_least(op, "num_samples", count, 0)
        if self.replacement and count and not positive:
            raise ValueError(f"{op}: at least one weight must be positive, got none; raise one")
        if not self.replacement and positive < count:
            raise ValueError(
                f"{op}: {count} samples without replacement need as many positive weights, got "
                f"{positive}; use fewer, or replacement=True"
            )


def _uniform(seed: int, epoch: int, start: int, stop: int) -> npt.NDArray[np.float64]:
    """Return a float64 in [0, 1) with 53 random bits for each position."""
    drawn = words(seed, epoch, np.arange(start, stop), WEIGHT_STREAM, 2).astype(np.float64)
    high, low = np.floor(drawn[:, 0] / 32), np.floor(drawn[:, 1] / 64)
    bits: npt.NDArray[np.float64] = (high * 2.0**26 + low) * 2.0**-53
    return bits
