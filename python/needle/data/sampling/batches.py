"""Batches of equal size from the indices of any sampler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...errors import check_at_least
from .sampler import Sampler, check_again, set_epoch


class BatchSampler(Sampler):
    """Lists of ``batch_size`` indices of ``sampler``; ``drop_last`` drops a shorter last list."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        check_again("BatchSampler", "sampler", sampler)
        self.sampler = sampler
        self.batch_size = check_batch_size("BatchSampler", batch_size)
        self.drop_last = drop_last

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        """True if the sampler repeats the order of an epoch."""
        return bool(getattr(self.sampler, "repeatable", True))

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the next epoch to the inner sampler if it accepts one."""
        set_epoch(self.sampler, epoch)

    def __iter__(self) -> Iterator[list[int]]:
        ### BEGIN YOUR SOLUTION [batch-sampler]
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch
        ### END YOUR SOLUTION

    def __len__(self) -> int:
        return batch_count(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]


def batch_count(length: int, batch_size: int, drop_last: bool) -> int:
    """Return the number of batches that ``length`` samples form."""
    return length // batch_size if drop_last else -(-length // batch_size)


def check_batch_size(op: str, batch_size: Any) -> int:
    """Return ``batch_size`` as an int of at least 1; errors name the caller ``op``."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
        raise TypeError(f"{op}: batch_size must be an int, got {batch_size!r}")
    check_at_least(op, "batch_size", batch_size, 1)
    return int(batch_size)
