"""The base class of samplers, which yield the indices of one epoch.

The other files of this room hold the samplers. A loader sets the epoch before each pass and also
accepts any iterable of indices with a length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from ...torch_names import PointsToKeywords

Indices = npt.NDArray[np.int64]


class Sampler(PointsToKeywords):
    """Base class: ``__iter__`` yields the indices of one epoch, ``__len__`` is their number.

    With ``positions`` a loader resumes at any step without iterating over the earlier ones.
    """

    epoch = 0
    repeatable = True
    """True if the same epoch always has the same order; a loader's position needs that."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__()")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__()")

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch; the loader calls this."""
        self.epoch = epoch

    def positions(self, start: int, stop: int) -> Indices | None:
        """Return the indices at places ``start`` to ``stop`` of this epoch, int64 ``(n,)``.

        Optional: with None (the default) the loader iterates instead. 0 <= start <= stop <= len.
        """
        return None


def set_epoch(sampler: Any, epoch: int) -> None:
    """Set the epoch of ``sampler`` if it has ``set_epoch``; any iterable of indices is accepted."""
    tell = getattr(sampler, "set_epoch", None)
    if tell is not None:
        tell(epoch)


def length_of(op: str, source: Sized | int) -> int:
    """Return ``source`` or its length, not negative; ValueError names the caller ``op``."""
    length = int(source) if isinstance(source, (int, np.integer)) else len(source)
    if length < 0:
        raise ValueError(f"{op}: the length must not be negative, got {length}")
    return length
