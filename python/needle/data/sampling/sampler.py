"""What a sampler is: indices for one pass; a loader tells it the epoch before each.

The samplers themselves are in the other files of this package; any iterable of indices that has a
length will do in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class Sampler:
    """Base: ``__iter__`` gives indices for one pass, ``__len__`` how many.

    ``positions`` makes a loader resume at any step without walking there.
    """

    epoch = 0
    repeatable = True
    """Whether the same epoch always has the same order; a loader's position needs that."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__()")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__()")

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass; the loader calls this."""
        self.epoch = epoch

    def positions(self, start: int, stop: int) -> Indices | None:
        """The indices at places ``start`` to ``stop`` of this epoch's pass, int64 ``(n,)``.

        Optional: None (the default) has the loader walk through ``__iter__``. 0 <= start <= stop
        <= len.
        """
        return None

    def validity(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """For the same places, whether the sample counts: False for one that only fills up."""
        return np.ones(stop - start, dtype=np.bool_)


def set_epoch(sampler: Any, epoch: int) -> None:
    """Tells ``sampler`` the epoch if it has a ``set_epoch``; any iterable of indices will do."""
    tell = getattr(sampler, "set_epoch", None)
    if tell is not None:
        tell(epoch)


def length_of(op: str, source: Sized | int) -> int:
    """``source`` or its length, not negative; ValueError names the caller ``op``."""
    length = int(source) if isinstance(source, (int, np.integer)) else len(source)
    if length < 0:
        raise ValueError(f"{op}: the length must not be negative, got {length}")
    return length
