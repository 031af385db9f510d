"""Batches of samples of similar length, which need little padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends.philox import ORDER_STREAM, words
from ...errors import ShapeError, check_at_least
from ..samples.random_source import check_seed
from .batches import batch_count, check_batch_size
from .orders import shuffled
from .sampler import Indices, Sampler, check_again

BATCH_STREAM = ORDER_STREAM - 2


class LengthBucketBatchSampler(Sampler):
    """Lists of ``batch_size`` indices with ``lengths`` in one bucket, for batch_sampler=.

    lengths: one number per sample. boundaries: increasing lengths that separate the buckets, where
    a boundary belongs to the upper bucket; by default there are ``buckets`` buckets with about the
    same number of samples. Each index occurs once per epoch; the last batch of a bucket may be
    short, and ``drop_last`` drops it. shuffle: shuffles the samples within buckets and the order of
    batches; seed: see ``RandomSampler``. The whole epoch is computed at once, which takes a few
    tenths of a second for a million samples.
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int,
        boundaries: Sequence[float] | None = None,
        *,
        buckets: int = 10,
        shuffle: bool = True,
        seed: int | None = None,
        drop_last: bool = False,
    ) -> None:
        op = "LengthBucketBatchSampler"
        self.batch_size = check_batch_size(op, batch_size)
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)
        self.seed = None if seed is None else check_seed(op, seed)
        self.lengths = _check_numbers("lengths", lengths)
        given = _equal_parts(self.lengths, buckets) if boundaries is None else boundaries
        self.boundaries = _check_numbers("boundaries", given)
        if (np.diff(self.boundaries) <= 0).any():
            raise ValueError(f"{op}: boundaries must increase, got {list(given)}; sort them")

    @property
    def bucket_of(self) -> Indices:
        """The number of each sample's bucket, int64 ``(n,)``."""
        return np.searchsorted(self.boundaries, self.lengths, side="right")

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        """True with a seed, or if nothing is shuffled."""
        return self.seed is not None or not self.shuffle

    def batches(self) -> list[Indices]:
        """Return the batches of the next epoch and advance to the epoch after it."""
        bucket_of = self.bucket_of
        order = np.arange(len(bucket_of), dtype=np.int64)
        if self.shuffle:
            order = self._shuffled(order)
        order = order[np.argsort(bucket_of[order], kind="stable")]
        buckets = np.split(order, np.cumsum(np.bincount(bucket_of))) if len(order) else []
        found = [batch for bucket in buckets for batch in self._cut(bucket)]
        if self.shuffle:
            found = [found[i] for i in self._batch_order(len(found))]
            self.epoch += 1
        return found

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.batches())

    def __len__(self) -> int:
        sizes = np.bincount(self.bucket_of)
        return sum(batch_count(int(n), self.batch_size, self.drop_last) for n in sizes)

    def _cut(self, bucket: Indices) -> list[Indices]:
        count = batch_count(len(bucket), self.batch_size, self.drop_last)
        return [bucket[i * self.batch_size : (i + 1) * self.batch_size] for i in range(count)]

    def _shuffled(self, order: Indices) -> Indices:
        if self.seed is None:
            return np.random.permutation(order)
        return shuffled(order, len(order), self.seed, self.epoch)

    def _batch_order(self, count: int) -> Indices:
        if self.seed is None:
            return np.random.permutation(count)
        drawn = words(self.seed, self.epoch, np.arange(count), BATCH_STREAM, 1)[:, 0]
        return np.argsort(drawn, kind="stable")


def _check_numbers(name: str, values: Any) -> npt.NDArray[np.float64]:
    check_again("LengthBucketBatchSampler", name, values)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ShapeError(
            f"LengthBucketBatchSampler: {name} must be a 1-D list of finite numbers, got shape "
            f"{array.shape}; give one number per sample or boundary"
        )
    return array


def _equal_parts(sizes: npt.NDArray[np.float64], buckets: int) -> npt.NDArray[np.float64]:
    check_at_least("LengthBucketBatchSampler", "buckets", buckets, 1)
    if not len(sizes):
        return np.empty(0)
    return np.unique(np.quantile(sizes, np.arange(1, buckets) / buckets))
